"""The benchmark of placements: each variant has its row, with its ratio to the baseline of its engine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from ranks import REPO

from benchmarks.placement import variants


def test_placements_are_compared(tmp_path: Path) -> None:
    # In a process of its own: it forks workers.
    words = ["--quick", "--workers", "1", "--ways", "fork,", "--output", str(tmp_path), "--directory", str(tmp_path)]
    command = [sys.executable, "-m", "benchmarks", "placement", *words]
    subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=200, check=True)
    rows = json.loads((tmp_path / "placement.json").read_text(encoding="utf-8"))["tables"]["placement"]
    ways = [f"dataloader, fork, {name}" for name in ("none", "numa", "cores")]
    assert [row["loader"] for row in rows] == [*ways, "decoupled, threads, none"]
    assert {tuple(row["of the baseline"]) for row in rows if row["loader"].endswith("none")} == {(1, 1, 1)}
    for row in rows:
        assert row["samples/s"][0] > 0
        assert (row["memory of a worker (MB)"] is None) == row["loader"].startswith("decoupled")


def test_every_placement_and_start_method_is_a_variant() -> None:
    options = [way.options for way in variants(2)]
    assert {way.get("affinity", "none") for way in options} == {"none", "numa", "cores"}
    assert {way["multiprocessing_context"] for way in options if "num_workers" in way} == {
        "fork",
        "forkserver",
        "spawn",
    }
