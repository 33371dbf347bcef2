"""Contiguous parts of reads: the bytes read before the reader jumps elsewhere (samples in order, or shuffled).

The accesses of a stream (:mod:`dlio_torch.iotrace.figures.access_order`) are cut at *far* jumps, those of more than
:data:`NEAR` bytes.  A piece that begins near the end of one of the last :data:`RECENT` pieces of its stream
continues it, since formats take turns between places (labels, images, index) while they read samples in order.
Pieces that continue each other make one contiguous part (a *stretch*, in the names of components); its length is the
bytes moved.  A reader of consecutive samples returns to its last position and makes long parts.  A reader of shuffled
samples makes one part for each part of a sample.  Visits to an index depend on the library's cache; they hardly count
when lengths are weighted by bytes.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dlio_torch.iotrace.figures.row_groups import group

Ints = NDArray[np.int64]

NEAR = 1 << 20
"""Largest jump in bytes that counts as near."""

RECENT = 8
"""Number of earlier parts that a new part may continue; with more, small files would match by chance."""


def contiguous_lengths(accesses: pd.DataFrame, file: Ints, opening: Ints) -> Ints:
    """Lengths of the contiguous parts, bytes; empty parts are left out.

    Args:
        accesses: reads, or writes, that did not fail, with known offsets; in any order.
        file: number of the file of each access.
        opening: number of the thread's opening of the file that each belongs to; an open ends a part.
    """
    if not len(accesses):
        return np.zeros(0, np.int64)
    streams = group([accesses[name].to_numpy() for name in ("rank", "pid", "tid")] + [file, opening])
    order, first = streams.sort(accesses["start_ns"].to_numpy())
    offset, size = (accesses[name].to_numpy()[order] for name in ("offset", "bytes"))
    end = offset + size
    cut = np.ones(offset.size, bool)
    cut[1:] = np.abs(offset[1:] - end[:-1]) > NEAR
    cut[first] = True
    begins = np.flatnonzero(cut)
    stream = np.searchsorted(first, begins, side="right")
    starts, ends = offset[begins], end[np.append(begins[1:], offset.size) - 1]
    moved = np.add.reduceat(size, begins, dtype=np.int64)
    continued = np.arange(begins.size)
    # The nearest one in time wins; the one just before is far away by definition.
    for back in range(min(RECENT, begins.size - 1), 1, -1):
        near = (np.abs(starts[back:] - ends[:-back]) <= NEAR) & (stream[back:] == stream[:-back])
        continued[back:][near] = np.flatnonzero(near)
    while True:
        above = continued[continued]
        if np.array_equal(above, continued):
            break
        continued = above
    lengths = np.zeros(begins.size, np.int64)
    np.add.at(lengths, continued, moved)
    positive: Ints = lengths[lengths > 0]
    return positive


def weighted_ks(a: Ints, b: Ints) -> float:
    """Kolmogorov-Smirnov distance of two nonempty samples of positive values, each value weighted by itself."""
    values = np.union1d(a, b)
    below = []
    for sample in (np.sort(a), np.sort(b)):
        sums = np.append(0, np.cumsum(sample, dtype=float))
        below.append(sums[np.searchsorted(sample, values, side="right")] / sums[-1])
    return float(np.abs(below[0] - below[1]).max())


def weighted_median(values: Ints) -> int:
    """The value up to which half of the sum of the positive values lies; the sample must not be empty."""
    values = np.sort(values)
    sums = np.cumsum(values, dtype=float)
    return int(values[np.searchsorted(sums, sums[-1] / 2)])


def effective(values: Ints) -> int:
    """Number of equal weights with the same effect as these: ``(sum w)^2 / sum w^2`` (Kish 1965), rounded."""
    weights = values.astype(float)
    return round(float(weights.sum() ** 2 / (weights**2).sum()))
