"""Overlap and exposed I/O as true intersections."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from span_events import Span, recorded, run

from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.iotrace.figures.overlap import overlap

SPANS = [
    Span("generate", 0, 500),
    Span("compute", 1000, 1400, step=1),
    Span("compute", 1500, 2000, step=2),
    Span("read", 1300, 1600, pid=2, file="data/a"),
    Span("read", 1350, 1500, pid=3, file="data/a"),
    Span("read", 900, 950, pid=2, file="data/a"),
]


def figures(recording: Recording, rank: int = -1) -> tuple[str, list[int], float]:
    table = overlap(recording)
    assert table is not None
    [row] = table[table["rank"] == rank].to_dict("records")
    times = [round(row[name] * 1e9) for name in ("io_s", "compute_s", "overlap_s", "exposed_s", "measured_s")]
    return row["source"], times, row["overlap"]


def test_spans_stand_for_calls_that_were_not_recorded() -> None:
    assert figures(recorded(SPANS)) == ("read spans", [350, 900, 200, 150, 1100], pytest.approx(200 / 350))


def test_calls_on_data_files_count_others_do_not() -> None:
    calls = [
        Span("write", 0, 400, layer="posix", file="/run/data/a"),  # while the data were made
        Span("pread", 1350, 1450, layer="posix", pid=2, file="/run/data/a"),
        Span("lseek", 1450, 1460, layer="posix", pid=2, file="/run/data/a"),
        Span("write", 1000, 2000, layer="posix", file="/run/other/a"),
    ]
    source, times, _ = figures(recorded([*SPANS, *calls]))
    assert (source, times[:4]) == ("calls on data files", [110, 900, 50, 60])


def test_ranks_are_held_against_their_own_compute_and_added_up() -> None:
    other = [Span("compute", 900, 1000, rank=1), Span("read", 900, 1100, rank=1, file="data/a")]
    both = recorded([*SPANS, *other])
    assert figures(both, rank=0)[1] == figures(recorded(SPANS))[1]
    assert figures(both, rank=1)[1] == [200, 100, 100, 100, 200]
    assert figures(both)[1] == [550, 1000, 300, 250, 1300]


def test_spans_of_another_tool_that_name_no_files() -> None:
    spans = [Span("compute", 0, 100), Span("pread", 50, 150, layer="posix", pid=2, file="/a")]
    assert figures(recorded(spans))[:2] == ("calls on all files", [50, 100, 50, 0, 100])


def test_without_compute_or_io_there_is_no_overlap() -> None:
    assert overlap(recorded([Span("pread", 0, 5, layer="posix", file="/a")])) is None
    assert overlap(recorded([Span("compute", 0, 5)])) is None


def test_a_reader_thread_reads_behind_the_compute(tmp_path: Path) -> None:
    options = ("dataset.fields.0.shape=[256,256]", "compute.step_s=20ms", "train.steps=8", "dataset=hdf5_gzip")
    _, hidden, share = figures(run(tmp_path, *options, "loader.read_threads=1", name="ahead"))
    assert share > 0.5
    assert sum(hidden[2:4]) == pytest.approx(hidden[0], abs=2)
    assert figures(run(tmp_path, *options, name="in turn"))[2] == pytest.approx(0, abs=1e-9)
    assert not np.isnan(share)
