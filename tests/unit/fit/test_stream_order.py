"""Order of iterable data sets, from the calls of the processes that read them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dlio_torch.fit.loader_options import open_at_once
from dlio_torch.fit.stream_order import ReaderPass, StreamReads, files_in_turn, pool_size, samples_of_an_open

Call = tuple[str, str, int, int]
"""Name, file, offset, bytes."""


def calls(*entries: Call) -> pd.DataFrame:
    """Calls of one process, one a nanosecond."""
    frame = pd.DataFrame(entries, columns=["op", "file", "offset", "bytes"])
    frame["start_ns"] = 10 * np.arange(len(frame))
    frame["end_ns"] = frame["start_ns"] + 1
    return frame.astype({"op": "category", "file": "category"})


def records(file: str, count: int, first: int = 0) -> list[Call]:
    """An open, and a read of 100 bytes for each record."""
    return [("open", file, -1, -1), *(("read", file, 100 * number, 100) for number in range(first, first + count))]


def items_after(frame: pd.DataFrame, reads: list[int]) -> np.ndarray:
    """Ends of items, each right after a number of reads."""
    ends = frame["end_ns"][frame["op"] == "read"].to_numpy()
    return np.array([ends[number - 1] + 1 for number in reads], np.int64)


def test_records_that_are_given_at_once_need_no_pool() -> None:
    frame = calls(*records("a", 20))
    assert pool_size(ReaderPass(0, 0, frame, items_after(frame, list(range(1, 21)))), 1) <= 1


@pytest.mark.parametrize("pool", [5, 12])
def test_a_pool_is_as_large_as_what_is_read_before_the_first_item(pool: int) -> None:
    frame = calls(*records("a", 40))
    items = items_after(frame, [min(40, pool + number) for number in range(40)])
    assert pool_size(ReaderPass(0, 0, frame, items), 1) == pool


def test_items_that_are_batches_count_as_their_samples() -> None:
    frame = calls(*records("a", 40))
    assert pool_size(ReaderPass(0, 0, frame, items_after(frame, [8, 16, 24, 32, 40])), 8) <= 1


def test_files_that_are_read_in_turn_are_counted() -> None:
    in_turn = [entry for number in range(9) for file in "abc" for entry in [("read", file, 100 * number, 100)]]
    assert files_in_turn(calls(*in_turn)) == 3
    assert files_in_turn(calls(*records("a", 9), *records("b", 9))) == 1


def test_files_that_are_opened_for_each_block_are_dealt_in_blocks() -> None:
    shuffled = [entry for number in (3, 0, 2, 1) for file in "ab" for entry in records(file, 8, 8 * number)]
    whole = [entry for file in "ab" for entry in records(file, 32)]
    assert samples_of_an_open(StreamReads([ReaderPass(0, 0, calls(*shuffled), np.zeros(0, np.int64))], 32, 1)) == 8
    assert samples_of_an_open(StreamReads([ReaderPass(0, 0, calls(*whole), np.zeros(0, np.int64))], 32, 1)) == 0


def test_files_that_are_open_at_the_same_time_are_counted_once_each() -> None:
    frame = calls(
        ("open", "a", -1, -1), ("open", "b", -1, -1), ("open", "a", -1, -1), ("close", "a", -1, -1),
        ("open", "c", -1, -1), ("close", "b", -1, -1), ("close", "c", -1, -1), ("open", "d", -1, -1),
    )  # fmt: skip
    assert open_at_once(frame) == 3
