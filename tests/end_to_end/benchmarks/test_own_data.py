"""The benchmark of recommended workers for a folder of images: its verdicts, and that it gives its rows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ranks import REPO

from benchmarks.harness.rounds import Rounds
from benchmarks.own_data import KEY, KINDS, Trials, grid, verdict, write_images

pytest.importorskip("PIL", reason="Pillow is not installed")


def rounds(**rates: list[float]) -> Rounds:
    """Rates in samples per second, one a round; ``w2`` stands for two workers."""
    measured = Rounds([name[1:] for name in rates])
    for name, values in rates.items():
        measured.figures[name[1:]] = [{"rate": value} for value in values]
    return measured


@pytest.mark.parametrize(
    ("value", "rates", "said"),
    [
        ("2", {"w0": [50.0] * 4, "w2": [100.0, 101, 99, 100]}, "best"),
        ("0", {"w0": [50.0, 51, 49, 50], "w2": [100.0, 101, 99, 100]}, "worse"),
        ("0", {"w0": [100.0, 99, 101, 100], "w2": [101.0, 98, 102, 103]}, "within noise"),
        ("0", {"w0": [100.0, 60, 110, 95], "w2": [101.0, 111, 91, 106]}, "unresolved"),
        ("0", {"w0": [100.0, 100, 100, 100], "w2": [100.5, 100.5, 100.5, 100.5]}, "within noise"),
        ("0", {"w0": [50.0], "w2": [100.0]}, "one round"),
        ("3", {"w0": [50.0] * 4, "w2": [100.0] * 4}, "not in the grid"),
    ],
)
def test_a_recommended_value_is_compared_in_its_rounds(value: str, rates: dict[str, list[float]], said: str) -> None:
    row = verdict(rounds(**rates), "tune", value, "a gain")
    assert (row["recommendation"], row["best of the grid"]) == (said, "2")


def test_each_value_has_a_row_with_the_advice_of_its_runs(tmp_path: Path) -> None:
    trials = Trials(tmp_path, "resize")
    trials.advised = {"0": ["2", "2", "1"]}
    trials.withheld = {"0": ["", "", ""], "2": ["no core was free", "no core was free", ""]}
    rows = grid(rounds(w0=[50.0] * 3, w2=[100.0] * 3), trials)
    assert [(row[KEY], row["advised by its runs"], row["no advice because"]) for row in rows] == [
        ("0", "2 (2x), 1", "-"),
        ("2", "-", "no core was free"),
    ]
    assert [row[f"of {KEY}=2"] for row in rows] == [(0.5, 0.5, 0.5), (1, 1, 1)]


def test_images_have_mixed_suffixes_and_sizes(tmp_path: Path) -> None:
    from PIL import Image

    write_images(tmp_path, 10)
    paths = sorted(tmp_path.rglob("*.*"))
    assert {path.suffix for path in paths} == {suffix for suffix, _ in KINDS}
    sizes = set()
    for path in paths:
        with Image.open(path) as image:
            sizes.add(image.size)
    assert len(sizes) == len(paths) == 10


def test_the_grid_runs_and_tune_recommends_a_value_of_it(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "benchmarks", "own_data", "--quick",
        "--directory", str(tmp_path), "--output", str(tmp_path / "results"),
    ]  # fmt: skip
    subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=400, check=True)
    record: dict[str, Any] = json.loads((tmp_path / "results" / "own_data.json").read_text())
    assert record["missing"] == []
    assert [row[KEY] for row in record["tables"]["grid"]] == ["0", "1"]
    assert all(row["samples/s"][0] > 0 for row in record["tables"]["grid"])
    tuned, *_ = record["tables"]["own_data"]
    assert tuned["recommended by"] == "tune"
    assert tuned[KEY] in ("0", "1")
    assert tuned["recommendation"] in ("best", "one round")
