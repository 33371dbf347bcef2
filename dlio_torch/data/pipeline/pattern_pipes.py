"""DataPipes of access patterns: interleave, shuffle pool, lanes.

The orders are those of the functions in :mod:`dlio_torch.data.order.access_patterns`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat as forever
from typing import Any, TypeVar

from torch.utils.data import IterDataPipe, functional_datapipe

from dlio_torch.data.order.access_patterns import drawn, filled_lanes, generator, interleaved
from dlio_torch.data.pipeline.parallel_interleave import interleaved_in_parallel

T = TypeVar("T")
Row = tuple[int, Mapping[str, Any]]  # number of a sample, and its arrays
Piece = tuple[int, dict[str, Any]]  # the same of the rows that a step takes

# Torch wraps an __iter__ that is a generator function in one that rewrites the messages of errors; these
# return generators instead.


@functional_datapipe("interleave_records")
class Interleave(IterDataPipe[T]):
    """DataPipe that yields one record of each of ``cycle_length`` sources in round robin; see :func:`interleaved`.

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
    """DataPipe that draws items from a shuffle pool of ``size``; see :func:`drawn`.

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
        repeat: go on with the source's items of the next pass, without limit.
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
class FillLanes(IterDataPipe[list[Piece]]):
    """DataPipe that cuts variable-length samples into steps of ``rows`` rows in lanes; see :func:`filled_lanes`.

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

    def __iter__(self) -> Iterator[list[Piece]]:
        return self._run()

    def _run(self) -> Iterator[list[Piece]]:
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
