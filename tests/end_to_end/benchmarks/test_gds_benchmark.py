"""The benchmark of reads to a GPU's memory: equal bytes by every way that is here, and a reason for the others."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks import gds
from benchmarks.gds import BASELINE, WAYS, measure
from benchmarks.harness import command
from benchmarks.harness.rounds import Unavailable
from dlio_torch.config.compose import compose


def test_every_way_is_measured_or_left_out_with_a_reason(tmp_path: Path) -> None:
    options = ["--quick", "--rounds", "1", "--threads", "2", "--output", str(tmp_path), "--directory", str(tmp_path)]
    assert command.main(["gds", *options]) == 0
    record = json.loads((tmp_path / "gds.json").read_text(encoding="utf-8"))
    measured = {row["way"]: row for row in record["tables"]["gds"]}
    missing = {way["way"]: way["why"] for way in record["missing"]}
    assert sorted([*measured, *missing]) == sorted(WAYS)
    assert measured[BASELINE]["MB/s"][0] > 0
    if not torch.cuda.is_available():
        assert list(measured) == [BASELINE]
        assert all("needs a GPU" in why for why in missing.values())


def test_a_way_that_reads_other_samples_is_no_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    phase = {"bytes": 10**6, "samples": 4, "elapsed_s": 0.5}
    summary = {"order": [{"crc32": "12345678"}], "warmup": dict.fromkeys(phase), "train": phase}
    monkeypatch.setattr(gds, "run_emulator", lambda recipe, overrides: SimpleNamespace(summary=summary))
    orders: dict[str, Any] = {}
    assert measure([], orders) == measure([], orders) == {"MB/s": 2.0, "samples/s": 8.0}
    summary["order"] = [{"crc32": "12345679"}]
    with pytest.raises(Unavailable, match="not the same"):
        measure([], orders)


@pytest.mark.parametrize("way", WAYS)
def test_the_options_of_a_way_fit_together(way: str) -> None:
    options = ["recipe=minimal", "dataset=npy", "dataset.samples_per_file=4", "loader.engine=decoupled", *WAYS[way]]
    assert compose(options, environ={}).config.loader.read_to == ("device" if "cuFile" in way else "host")
