"""Sets of half-open time intervals as sorted NumPy arrays: unions, intersections, lengths.

A set is a pair of int64 arrays ``(start, end)`` of one length, in nanoseconds: sorted, without overlaps and without
empty intervals, as :func:`union` returns it.  All functions expect such sets, except :func:`union` and
:func:`grouped_lengths`, which take any intervals.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Intervals = tuple[Ints, Ints]

EMPTY: Intervals = (np.zeros(0, np.int64), np.zeros(0, np.int64))

_LARGEST = 2**62


def union(start: NDArray[Any], end: NDArray[Any]) -> Intervals:
    """Union of any intervals; adjacent intervals are joined, empty ones are removed."""
    start, end = np.asarray(start, np.int64), np.asarray(end, np.int64)
    keep = end > start
    if not keep.all():
        start, end = start[keep], end[keep]
    if not start.size:
        return EMPTY
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start)
        start, end = start[order], end[order]
    reached = np.maximum.accumulate(end)
    first = np.concatenate(([True], start[1:] > reached[:-1]))
    last = np.concatenate((first[1:], [True]))
    return start[first], reached[last]


def length(intervals: Intervals) -> int:
    """Sum of the lengths of the intervals, ns."""
    start, end = intervals
    return int((end - start).sum())


def intersection(a: Intervals, b: Intervals) -> Intervals:
    """Intersection of two interval sets."""
    if not a[0].size or not b[0].size:
        return EMPTY
    # Each interval of a meets a contiguous range of b: from the first that ends behind its start to the
    # last that starts before its end.
    low = np.searchsorted(b[1], a[0], side="right")
    high = np.searchsorted(b[0], a[1], side="left")
    counts = np.maximum(high - low, 0)
    which = np.repeat(np.arange(a[0].size), counts)
    place = np.arange(which.size) - np.repeat(np.cumsum(counts) - counts, counts) + low[which]
    return np.maximum(a[0][which], b[0][place]), np.minimum(a[1][which], b[1][place])


def difference(a: Intervals, b: Intervals) -> Intervals:
    """The parts of the intervals ``a`` that are not in ``b``."""
    if not a[0].size:
        return EMPTY
    low, high = int(min(a[0][0], b[0][0] if b[0].size else a[0][0])), int(max(a[1][-1], b[1][-1] if b[1].size else 0))
    return intersection(a, complement(b, low, high))


def complement(a: Intervals, low: int, high: int) -> Intervals:
    """The part of ``[low, high)`` that is not in ``a``."""
    inside = intersection(a, union(np.array([low]), np.array([high])))
    start = np.concatenate(([low], inside[1]))
    end = np.concatenate((inside[0], [high]))
    keep = end > start
    return start[keep], end[keep]


def covered(a: Intervals, start: NDArray[Any], end: NDArray[Any]) -> Ints:
    """Nanoseconds of each interval ``[start, end)`` that lie in ``a``."""
    start, end = np.asarray(start, np.int64), np.asarray(end, np.int64)
    lengths: Ints = np.maximum(_below(a, end) - _below(a, start), 0)
    return lengths


def grouped_lengths(start: NDArray[Any], end: NDArray[Any], first: NDArray[Any]) -> Ints:
    """Length of the union of the intervals of each group, ns.

    Args:
        start: begins, any intervals, sorted by group and within a group by begin.
        end: their ends; an interval that ends before it begins counts as empty.
        first: the place of each group's first interval, ascending from 0; no group is empty.
    """
    start, end, first = np.asarray(start, np.int64), np.asarray(end, np.int64), np.asarray(first, np.int64)
    lengths = np.zeros(first.size, np.int64)
    if not first.size:
        return lengths
    low = min(int(start.min()), int(end.min()))
    span = max(int(start.max()), int(end.max())) - low + 1
    # Each group is moved behind the one before it, so that one running maximum serves all of them; as
    # many groups at a time as int64 holds.
    at_once = max(_LARGEST // span, 1)
    last = np.append(first[1:], start.size)
    for begin in range(0, first.size, at_once):
        some = slice(begin, min(begin + at_once, first.size))
        rows = slice(int(first[some.start]), int(last[some.stop - 1]))
        shift = np.repeat(np.arange(some.stop - begin) * span - low, last[some] - first[some])
        starts = start[rows] + shift
        reached = np.maximum.accumulate(end[rows] + shift)
        shift += end[rows]  # from here on the shifted ends
        np.maximum(starts[1:], reached[:-1], out=starts[1:])
        shift -= starts
        lengths[some] = np.add.reduceat(np.maximum(shift, 0, out=shift), first[some] - rows.start)
    return lengths


def _below(a: Intervals, times: Ints) -> Ints:
    """Length of the part of ``a`` before each time, ns."""
    sums = np.concatenate(([0], np.cumsum(a[1] - a[0])))
    index = np.searchsorted(a[0], times, side="right")
    inside = np.zeros(times.shape, np.int64)
    some = index > 0
    inside[some] = np.minimum(times[some], a[1][index[some] - 1]) - a[0][index[some] - 1]
    result: Ints = np.where(some, sums[np.maximum(index - 1, 0)] + inside, 0)
    return result
