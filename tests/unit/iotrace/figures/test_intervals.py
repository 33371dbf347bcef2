"""Sets of intervals, against sets of their whole nanoseconds."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from io_events import examples

from dlio_torch.iotrace.figures import intervals
from dlio_torch.iotrace.figures.intervals import Intervals

PAIRS = st.lists(st.tuples(st.integers(-20, 40), st.integers(-3, 15)).map(lambda pair: (pair[0], pair[0] + pair[1])))


def arrays(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    both = np.array(pairs, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def points(pairs: list[tuple[int, int]]) -> set[int]:
    return {point for start, end in pairs for point in range(start, end)}


def content(found: Intervals) -> set[int]:
    """The points of a set, after a check that it is sorted, without overlaps, touching or empty intervals."""
    start, end = found
    assert (end > start).all()
    assert (start[1:] > end[:-1]).all()
    return points(list(zip(start.tolist(), end.tolist(), strict=True)))


@examples(PAIRS, PAIRS)
def test_sets_of_points(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    one, two = intervals.union(*arrays(a)), intervals.union(*arrays(b))
    assert content(one) == points(a)
    assert intervals.length(one) == len(points(a))
    assert content(intervals.intersection(one, two)) == points(a) & points(b)
    assert content(intervals.difference(one, two)) == points(a) - points(b)


@examples(PAIRS, st.integers(-25, 50), st.integers(0, 30))
def test_complement(a: list[tuple[int, int]], low: int, size: int) -> None:
    found = intervals.complement(intervals.union(*arrays(a)), low, low + size)
    assert content(found) == set(range(low, low + size)) - points(a)


@examples(PAIRS, PAIRS)
def test_covered(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    found = intervals.covered(intervals.union(*arrays(a)), *arrays(b))
    assert found.tolist() == [len(points(a) & points([one])) for one in b]


@examples(st.lists(PAIRS.filter(len)), st.sampled_from([2**62, 1]))
def test_lengths_of_groups(groups: list[list[tuple[int, int]]], at_once: int) -> None:
    ordered = [sorted(pairs, key=lambda pair: pair[0]) for pairs in groups]
    first = np.cumsum([0, *(len(pairs) for pairs in ordered)])[:-1]
    start, end = arrays([pair for pairs in ordered for pair in pairs])
    # Times that differ by this much leave room for one group, or a few, at a time.
    factor = 1 if at_once > 1 else 2**54
    found = intervals.grouped_lengths(start * factor, end * factor, first)
    assert found.tolist() == [len(points(pairs)) * factor for pairs in groups]


def test_nothing() -> None:
    empty = np.zeros(0, np.int64)
    assert intervals.length(intervals.union(empty, empty)) == 0
    assert intervals.grouped_lengths(empty, empty, empty).size == 0
    assert content(intervals.difference(intervals.EMPTY, intervals.EMPTY)) == set()
