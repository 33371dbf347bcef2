"""Access patterns over generic streams: interleave, shuffle pool, batches, lanes.

Each is a plain generator function that knows nothing of files.  The plan of a run applies it to sample numbers,
the DataPipes of :mod:`dlio_torch.data.pipeline.pattern_pipes` apply it to records: both give the same sequence
because both are the same code.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import TypeVar

from dlio_torch.errors import DataError

T = TypeVar("T")


def generator(*key: int) -> random.Random:
    """Random generator of a stream for a key of numbers, whose order matters."""
    return random.Random(":".join(map(str, key)))


def interleaved(sources: Iterable[Iterable[T]], cycle_length: int) -> Iterator[T]:
    """Yields one item of each of ``cycle_length`` sources in round robin.

    The order is that of ``tf.data.Dataset.interleave`` with a block length of 1: a source is begun when the
    cycle comes to a free slot, and the slot of a source that is over stays free until the cycle comes back.

    Args:
        sources: what to read; the next one is asked for when there is a free slot for it.
        cycle_length: sources that are under way at the same time, at least 1.
    """
    coming = iter(sources)
    running_sources: list[Iterator[T] | None] = [None] * cycle_length
    more, under_way, slot = True, 0, 0
    try:
        while more or under_way:
            running = running_sources[slot]
            if running is None:
                source = next(coming, None) if more else None
                if source is None:
                    more = False
                else:
                    running_sources[slot] = iter(source)
                    under_way += 1
                    continue
            else:
                try:
                    item = next(running)
                except StopIteration:
                    running_sources[slot] = None
                    under_way -= 1
                else:
                    yield item
            slot = (slot + 1) % cycle_length
    finally:
        for running in running_sources:
            # Files that are open when the stream is abandoned.
            close = getattr(running, "close", None)
            if close is not None:
                close()


def drawn(passes: Iterable[Iterable[T]], size: int, rng: random.Random) -> Iterator[T]:
    """Yields items drawn uniformly from a pool of ``size``, which is filled before the first item leaves.

    Refilled after each draw, and emptied at the end, as ``tf.data.Dataset.shuffle``.  Over several passes
    it is ``shuffle_and_repeat``: the pool is filled across the border of two passes, and the items of a
    pass leave before those of the next.  A pass without items is the last.

    Args:
        passes: the items, pass by pass; the next pass is asked for when one is used up.
        size: items in the pool, at least 1; with 1 the order stays.
        rng: draws.
    """
    pools: deque[list[T]] = deque()  # items of each pass that has some in the pool, the earliest first
    held = 0
    for items in passes:
        pool: list[T] = []
        pools.append(pool)
        some = False
        for item in items:
            some = True
            pool.append(item)
            held += 1
            if held == size:
                held -= 1
                yield _draw(pools, rng)
        if not some:
            break
    while held:
        held -= 1
        yield _draw(pools, rng)


def _draw(pools: deque[list[T]], rng: random.Random) -> T:
    while not pools[0]:
        pools.popleft()
    pool = pools[0]
    place = int(rng.random() * len(pool))
    pool[place], pool[-1] = pool[-1], pool[place]
    return pool.pop()


def in_batches(start: Callable[[], Iterable[T]], size: int, *, again: bool, keep: bool = False) -> Iterator[list[T]]:
    """Yields batches of a stream; the rest at its end is dropped, kept, or padded from the stream's start.

    Args:
        start: begins the stream; called once, or with ``again`` whenever the stream is over.
        size: items of a batch.
        again: start again at each end, without limit; a stream without items ends all the same.
        keep: the rest at each end is a smaller batch; else, with ``again``, the next items fill it.
    """
    batch: list[T] = []
    some = True
    while some:
        some = False
        for item in start():
            some = again
            batch.append(item)
            if len(batch) == size:
                yield batch
                batch = []
        if keep and batch:
            yield batch
            batch = []


def filled_lanes(
    shots: Iterable[T],
    lanes: int,
    rows: int,
    rows_of: Callable[[T], int],
    patience: int = 0,
    random_steps: int = 0,
    key: Sequence[int] = (),
) -> Iterator[list[tuple[T, int]]]:
    """Yields steps through variable-length samples in lanes, with ``rows`` rows of each lane's sample at a time.

    A lane whose shot is used up takes the next shot, when the step that needs it is asked for; shots that are
    too short from the start are passed over.  A lane ends with the last row of its shot: rows that make no whole
    step are left out at the begin.  In the first ``random_steps`` steps a new shot is cut at a random row before
    that.  (PPPLDeepLearning/plasma-python, plasma/models/loader.py: ``fill_training_buffer`` takes
    ``sig[-sig_len:]``, and ``cut_idx`` rows are cut off while ``num_steps < batch_size``.)

    Args:
        shots: shots in the order of reading; the lanes end with it.
        lanes: shots that are under way at the same time.
        rows: rows that a step takes from each.
        rows_of: rows of a shot.
        patience: shots that may be too short in a row; 0: any number.
        random_steps: steps, from the first one on, in which a new shot is cut at a random row.
        key: numbers that the random rows depend on.

    Yields:
        For each lane its shot and the first of its rows.

    Raises:
        DataError: more shots in a row were too short.
    """
    coming = iter(shots)
    current: list[tuple[T, int]] = []
    left: list[int] = []
    rng = generator(*key)
    for step in count():
        for lane in range(lanes):
            short = 0
            while lane == len(current) or left[lane] < rows:
                try:
                    shot = next(coming)
                except StopIteration:
                    return
                if lane == len(current):
                    current.append((shot, 0))
                    left.append(0)
                length = left[lane] = rows_of(shot)
                if length >= rows and step < random_steps:
                    left[lane] -= int(rng.random() * (length - rows + 1))
                left[lane] = left[lane] // rows * rows
                current[lane] = shot, length - left[lane]
                short += not left[lane]
                if patience and short > patience:
                    raise DataError(
                        f"{short} consecutive samples have fewer rows than the {rows} rows of a lane",
                        hint="lower access.lane_rows",
                    )
        yield list(current)
        for lane, (shot, first) in enumerate(current):
            current[lane] = shot, first + rows
            left[lane] -= rows
