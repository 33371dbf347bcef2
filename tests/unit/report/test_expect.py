"""Published figures, scored like the components of a comparison."""

from __future__ import annotations

import pytest
from io_events import Call, recording, table

from dlio_torch.config.schema import ExpectConfig
from dlio_torch.iotrace.figures.io_metrics import analyse
from dlio_torch.report.expect import FIGURES, compare, lookup


def test_worst_first_and_what_was_not_measured_last() -> None:
    summary = {"a": 90.0, "b": 100.0, "c": 0.5, "d": 1.0}
    rows = compare(
        [
            ExpectConfig("none", 1.0, 0.1),
            ExpectConfig("b", 100, 0.0),
            ExpectConfig("a", 100, 0.2),
            ExpectConfig("a", 100, 0.1),
            ExpectConfig("c", 0, 0.25),
            ExpectConfig("d", 2.0, 0.0),
        ],
        summary,
    )
    assert [(row.metric, row.distance, row.tolerance, row.alike) for row in rows] == [
        ("d", 0.5, 0.0, "no"),
        ("c", 0.5, 0.25, "no"),
        ("a", 0.1, 0.1, "yes"),
        ("a", 0.1, 0.2, "yes"),
        ("b", 0.0, 0.0, "yes"),
        ("none", None, 0.1, "not measured"),
    ]


def test_a_figure_that_follows_from_a_scaled_option_is_not_scored() -> None:
    expected = [ExpectConfig("au.mean", 0.9, 0.1), ExpectConfig("reads.calls", 10, 0.1)]
    summary = {"au": {"mean": 0.3}, "reads": {"calls": 20}, "scaled": ["compute.step_s 1.36 -> 0.0136 (scale=tiny)"]}
    rows = compare(expected, summary)
    assert [(row.metric, row.alike, row.distance) for row in rows] == [
        ("reads.calls", "no", 1.0),
        ("au.mean", "scaled", None),
    ]
    assert rows[1].measured == 0.3
    assert [row.alike for row in compare(expected, {**summary, "scaled": ["train.steps 9 -> 3 (scale=tiny)"]})] == [
        "no",
        "no",
    ]


def test_figures_of_recorded_calls() -> None:
    reads = [Call(offset=place * 10, bytes=10, start=place, end=place + 1) for place in range(9)]
    jump = Call(op="pread", offset=10**6, bytes=60, start=9, end=10)
    summary = {"posix": analyse(recording(table([*reads, jump, Call(op="write", bytes=5, start=11, end=12)])))}
    expected = {
        "read.calls": 10,
        "read.bytes": 150,
        "read.min_bytes": 10,
        "read.max_bytes": 60,
        "read.mean_bytes": 15,
        "read.median_bytes": 10,
        "read.sequential": 0.9,
        "read.consecutive": 0.8,
        "read.sequential_per_stream": 0.9,
        "read.consecutive_per_stream": 0.8,
        "read.io_s": 10e-9,
        "read.bytes_per_s": 15e9,
        "write.bytes": 5,
        "all.calls": 11,
    }
    assert {name: lookup(summary, f"posix.{name}") for name in expected} == pytest.approx(expected)
    assert {name.partition(".")[2] for name in expected} == set(FIGURES)
    assert lookup(summary, "posix.io.calls") == 11  # any other figure of the analysis, by its place
    assert lookup(summary, "posix.read.unknown") is None


@pytest.mark.parametrize("summary", [{}, {"posix": None}, {"posix": {"io": None}}])
def test_a_run_that_recorded_no_calls(summary: dict[str, object]) -> None:
    assert lookup(summary, "posix.read.mean_bytes") is None
