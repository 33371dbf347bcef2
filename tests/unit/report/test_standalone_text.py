"""Tables of the verb ``checkpoint``: statistics of saves and loads, and the figures of each rank."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlio_torch.analysis.standalone_checkpoints import RankCheckpoints, standalone_figures
from dlio_torch.checkpoint.save_times import RestoreTimes, SaveTimes
from dlio_torch.report.standalone_text import print_checkpoints, verdict

SAVE = SaveTimes(1, 0, stall_s=0.5, durable_s=0.5, bytes=100 << 20, write_s=0.4, fsync_s=0.1)
READ = RestoreTimes(seconds=0.25, bytes=50 << 20)


def summary(*ranks: tuple[list[SaveTimes], list[RestoreTimes]]) -> dict[str, Any]:
    measured = [RankCheckpoints(saves, loads, 0, [None] * len(loads), None) for saves, loads in ranks]
    figures = standalone_figures(measured, [], {"file_system": "ext4", "device": None})
    head = {"recipe": "minimal", "scale": "tiny", "world_size": len(ranks)}
    return {**head, "checkpoints": {"layout": "torch_save", "folder": "saved", "kept": 1, **figures}}


def printed(content: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    monkeypatch.setenv("COLUMNS", "140")
    stream = io.StringIO()
    print_checkpoints(content, stream, Path("run"))
    return [line.split() for line in stream.getvalue().splitlines()]


def test_the_shortest_save_is_shown_beside_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    content = summary(([SAVE, replace(SAVE, step=2, durable_s=1.5)], [READ]))
    rows = printed(content, monkeypatch)
    assert ["count", "bytes", "mean", "min", "median", "p95", "max", "rate"] in rows
    [save] = [row for row in rows if row[:1] == ["save"]]
    assert save[4:8] == ["1", "s", "500", "ms"]
    del content["checkpoints"]["save"]["durable_s"]["min"]  # of an older version
    [save] = [row for row in printed(content, monkeypatch) if row[:1] == ["save"]]
    assert save[4:8] == ["1", "s", "-", "1"]


def test_each_rank_has_bytes_and_rates_of_save_and_load_and_its_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = printed(summary(([SAVE], [READ]), ([replace(SAVE, fsync_s=None)], [])), monkeypatch)
    assert ["rank", "bytes", "save", "flush", "rate", "load", "bytes", "rate"] in rows
    first = "0 100 MiB 500 ms 100 ms 200 MiB/s 250 ms 50 MiB 200 MiB/s"
    assert first.split() in rows
    assert ["1", "100", "MiB", "500", "ms", "-", "200", "MiB/s", "-", "-", "-"] in rows


def test_the_verdict_tells_the_rate_without_the_flush() -> None:
    figures = summary(([SAVE], []))["checkpoints"]
    assert verdict(figures) == (
        "A save of 100 MiB takes 500 ms (200 MiB/s), of which flushing takes 100 ms (250 MiB/s without it); nothing "
        "was read back."
    )


@pytest.mark.parametrize("columns", ["80", "100"])
def test_a_row_stays_on_one_line_and_its_name_whole(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    load = replace(READ, seconds=5.078, metadata_s=3.551, read_s=1.524)
    save = replace(SAVE, bytes=1_900_000_000, durable_s=8.771, write_s=7.873, fsync_s=0.743)
    monkeypatch.setenv("COLUMNS", columns)
    stream = io.StringIO()
    print_checkpoints(summary(([save], [load])), stream, Path("run"))
    text = stream.getvalue()
    assert "   reading metadata  " in text
    assert columns == "80" or re.search(r"^ load +1 +50 MiB .* MiB/s$", text, re.MULTILINE)
