"""The benchmark node_check: its ratios, the goal, and what it could not measure."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from node_records import node_record

from benchmarks import node_check
from benchmarks.harness.tables import Missing, Table


def test_twice_as_many_steps_are_run_where_the_data_give_them() -> None:
    assert node_check.longer("train.steps=8", 100) == "train.steps=16"
    assert node_check.longer("train.steps=8", 10) == "train.steps=10"
    assert node_check.longer("seed=8", 10) == "seed=8"


def test_each_combination_has_its_ratio_and_a_failed_one_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: dict[str, float] = {"0": 100.0, "2": 95.0}
    monkeypatch.setattr(node_check, "measured", lambda arguments, folder: node_record())
    monkeypatch.setattr(
        node_check,
        "trained",
        lambda item, folder, numbers, steps: {"samples_per_s": measured[item["loader.num_workers"]]},
    )
    parts = list(node_check.run(Namespace(directory=tmp_path, rounds=1, quick=True)))
    [missing] = [part for part in parts if isinstance(part, Missing)]
    assert (missing.way, missing.why) == ("dataloader, 4 workers", "killed by SIGKILL")
    [table] = [part for part in parts if isinstance(part, Table)]
    rows: list[dict[str, Any]] = [dict(row) for row in table.rows]
    assert [row["ratio"] for row in rows] == [pytest.approx(0.9), pytest.approx(100 / 95)]
    assert [row["within 10 %"] for row in rows] == ["yes", "yes"]
    measured["2"] = 80.0
    [*_, table] = list(node_check.run(Namespace(directory=tmp_path, rounds=1, quick=True)))
    assert isinstance(table, Table)
    assert [row["within 10 %"] for row in table.rows] == ["yes", "no"]
    assert "1 of 2 combinations within 10 %" in table.title
