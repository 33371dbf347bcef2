"""Merged intervals of each category, by rank and epoch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from span_events import Span, recorded, run

from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.iotrace.figures.breakdown import CATEGORIES, breakdown

RANK = [
    Span("generate", 0, 900, file="/data/a"),
    Span("restore", 1000, 1100),
    Span("read", 1010, 1090),  # of the restore
    Span("epoch", 1100, 1600),
    Span("epoch", 1600, 2000),
    Span("fetch", 1100, 1200, step=1),
    Span("compute", 1200, 1300, step=1),
    Span("allreduce", 1300, 1350, step=1),
    Span("checkpoint", 1350, 1400, step=1),
    Span("eval_fetch", 1400, 1450, step=1),
    # Two workers at once, one going on into the next epoch.
    Span("read", 1100, 1300, pid=2, tid=2),
    Span("read", 1200, 1400, pid=3, tid=3),
    Span("preprocess", 1350, 1700, pid=3, tid=3),
]


def seconds(recording: Recording, epoch: int = -1, rank: int = 0) -> dict[str, float]:
    """Nanoseconds of the categories that there are."""
    table = breakdown(recording)
    rows = table[(table["epoch"] == epoch) & (table["rank"] == rank)]
    assert tuple(rows["category"]) == CATEGORIES
    return {row.category: round(row.seconds * 1e9) for row in rows.itertuples() if not np.isnan(row.seconds)}


def test_no_second_counts_twice() -> None:
    assert seconds(recorded(RANK)) == {
        "read": 300, "load": 600, "wait": 100, "compute": 100, "allreduce": 50, "train": 150,
        "checkpoint": 150, "evaluate": 50, "other": 550,
    }  # fmt: skip
    shares = breakdown(recorded(RANK)).set_index(["epoch", "category"])["share"]
    assert shares[-1, "train"] == pytest.approx(0.15)  # of 1000 ns; the making of the data is no part of the run
    assert shares[2, "load"] == pytest.approx(0.25)


def test_epochs_are_cut_apart() -> None:
    assert seconds(recorded(RANK), epoch=1)["load"] == 500
    assert seconds(recorded(RANK), epoch=2)["load"] == 100
    assert seconds(recorded(RANK), epoch=2)["other"] == 400


def test_ranks_are_apart_and_calls_of_all_files_are_posix() -> None:
    calls = [Span("pread", 1100, 1150, layer="posix", pid=2), Span("write", 1120, 1170, layer="posix", file="/tmp/x")]
    other = [replace(span, rank=3, pid=9) for span in RANK[5:7]]
    both = recorded([*RANK, *calls, *other])
    assert seconds(both)["posix"] == 70
    assert seconds(both, rank=3) == {"wait": 100, "compute": 100, "train": 100, "other": 0}


def test_what_is_not_recorded_is_not_zero() -> None:
    table = breakdown(recorded([Span("read", 0, 10, layer="posix")]))
    assert table.dropna()["category"].tolist() == ["posix"]
    assert breakdown(recorded([])).empty


def test_spans_of_another_benchmark() -> None:
    names = {"compute": 20, "read": 50, "TorchDataset.__getitem__": 60, "fetch": 30}  # the importer's names
    spans = [Span("DLIOBenchmark.run", 0, 100), *(Span(op, 0, end) for op, end in names.items())]
    found = {"read": 50, "load": 60, "wait": 30, "compute": 20, "train": 20, "other": 70}
    assert seconds(recorded(spans)) == found


def test_a_run_adds_up(tmp_path: Path) -> None:
    options = ("train.epochs=2", "train.steps=4", "loader.num_workers=1", "compute.preprocess_s=0.5ms")
    table = breakdown(run(tmp_path, *options, "dataset.fields.0.shape=[16,16]"))
    pivot: pd.DataFrame = table.pivot(index="category", columns="epoch", values="share")
    trainer = ["wait", "train", "other"]
    assert pivot.loc[trainer].sum().to_numpy() == pytest.approx([1, 1, 1], abs=0.01)
    assert list(pivot.columns) == [-1, 1, 2]
    assert (pivot.loc["load"] > pivot.loc["read"]).all()
