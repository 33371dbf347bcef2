"""Figures of two runs beside each other: which ones, their units and ratios, on the terminal and as JSON."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from dlio_torch.analysis.checkpoint_figures import checkpoint_figures
from dlio_torch.analysis.compared_figures import COMPARED, compared_figures
from dlio_torch.analysis.summary_figures import find
from dlio_torch.checkpoint.save_times import RestoreTimes, SaveTimes
from dlio_torch.report.figure_comparison import FigurePair, figure_pairs, figures_json, print_figures

SAVE = SaveTimes(5, 0, stall_s=0.5, durable_s=0.5, bytes=100 << 20, write_s=0.4, fsync_s=0.1)
READ = RestoreTimes(seconds=0.25, bytes=50 << 20)


def figures(saves: list[SaveTimes], restores: list[RestoreTimes], **more: Any) -> dict[str, float]:
    return compared_figures({"checkpoints": {**checkpoint_figures([saves], [restores]), **more}, "goodput": None})


A = figures([SAVE], [], slowdown=-0.02)
B = figures([SaveTimes(5, 0, stall_s=0.1, durable_s=1.0, bytes=100 << 20)], [READ], slowdown=0.5)


def test_means_of_what_was_measured() -> None:
    assert {
        "checkpoints.save.stall_s.mean": 0.5,
        "checkpoints.save.durable_s.mean": 0.5,
        "checkpoints.save.write_s.mean": 0.4,
        "checkpoints.save.fsync_s.mean": 0.1,
        "checkpoints.save.bytes.mean": 100 << 20,
        "checkpoints.save.bytes_per_s.mean": 200 << 20,
        "checkpoints.save.unflushed_bytes_per_s.mean": pytest.approx(250 << 20),
        "checkpoints.slowdown": -0.02,
    } == A
    assert compared_figures({"checkpoints": {"measured": 0, "duration_s": None}, "goodput": {"lost_share": 0.1}}) == {
        "goodput.lost_share": 0.1
    }


def test_each_figure_is_one_of_the_summary() -> None:
    for path in COMPARED:
        assert find(path) or find(f"{path}.mean"), path


def test_figures_of_either_side_have_a_ratio_where_both_are_positive() -> None:
    pairs = {pair.name.removesuffix(".mean"): pair for pair in figure_pairs({"a": A, "b": B})}
    order = [name for name in COMPARED if name in pairs]
    assert list(pairs) == order
    assert pairs["checkpoints.save.durable_s"] == FigurePair("checkpoints.save.durable_s.mean", "s", 0.5, 1.0, 2.0)
    assert pairs["checkpoints.save.fsync_s"] == FigurePair("checkpoints.save.fsync_s.mean", "s", 0.1, None, None)
    assert pairs["checkpoints.restore.bytes_per_s"].a is None
    assert pairs["checkpoints.slowdown"].ratio is None
    assert figure_pairs({}) == []


def test_two_runs_on_the_terminal_and_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    stream = io.StringIO()
    print_figures(("runs/[a]", "runs/b"), {"a": A, "b": B}, stream)
    rows = [line.split() for line in stream.getvalue().splitlines()]
    assert ["A:", "runs/[a]"] in rows
    assert ["checkpoints.save.bytes_per_s", "200", "MiB/s", "100", "MiB/s", "0.5"] in rows
    assert ["checkpoints.restore.duration_s", "-", "250", "ms", "-"] in rows
    assert ["checkpoints.slowdown", "-2.0", "%", "50.0", "%", "-"] in rows
    content = json.loads(json.dumps(figures_json(("runs/[a]", "runs/b"), {"a": A, "b": B}), allow_nan=False))
    assert (content["alike"], content["components"], content["a"]) == (None, [], "runs/[a]")
    assert len(content["figures"]) == len(figure_pairs({"a": A, "b": B}))
