"""Findings on the calls of recorded programs: each pattern is named with its figures, and no other."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from io_events import Call, recording, table

from dlio_torch.analysis.call_findings import CallFinding
from dlio_torch.iotrace.events.recording import COUNTERS
from dlio_torch.report.html.run.view import View

MIB = 1 << 20


def reads(count: int, size: int, step: int | None = None, files: int = 1, ranks: int = 1) -> list[Call]:
    """Reads of a duration of 10 ns each, in order of offset where ``step`` is not given."""
    return [
        Call("read", number * (step or size) % (1 << 30), size, 100 * number, 100 * number + 10,
             f"/data/{number % files}", number % ranks, 100 + number % ranks)
        for number in range(count)
    ]  # fmt: skip


def opens(count: int, files: int, duration: int = 10) -> list[Call]:
    return [
        Call("open", -1, -1, 50 + 100 * number, 50 + 100 * number + duration, f"/data/{number % files}")
        for number in range(count)
    ]


def findings(calls: list[Call]) -> list[CallFinding]:
    return View(recording(table(calls), path=Path("x"))).findings


def texts(calls: list[Call]) -> str:
    return "; ".join(finding.text for finding in findings(calls))


def test_large_reads_in_order_have_no_finding() -> None:
    assert findings([*reads(200, MIB), *opens(1, 1)]) == []


def test_a_few_calls_have_no_finding() -> None:
    assert findings([*reads(10, 10, 7), *opens(4, 1)]) == []


def test_small_reads() -> None:
    calls = [*reads(64, 4095), *[Call("read", MIB * k, MIB, 10**6 + k, 10**6 + k + 10) for k in range(1, 37)]]
    [finding] = findings(calls)
    assert finding.text == "64.0 % of 100 reads are below 4 KiB"
    assert finding.share == pytest.approx(1.0)
    assert "1 MiB" in finding.change


def test_many_opens_stand_for_the_time_of_metadata() -> None:
    [finding] = findings([*reads(100, MIB), *opens(100, 2, duration=30)])
    assert finding.text == "each of 2 files is opened 50 times on average"
    assert finding.share == pytest.approx(0.75)


def test_metadata() -> None:
    stats = [Call("stat", -1, -1, 50 + 100 * k, 60 + 100 * k, f"/data/{k}") for k in range(300)]
    [finding] = findings([*reads(100, MIB), *stats])
    assert finding.text.startswith("75.0 % of the time in I/O calls is opening, closing, seeking and metadata")


def test_random_order() -> None:
    [finding] = findings(reads(200, MIB, step=379 * MIB))
    assert finding.text == "accesses are in random order: 0.0 % begin where the one before ended"


def test_a_file_that_all_ranks_read_and_bytes_that_are_read_again() -> None:
    calls = [
        Call("read", MIB * k, MIB, 100 * k + rank, 100 * k + rank + 10, "/data/a", rank, 100 + rank)
        for rank in range(2) for k in range(30)
    ]  # fmt: skip
    text = texts(calls)
    assert "100.0 % of the bytes read are of files that several ranks read, most by 2 ranks from /data/a" in text
    assert "the same bytes are read 2 times on average, in 1 file" in text


def test_counters_alone() -> None:
    row = dict.fromkeys(COUNTERS, -1) | {"rank": 0, "file": "/data/a", "layer": "posix", "opens": 60, "reads": 1000}
    rows = [row | {"bytes_read": 100_000, "writes": 0, "bytes_written": 0}]
    view = View(recording(table([]), kind="darshan", counters=pd.DataFrame(rows)))
    text = "; ".join(finding.text for finding in view.findings)
    assert "the 1,000 reads that only counters contain are of 100 B on average" in text
    assert "each of 1 file is opened 60 times on average" in text
    assert all(finding.share is None for finding in view.findings)
