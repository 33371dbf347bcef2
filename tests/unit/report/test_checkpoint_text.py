"""What console and verdict say about saves and restores."""

from __future__ import annotations

from typing import Any

import pytest
from run_summaries import COLD, printed, summary_of

from dlio_torch.analysis.checkpoint_figures import checkpoint_figures
from dlio_torch.checkpoint.save_times import RestoreTimes, SaveTimes
from dlio_torch.report.checkpoint_text import checkpoint_rows
from dlio_torch.report.run_verdict import verdict

SYNC = SaveTimes(5, 0, stall_s=0.5, durable_s=0.5, bytes=100 << 20, write_s=0.4, fsync_s=0.1)
ASYNC = SaveTimes(5, 0, stall_s=0.1, durable_s=0.5, bytes=100 << 20, stage_s=0.1, write_s=0.4)
READ = RestoreTimes(seconds=0.25, bytes=50 << 20)
SLOWER: dict[str, Any] = {
    "slowdown": 0.125,
    "fetch_slowdown": -0.5,
    "during_saves": {"steps": 12},
    "peak_host_bytes": 100 << 20,
}


def summary(
    saves: list[list[SaveTimes]], restores: list[list[RestoreTimes]] | None = None, **more: Any
) -> dict[str, Any]:
    content = summary_of({**COLD, "saved": {"checkpoints": 1, "bytes": 1, "fsync": True}}, fetch=6)
    content["checkpoints"].update({**checkpoint_figures(saves, restores or []), **more})
    return content


def rows(content: dict[str, Any]) -> list[tuple[str, str]]:
    return list(checkpoint_rows(content))


def test_a_synchronous_save_has_one_time_and_its_flush_apart() -> None:
    assert rows(summary([[SYNC]])) == [
        (
            "checkpoints",
            "1, 500 ms each: 100 MiB at 200 MiB/s, flushed to the device (100 ms of it, 250 MiB/s without it)",
        )
    ]


def test_a_save_in_the_background_has_a_stall_and_a_time_until_durable() -> None:
    content = summary([[ASYNC], [ASYNC]])
    content["saved"]["fsync"] = False
    assert rows(content) == [
        (
            "checkpoints",
            "1 of 200 MiB: training stands still for 100 ms each, durable after 500 ms at 400 MiB/s in all, 200 MiB/s "
            "per rank, not flushed: perhaps still in memory (no fsync)",
        )
    ]


def test_slowed_steps_memory_and_restores_have_their_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    content = summary([[ASYNC]], [[READ]], **SLOWER)
    assert rows(content)[1:] == [
        (
            "",
            "while a save is written, steps take 12.5 % longer (12 steps) and wait for data 50.0 % shorter; saves hold "
            "up to 100 MiB of memory",
        ),
        ("restore", "250 ms: 50 MiB at 200 MiB/s"),
    ]
    assert "restore" in printed(content, monkeypatch)


def test_slowed_steps_have_their_intervals() -> None:
    sure = {"slowdown_ci95": [0.08, 0.17], "fetch_slowdown_ci95": [-0.6, 0.1]}
    assert rows(summary([[ASYNC]], **{**SLOWER, **sure}))[1][1].startswith(
        "while a save is written, steps take 12.5 % longer (95 %: +8.0 % to +17.0 %; 12 steps) and wait for data "
        "50.0 % shorter (95 %: -60.0 % to +10.0 %); saves hold"
    )


def test_nothing_saved_says_nothing() -> None:
    assert rows(summary([[]])) == []


def test_the_verdict_names_slowed_steps() -> None:
    sentence = " While a save is written, steps take 12.5 % longer (12 steps) and wait for data 50.0 % shorter."
    assert sentence in verdict(summary([[ASYNC]], **SLOWER))
    assert "While a save" not in verdict(summary([[ASYNC]], **{**SLOWER, "slowdown": 0.04}))
    assert "While a save" not in verdict(summary([[ASYNC]], slowdown=None))


def test_the_verdict_gives_the_advice_on_its_own_loss() -> None:
    def advice(key: str) -> dict[str, Any]:
        return {"key": key, "value": "1", "also": [], "predicted": None}

    items = [advice("loader.num_workers"), advice("checkpoint.every_steps")]
    costly = {**summary_of(COLD, fetch=1, checkpoint=9), "advice": {"items": items}}
    assert "; try checkpoint.every_steps=1." in verdict(costly)
    assert "; try loader.num_workers=1." in verdict({**summary_of(COLD, fetch=9), "advice": {"items": items}})
