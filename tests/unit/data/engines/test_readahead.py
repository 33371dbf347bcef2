"""Reader threads: which item is started when, in which order they come, and how they end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import count, islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlio_torch.data.engines.read_ahead import ReadAhead
from dlio_torch.errors import DataError, RunFailed


class Source(Iterator[int]):
    """Every n-th number; tells which were started, and waits for leave to give each."""

    def __init__(self, numbers: Iterator[int], started: list[int], leave: threading.Semaphore | None = None) -> None:
        self.numbers, self.started, self.leave = numbers, started, leave

    def __next__(self) -> int:
        number = next(self.numbers)
        self.started.append(number)
        if self.leave is not None:
            assert self.leave.acquire(timeout=30)
        return number


def wait_until(started: list[int], length: int) -> None:
    end = time.monotonic() + 30
    while len(started) < length:
        assert time.monotonic() < end, started
        time.sleep(0.001)


EARLIER: set[threading.Thread] = set()
"""Threads of earlier tests of this process, which may still be ending on a busy machine."""


@pytest.fixture(autouse=True)
def _earlier_threads() -> None:
    EARLIER.clear()
    EARLIER.update(threading.enumerate())


def readers() -> list[str]:
    own = (thread for thread in threading.enumerate() if thread not in EARLIER)
    return [thread.name for thread in own if thread.name.startswith("reader ")]


def shares(total: int, threads: int) -> list[Iterator[int]]:
    return [iter(range(thread, total, threads)) for thread in range(threads)]


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 20), st.integers(1, 4), st.integers(1, 6), st.booleans())
def test_the_items_come_in_order_for_any_number_of_threads(total: int, threads: int, depth: int, read_on: bool) -> None:
    ahead: ReadAhead[int] = ReadAhead(depth, 30)
    try:
        for _ in range(2):  # the threads are used again
            items = ahead.start(shares(total, threads))
            taken = []
            for item in items:
                taken.append(item)
                if read_on:
                    items.read_on()
            assert taken == list(range(total))
            with pytest.raises(StopIteration):
                next(items)
    finally:
        ahead.close()


@pytest.mark.parametrize("depth", [1, 3])
def test_an_item_is_started_when_the_one_depth_before_it_was_taken(depth: int) -> None:
    started: list[int] = []
    ahead: ReadAhead[int] = ReadAhead(depth, 30)
    items = ahead.start([Source(count(), started)])
    for taken in range(5):
        wait_until(started, taken + depth)
        assert next(items) == taken
        time.sleep(0.02)  # taking alone wakes nobody: that is read_on's
        assert len(started) == taken + depth
        items.read_on()
    ahead.close()


def test_without_read_on_the_next_item_is_read_when_it_is_asked_for() -> None:
    started: list[int] = []
    ahead: ReadAhead[int] = ReadAhead(1, 30)
    items = ahead.start([Source(count(), started)])
    assert list(islice(items, 3)) == [0, 1, 2]
    assert started == [0, 1, 2]
    ahead.close()


def test_threads_read_at_the_same_time() -> None:
    together = threading.Barrier(3, timeout=30)

    def source(share: int) -> Iterator[int]:
        together.wait()  # passes only if all three threads are inside a read
        yield share

    ahead: ReadAhead[int] = ReadAhead(3, 30)
    assert list(ahead.start([source(share) for share in range(3)])) == [0, 1, 2]
    ahead.close()


def test_an_error_arrives_in_the_place_of_its_item() -> None:
    def failing() -> Iterator[int]:
        yield 1
        yield 3
        raise DataError("item 5 is damaged")

    ahead: ReadAhead[int] = ReadAhead(4, 30)
    items = ahead.start([iter(range(0, 20, 2)), failing()])
    assert list(islice(items, 5)) == [0, 1, 2, 3, 4]
    with pytest.raises(DataError, match="item 5"):
        next(items)
    with pytest.raises(StopIteration):
        next(items)
    assert list(ahead.start(shares(3, 2))) == [0, 1, 2]
    ahead.close()


def test_an_error_does_not_wait_for_the_other_threads() -> None:
    leave = threading.Semaphore(0)

    def failing() -> Iterator[int]:
        raise DataError("damaged")
        yield 0

    ahead: ReadAhead[int] = ReadAhead(2, 30)
    items = ahead.start([failing(), Source(count(), [], leave)])
    with pytest.raises(DataError, match="damaged"):
        next(items)
    leave.release()
    ahead.close()


@pytest.mark.parametrize("threads", [1, 2])
def test_an_epoch_that_is_left_half_way_leaves_nothing_to_the_next(threads: int) -> None:
    started: list[int] = []
    ahead: ReadAhead[int] = ReadAhead(3, 30)
    for epoch in range(20):
        sources = [Source(count(1000 * epoch + thread, threads), started) for thread in range(threads)]
        items = ahead.start(sources)
        assert list(islice(items, 2)) == [1000 * epoch, 1000 * epoch + 1]
    assert len(readers()) == threads
    ahead.close()
    assert readers() == []
    with pytest.raises(StopIteration):
        next(items)


def test_reads_that_were_not_begun_are_not_waited_for() -> None:
    started: list[int] = []
    leave = threading.Semaphore(0)
    ahead: ReadAhead[int] = ReadAhead(50, 30)
    ahead.start([Source(count(), started, leave)])
    wait_until(started, 1)
    leave.release()
    wait_until(started, 2)
    leave.release()
    leave.release()
    assert list(islice(ahead.start([iter([7])]), 2)) == [7]
    assert len(started) <= 3
    ahead.close()


def test_an_item_that_does_not_come_in_time_is_an_error_and_closing_does_not_hang() -> None:
    leave = threading.Semaphore(0)
    ahead: ReadAhead[int] = ReadAhead(2, 0.05)
    items = ahead.start([Source(count(), [], leave)])
    with pytest.raises(RunFailed, match=r"reader threads for 0\.05 s.*loader\.timeout_s"):
        next(items)
    with pytest.raises(RunFailed, match="does not return from a read"):
        ahead.start([iter([1])])
    began = time.monotonic()
    ahead.close()
    assert time.monotonic() - began < 20
    leave.release(2)  # the thread ends with its read
    end = time.monotonic() + 30
    while readers():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_without_a_timeout_closing_does_not_hang_either() -> None:
    leave = threading.Semaphore(0)
    ahead: ReadAhead[int] = ReadAhead(1, 0)
    ahead.start([Source(count(), [], leave)])
    ahead.close()
    leave.release()
    ahead.close()


def test_an_iterator_that_is_over_is_not_kept() -> None:
    class Kept(Iterator[int]):
        gone = 0

        def __next__(self) -> int:
            raise StopIteration

        def __del__(self) -> None:
            Kept.gone += 1

    ahead: ReadAhead[int] = ReadAhead(1, 30)
    assert list(ahead.start([Kept()])) == []
    assert list(ahead.start([iter([1])])) == [1]
    end = time.monotonic() + 30
    while not Kept.gone:
        assert time.monotonic() < end
        time.sleep(0.001)
    ahead.close()
