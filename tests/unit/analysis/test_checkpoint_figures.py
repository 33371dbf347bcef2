"""Figures of saves and restores: hand-computed numbers, and null with a reason where nothing was measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
from figure_checks import check_figures

from dlio_torch.analysis.checkpoint_figures import RESTORE_PARTS, SAVE_PARTS, checkpoint_figures
from dlio_torch.checkpoint.save_times import RestoreTimes, SaveTimes

FIRST = SaveTimes(5, 0, stall_s=1.0, durable_s=4.0, bytes=300, write_s=3.0, fsync_s=0.5)
SLOW = SaveTimes(5, 0, stall_s=2.0, durable_s=3.0, bytes=100, write_s=1.0, fsync_s=0.75)
READ = RestoreTimes(seconds=4.0, bytes=200, read_s=2.5, copy_s=1.0)


def test_times_are_those_of_the_slowest_rank_and_bytes_of_all() -> None:
    save = checkpoint_figures([[FIRST], [SLOW], []], [])["save"]
    single = {name: save[name]["mean"] for name in ("stall_s", "write_s", "fsync_s", "durable_s", "bytes")}
    assert single == {"stall_s": 2.0, "write_s": 3.0, "fsync_s": 0.75, "durable_s": 4.0, "bytes": 400}
    assert save["bytes_per_s"] == dict.fromkeys(("mean", "min", "median", "p95", "max"), 100.0)
    assert save["unflushed_bytes_per_s"]["mean"] == pytest.approx(400 / 3.5)
    assert save["per_rank"] == [
        {"rank": 0, "bytes": 300, "stall_s": 1.0, "fsync_s": 0.5, "durable_s": 4.0, "bytes_per_s": 75.0},
        {
            "rank": 1,
            "bytes": 100,
            "stall_s": 2.0,
            "fsync_s": 0.75,
            "durable_s": 3.0,
            "bytes_per_s": pytest.approx(100 / 3),
        },
    ]


def test_statistics_are_taken_over_saves() -> None:
    later = [replace(FIRST, step=step, stall_s=stall) for step, stall in ((10, 2.0), (15, 6.0))]
    save = checkpoint_figures([[FIRST, *later]], [])["save"]
    assert save["count"] == 3
    assert save["stall_s"] == pytest.approx({"mean": 3.0, "min": 1.0, "median": 2.0, "p95": 5.6, "max": 6.0})


def test_a_save_that_a_rank_did_not_complete_does_not_count() -> None:
    figures = checkpoint_figures([[FIRST, replace(FIRST, step=10, durable_s=100.0)], [SLOW]], [])
    assert figures["save"]["count"] == 1
    assert figures["save"]["durable_s"]["max"] == 4.0


def test_parts_that_only_some_ranks_tell() -> None:
    save = checkpoint_figures([[replace(FIRST, plan_s=0.25)], [SLOW]], [])["save"]
    assert save["plan_s"]["mean"] == 0.25
    assert save["stage_s"] is None
    assert save["why"] == "the layout has no such part, or its library does not tell: stage_s"
    assert checkpoint_figures([[replace(FIRST, plan_s=0.25, stage_s=0.5)]], [])["save"]["why"] is None


def test_a_flush_that_a_rank_does_not_tell_leaves_no_rate_without_it() -> None:
    save = checkpoint_figures([[FIRST], [replace(SLOW, fsync_s=None)]], [])["save"]
    assert save["unflushed_bytes_per_s"] is None
    assert [row["fsync_s"] for row in save["per_rank"]] == [0.5, None]


def test_restores() -> None:
    slower = replace(READ, seconds=5.0, bytes=100, metadata_s=0.5)
    restore = checkpoint_figures([], [[READ, READ], [slower, READ], []])["restore"]
    assert restore["count"] == 2
    assert restore["duration_s"]["mean"] == 4.5
    assert restore["bytes_per_s"]["mean"] == pytest.approx((300 / 5 + 400 / 4) / 2)
    assert restore["metadata_s"]["mean"] == 0.5
    assert restore["plan_s"] is None
    assert restore["why"] == "the layout has no such part, or its library does not tell: plan_s"
    assert restore["per_rank"][1] == {"rank": 1, "bytes": 150, "duration_s": 4.5, "bytes_per_s": 35.0}


def test_nothing_measured_is_null_with_a_reason() -> None:
    figures = checkpoint_figures([[], []], [[], []])
    for part, names in (("save", ("stall_s", "durable_s", *SAVE_PARTS)), ("restore", ("duration_s", *RESTORE_PARTS))):
        assert {name: figures[part][name] for name in (*names, "bytes", "bytes_per_s")} == dict.fromkeys(
            (*names, "bytes", "bytes_per_s")
        )
    assert figures["save"]["why"] == "no save was measured"
    assert figures["restore"]["why"] == "no checkpoint was read"


def test_figures_are_documented() -> None:
    check_figures({"checkpoints": checkpoint_figures([[replace(FIRST, plan_s=0.1, stage_s=0.1)]], [[READ]])})
    check_figures({"checkpoints": checkpoint_figures([[]], [[]])})
