"""Readings of samples, and what follows from them, for recordings without a loader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dlio_torch.fit.calls_without_loader import (
    batches_ahead,
    order_of_reads,
    reading_processes,
    reads_ahead,
    seconds_of_steps,
)
from dlio_torch.fit.data_set import DataFit
from dlio_torch.fit.finding import Finding, findings
from dlio_torch.fit.replayed_data import recorded_samples
from dlio_torch.fit.sample_reads import SampleReads, reads_between_pauses, reads_of_samples

US, MS = 1_000, 1_000_000
COLUMNS = ("op", "file", "offset", "bytes", "start_ns", "rank", "pid", "tid", "sample", "dataset", "reading")


def table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Calls of 1 microsecond, in the order of time."""
    plain = {"offset": -1, "bytes": -1, "rank": 0, "pid": 7, "tid": 7, "sample": -1, "dataset": -1, "reading": -1}
    frame = pd.DataFrame([{**plain, **row} for row in rows], columns=list(COLUMNS))
    frame["end_ns"] = frame["start_ns"] + US
    frame = frame.sort_values("start_ns", kind="stable").reset_index(drop=True)
    return frame.astype({"op": "category", "file": "category"})


def passes(files: list[str], batches: int, *, pause: int = 10 * MS, tid: int = 7) -> list[dict[str, Any]]:
    """Reads of 100 bytes in two calls for each batch, through each file, with an open and a close."""
    rows, now = [], 0
    for file in files:
        rows.append({"op": "open", "file": file, "start_ns": now, "tid": tid})
        for number in range(batches):
            for place, size in ((0, 90), (90, 10)):
                now += 10 * US
                offset = 100 * number + place
                rows.append({"op": "read", "file": file, "offset": offset, "bytes": size, "start_ns": now, "tid": tid})
            now += pause
        rows.append({"op": "read", "file": file, "offset": 100 * batches, "bytes": 0, "start_ns": now, "tid": tid})
        rows.append({"op": "close", "file": file, "start_ns": now + 5 * US, "tid": tid})
        now += 20 * US
    return rows


def reads(*files: str, **options: Any) -> SampleReads:
    return reads_between_pauses(table(passes(list(files), 4, **options)))


def test_a_sample_is_what_is_read_between_two_pauses() -> None:
    result = reads("a", "b", "c")
    assert len(result.readings) == 12
    ops = [list(result.calls["op"].iloc[rows]) for rows in result.readings]
    assert ops[0] == ["open", "read", "read"]
    assert ops[3] == ["read", "read", "read", "close"]  # the end of a file belongs to what reads the file
    assert result.passes == 1


def test_samples_that_are_read_again_are_numbered_by_file_and_offset() -> None:
    result = reads("b", "a", "a", "b")
    assert result.samples.tolist() == [4, 5, 6, 7, 0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7]
    assert result.passes == 2
    samples = recorded_samples(result)
    assert list(samples.file_bytes.items()) == [("a", 400), ("b", 400)]
    assert len(samples.samples) == 8
    assert samples.calls["file"].iloc[samples.samples[0][0]] == "a"


def test_batches_that_are_read_ahead_without_a_pause_are_cut_by_their_bytes() -> None:
    rows = passes(["a", "b", "c"], 4, tid=8)
    quick = [row for row in rows if row["file"] == "a"]
    for place, row in enumerate(quick[:7]):  # three batches of the first file at once
        row["start_ns"] = 25 * MS + place * 10 * US
    result = reads_between_pauses(table(rows))
    sizes = [int(result.calls["bytes"].iloc[rows].clip(lower=0).sum()) for rows in result.readings]
    assert sizes == [100] * 12
    assert reads_ahead(result)
    assert batches_ahead(result) == 2
    assert np.median(seconds_of_steps(result)) == pytest.approx(0.01, rel=0.05)


def test_the_thread_that_trains_waits_for_its_reads() -> None:
    result = reads("a", "b", "c")
    assert not reads_ahead(result)
    assert np.median(seconds_of_steps(result)) == pytest.approx(0.01, rel=0.05)


def test_ranks_take_turns() -> None:
    rows = [{**row, "rank": rank, "pid": -1, "tid": -1} for rank in (0, 1) for row in passes([f"part{rank}"], 12)]
    result = reads_between_pauses(table(rows))
    assert result.ranks.tolist() == [0, 1] * 12
    assert result.samples.tolist() == list(range(24))
    assert not reads_ahead(result)  # threads are not known


def opened(files: Sequence[int], batch: int, *, rank: int = 0, late: int = 0) -> list[dict[str, Any]]:
    """Files of one sample, each opened, read and closed; 10 ms pass after each batch, and ``late`` before all."""
    rows, now = [], late
    for place, number in enumerate(files):
        calls = ({"op": "open"}, {"op": "read", "offset": 0, "bytes": 90}, {"op": "close"})
        rows += [{**row, "file": f"{number:02}", "rank": rank, "start_ns": now + n * US} for n, row in enumerate(calls)]
        now += 100 * US if (place + 1) % batch else 10 * MS
    return rows


def test_samples_that_are_opened_one_by_one_are_batched_by_pauses() -> None:
    draw = np.random.default_rng(1)
    rows = opened([int(number) for _ in range(3) for number in draw.permutation(24)], 3)
    result = reads_between_pauses(table(rows))
    assert (len(result.readings), len(result.rows), result.passes, result.batch_size) == (72, 24, 3, 3)
    assert np.median(seconds_of_steps(result)) == pytest.approx(0.01, rel=0.05)
    assert batches_ahead(result) == 0


def test_batches_of_ranks_take_turns() -> None:
    rows = [row for rank in (0, 1) for row in opened(range(24 * rank, 24 * rank + 24), 2, rank=rank, late=rank * US)]
    result = reads_between_pauses(table(rows))
    assert result.batch_size == 2
    assert result.ranks.tolist() == [0, 0, 1, 1] * 12


def test_batches_of_no_common_size_are_no_batches() -> None:
    rows, now = [], 0
    for size in (1, 5, 2, 7, 3, 6, 4, 8, 2, 9):
        burst = opened(range(size), size)
        rows += [{**row, "start_ns": row["start_ns"] + now} for row in burst]
        now += max(row["start_ns"] for row in burst) + 20 * MS
    assert reads_between_pauses(table(rows)).batch_size == 1


def sample(number: int, now: int, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {**row, "file": "a", "sample": number, "dataset": 1, "reading": now, "start_ns": now * MS + place * US}
        for place, row in enumerate(rows)
    ]


def test_calls_that_open_a_file_for_further_samples_are_none_of_the_first_sample() -> None:
    opening = [{"op": "open"}, {"op": "fstat"}, {"op": "read", "offset": 0, "bytes": 8}]
    bodies = {number: [{"op": "pread", "offset": 100 + 50 * number, "bytes": 50}] for number in range(3)}
    rows = sample(2, 0, opening + bodies[2]) + sample(0, 1, bodies[0]) + sample(1, 2, bodies[1])
    rows += [{**row, "pid": 9} for row in sample(1, 3, opening + bodies[1])]
    result = reads_of_samples(table(rows), 1)
    samples = recorded_samples(result)
    assert list(samples.calls["op"].iloc[samples.opening["a"]]) == ["open", "fstat", "read"]
    assert [list(samples.calls["offset"].iloc[group]) for group in samples.samples] == [[100], [150], [200]]


def test_samples_of_another_data_set_are_left_out() -> None:
    rows = sample(0, 0, [{"op": "read", "offset": 0, "bytes": 8}])
    rows += [{**row, "dataset": 2} for row in sample(1, 1, [{"op": "read", "offset": 8, "bytes": 8}])]
    assert len(reads_of_samples(table(rows), 1).readings) == 1


def test_without_pauses_each_open_begins_a_sample() -> None:
    rows = passes(list("abcdef"), 1, pause=20 * US)
    result = reads_between_pauses(
        table(rows + [{**row, "pid": 8, "tid": 8, "file": "g" + row["file"]} for row in rows])
    )
    assert len(result.readings) == 12
    assert reading_processes(result) == 2


@pytest.mark.parametrize(
    ("files", "order"),
    [
        ("abcabca", {"access.pattern": "samples", "access.order": "sequential"}),
        ("abcbaca", {"access.pattern": "stream", "access.order": "shuffled", "access.partition": "files"}),
    ],
)
def test_the_order_is_told_from_all_epochs_the_last_of_which_may_be_cut_short(
    files: str, order: dict[str, str]
) -> None:
    found = findings([Finding("dataset.num_files", 3, "as made")])
    data = DataFit(found, "extents", tuple("abc"), 12, None, reads=reads(*files))
    training: Any = None  # the readings say all
    assert {finding.key: finding.value for finding in order_of_reads(training, data)} == order
