"""Access patterns over streams of anything: interleave, shuffle pool, lanes.

Each is a plain generator function and a DataPipe over it.  The functions know nothing of files, so the
plan of a run applies them to sample numbers and the pipes apply them to what is read: both give the same
sequence because both are the same code.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from itertools import repeat as forever
from typing import Any, TypeVar

from torch.utils.data import IterDataPipe, functional_datapipe

from dlio_torch.data.pipeline.parallel_interleave import interleaved_in_parallel
from dlio_torch.errors import DataError

T = TypeVar("T")
Row = tuple[int, Mapping[str, Any]]  # number of a sample, and its arrays


def generator(*key: int) -> random.Random:
    """The generator of a stream; numbers in another order are another key."""
    return random.Random(":".join(map(str, key)))


def interleaved(sources: Iterable[Iterable[T]], cycle_length: int) -> Iterator[T]:
    """One item of each of ``cycle_length`` sources in turn.

    The order is that of ``tf.data.Dataset.interleave`` with a block length of 1: a source is begun when the
    cycle comes to a free place, and the place of a source that is over stays free until the cycle comes back.

    Args:
        sources: what to read; the next one is asked for when there is a free place for it.
        cycle_length: sources that are under way at the same time, at least 1.
    """
    coming = iter(sources)
    places: list[Iterator[T] | None] = [None] * cycle_length
    more, under_way, place = True, 0, 0
    try:
        while more or under_way:
            running = places[place]
            if running is None:
                source = next(coming, None) if more else None
                if source is None:
                    more = False
                else:
                    places[place] = iter(source)
                    under_way += 1
                    continue
            else:
                try:
                    item = next(running)
                except StopIteration:
                    places[place] = None
                    under_way -= 1
                else:
                    yield item
            place = (place + 1) % cycle_length
    finally:
        for running in places:
            # Files that are open when the stream is abandoned.
            close = getattr(running, "close", None)
            if close is not None:
                close()


def drawn(passes: Iterable[Iterable[T]], size: int, rng: random.Random) -> Iterator[T]:
    """Items drawn uniformly from a pool of ``size`` that is filled before the first one leaves.

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


def in_batches(start: Callable[[], Iterable[T]], size: int, *, again: bool) -> Iterator[list[T]]:
    """Full batches of a stream; the rest at its end is left out, or goes on with the stream's own start.

    Args:
        start: begins the stream; called once, or with ``again`` whenever the stream is over.
        size: items of a batch.
        again: go on at the start, for ever; a stream without items ends all the same.
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


def filled_lanes(
    shots: Iterable[T],
    lanes: int,
    rows: int,
    rows_of: Callable[[T], int],
    patience: int = 0,
    random_steps: int = 0,
    key: Sequence[int] = (),
) -> Iterator[list[tuple[T, int]]]:
    """Steps through variable-length shots in lanes, ``rows`` rows of each lane's shot at a time.

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
                        f"{short} samples in a row have fewer than {rows} rows", hint="lower access.lane_rows"
                    )
        yield list(current)
        for lane, (shot, first) in enumerate(current):
            current[lane] = shot, first + rows
            left[lane] -= rows


# Torch wraps an __iter__ that is a generator function in one that rewrites the messages of errors; these
# return generators instead.


@functional_datapipe("interleave_records")
class Interleave(IterDataPipe[T]):
    """One record of each of ``cycle_length`` sources in turn; see :func:`interleaved`.

    >>> from torch.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper([[1, 2, 3], [10], [100, 200]]).interleave_records(2))
    [1, 10, 2, 3, 100, 200]

    Args:
        source: the sources.
        cycle_length: sources in turn.
        prefetch: sources that are begun before their turn; needs ``buffer``.
        buffer: records that a thread of each source keeps ready; 0: no threads.  See
            :func:`~dlio_torch.data.pipeline.parallel_interleave.interleaved_in_parallel`.
    """

    def __init__(
        self, source: IterDataPipe[Iterable[T]], cycle_length: int, prefetch: int = 0, buffer: int = 0
    ) -> None:
        super().__init__()
        self._source = source
        self._cycle_length = cycle_length
        self._prefetch = prefetch
        self._buffer = buffer

    def __iter__(self) -> Iterator[T]:
        if self._buffer:
            return interleaved_in_parallel(self._source, self._cycle_length, self._prefetch, self._buffer)
        return interleaved(self._source, self._cycle_length)


@functional_datapipe("shuffle_pool")
class ShufflePool(IterDataPipe[T]):
    """Items drawn from a pool of ``size``, filled before the first one leaves; see :func:`drawn`.

    >>> from torch.utils.data.datapipes.iter import IterableWrapper
    >>> sorted(IterableWrapper(range(5)).shuffle_pool(3, seed=1))
    [0, 1, 2, 3, 4]
    >>> from itertools import islice
    >>> sorted(islice(IterableWrapper("ab").shuffle_pool(9, repeat=True), 4))
    ['a', 'a', 'b', 'b']

    Args:
        source: the items; with ``repeat`` it is iterated over again and again.
        size: items in the pool.
        seed: number, or numbers, that the draws depend on; nothing else changes them.
        repeat: go on with the source's items of the next pass, for ever.
    """

    def __init__(
        self, source: IterDataPipe[T], size: int, *, seed: int | Sequence[int] = 0, repeat: bool = False
    ) -> None:
        super().__init__()
        self._source = source
        self._size = max(1, size)
        self._key = (seed,) if isinstance(seed, int) else tuple(seed)
        self._repeat = repeat

    def __iter__(self) -> Iterator[T]:
        passes = forever(self._source) if self._repeat else (self._source,)
        return drawn(passes, self._size, generator(*self._key))


@functional_datapipe("fill_lanes")
class FillLanes(IterDataPipe[list[Row]]):
    """Cuts variable-length samples into steps of ``rows`` rows, in ``lanes`` lanes; see :func:`filled_lanes`.

    >>> from torch.utils.data.datapipes.iter import IterableWrapper
    >>> shots = IterableWrapper([(7, {"x": [1, 2, 3, 4]}), (8, {"x": [5, 6]}), (9, {"x": [7, 8, 9]})])
    >>> for step in shots.fill_lanes(lanes=2, rows=2, cut=["x"]):
    ...     print(step)
    [(7, {'x': [1, 2]}), (8, {'x': [5, 6]})]
    [(7, {'x': [3, 4]}), (9, {'x': [8, 9]})]

    Args:
        source: samples, each its number and its arrays.
        lanes: samples that are under way at the same time.
        rows: rows of a step in each lane.
        cut: names of the arrays that are cut, of which the shortest counts; others are given whole.
        patience: samples that may be too short in a row, before :class:`DataError`; 0: any number.
        random_steps: steps, from the first one on, in which a new sample is cut at a random row.
        key: numbers that the random rows depend on.
    """

    def __init__(
        self,
        source: IterDataPipe[Row],
        lanes: int,
        rows: int,
        cut: Sequence[str],
        patience: int = 0,
        random_steps: int = 0,
        key: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self._source = source
        self._lanes = lanes
        self._rows = rows
        self._cut = tuple(cut)
        self._patience = patience
        self._random_steps = random_steps
        self._random_key = tuple(key)

    def __iter__(self) -> Iterator[list[Row]]:
        return self._run()

    def _run(self) -> Iterator[list[Row]]:
        steps = filled_lanes(
            self._source, self._lanes, self._rows, self._length, self._patience, self._random_steps, self._random_key
        )
        for step in steps:
            yield [(number, self._piece(arrays, first)) for (number, arrays), first in step]

    def _length(self, row: Row) -> int:
        return min(len(row[1][name]) for name in self._cut)

    def _piece(self, arrays: Mapping[str, Any], first: int) -> dict[str, Any]:
        end = first + self._rows
        return {name: array[first:end] if name in self._cut else array for name, array in arrays.items()}
