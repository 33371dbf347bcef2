"""The save that prepares a restore of a compared run, which the recorded program did not make."""

from __future__ import annotations

from pathlib import Path

from span_events import Span, recorded

from dlio_torch.fit.score import without_preparation

FILE = "/run/checkpoints/last.pt"
PREPARED = [
    Span("write", 10, 20, file=FILE, layer="posix"),
    Span("open", 12, 13, file="/data/a", layer="posix"),
]
LATER = [
    Span("read", 31, 32, file=FILE, layer="posix"),
    Span("write", 50, 60, file=FILE, layer="posix"),
]


def test_calls_on_checkpoints_before_a_restore_are_left_out() -> None:
    run = recorded([*PREPARED, Span("restore", 30, 40), *LATER])
    kept = without_preparation(run, Path("/run/checkpoints")).io
    assert kept["start_ns"].tolist() == [12, 31, 50]


def test_a_run_without_restore_is_whole() -> None:
    run = recorded([*PREPARED, *LATER])
    assert without_preparation(run, Path("/run/checkpoints")) is run
