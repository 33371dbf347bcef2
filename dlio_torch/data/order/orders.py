"""Orders: functions from the step to the sample numbers of a share.

A share is the range ``[first, first + count)`` of sample indices.  See :mod:`dlio_torch.data.order.sampler`
for what each order means and who has which share.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dlio_torch.data.order.permutation import Permutation

Indices = NDArray[np.int64]

LARGE = 1 << 24
"""Number of samples from which on a permutation is not held in memory as a whole (below: up to 64 MiB)."""

_AT_ONCE = 1 << 13  # samples that are computed together


class BatchProducer(Protocol):
    """Producer of the sample indices of each step (from 0) of one epoch on one rank."""

    def __call__(self, step: int) -> Indices:
        """Indices of ``step``; int64 of ``(samples of the rank's batch,)``."""


class Positions:
    """Positions that a rank takes in each step from an order of ``count`` samples, which repeats at its end.

    Args:
        size: samples of a full batch of one rank.
        count: samples of the order.
        ranks: ranks that take consecutive parts of each step.
        rank: number of the part.
        end: positions that all ranks take in an epoch, after which the last batch ends early, for all ranks alike;
            ``None``: all batches are full.
    """

    def __init__(self, size: int, count: int, *, ranks: int = 1, rank: int = 0, end: int | None = None) -> None:
        self.size, self.count = size, count
        self.span = size * ranks
        self._ranks, self._rank, self._end = ranks, rank, end

    def size_of(self, step: int) -> int:
        """Number of samples of ``step``."""
        if self._end is None:
            return self.size
        return min(self.size, -(-(self._end - step * self.span) // self._ranks))

    def begin(self, step: int) -> int:
        """First position of ``step``."""
        return step * self.span + self._rank * self.size_of(step)

    def __call__(self, step: int) -> Indices:
        """Positions of ``step``; int64 of ``(samples of the step,)``."""
        begin = self.begin(step)
        end = begin + self.size_of(step)
        positions = np.arange(begin, end, dtype=np.int64)
        return positions if end <= self.count else positions % self.count

    def first_steps(self, steps: int) -> Indices:
        """Positions of the first ``steps`` steps; int64 of ``(samples of these steps,)``."""
        begins = np.arange(steps - 1, dtype=np.int64)[:, None] * self.span + self.begin(0)
        full = (begins + np.arange(self.size)) % self.count
        return np.concatenate([full.reshape(-1), self(steps - 1)])


class StridedOrder:
    """Order that takes every ``stride``-th sample, then repeats from the next start; ``stride=1`` is sequential."""

    def __init__(self, first: int, positions: Positions, stride: int) -> None:
        self.first, self.positions, self.stride = first, positions, stride

    def __call__(self, step: int) -> Indices:
        """Indices of ``step``; int64 of ``(samples of the step,)``."""
        position = self.positions(step)
        if self.stride == 1:
            return position + self.first
        # Pass k holds the offsets k, k + stride, ...: the first `longer` passes hold one more.
        short, longer = divmod(self.positions.count, self.stride)
        border = longer * (short + 1)
        early = position < border
        late = position - border
        each = max(short, 1)
        passes = np.where(early, position // (short + 1), longer + late // each)
        place = np.where(early, position % (short + 1), late % each)
        indices: Indices = passes + place * self.stride + self.first
        return indices


class Shuffled:
    """Random permutation of a share, of which only the part that this rank reads is kept in memory."""

    def __init__(self, key: list[int], first: int, positions: Positions, steps: int) -> None:
        small = first + positions.count <= np.iinfo(np.int32).max
        count = positions.count
        order: NDArray[np.int32] | Indices = np.arange(count, dtype=np.int32) if small else np.arange(count)
        np.random.default_rng(key).shuffle(order)  # as permutation() does, without the memory of another array
        read = (steps - 1) * positions.size + positions.size_of(steps - 1)
        if positions.span == positions.size and read <= positions.count:
            order = order[:read].copy() if read < positions.count else order  # a view would keep all of it
        else:
            order = order[positions.first_steps(steps)]
        order += first
        self.order = order
        self.size = positions.size

    def __call__(self, step: int) -> Indices:
        """Indices of ``step``; int64 of ``(samples of the step,)``."""
        return self.order[step * self.size : (step + 1) * self.size].astype(np.int64)


class Computed:
    """Random permutation of a large share, computed for a few steps at a time instead of kept in memory."""

    def __init__(self, key: list[int], first: int, positions: Positions, steps: int) -> None:
        self.permutation = Permutation(key, positions.count)
        self.first, self.positions, self.steps = first, positions, steps
        self.at_once = max(1, _AT_ONCE // positions.size)
        self.permuted: tuple[int, Indices] = -1, np.zeros(0, np.int64)

    def __call__(self, step: int) -> Indices:
        """Indices of ``step``; int64 of ``(samples of the step,)``."""
        number, within = divmod(step, self.at_once)
        permuted, order = self.permuted
        if permuted != number:
            steps = range(number * self.at_once, min(self.steps, (number + 1) * self.at_once))
            order = self.permutation(np.concatenate([self.positions(each) for each in steps])) + self.first
            self.permuted = number, order  # in one piece: threads may ask at once
        size = self.positions.size
        indices: Indices = order[within * size : (within + 1) * size].copy()
        return indices


def shuffled(key: list[int], first: int, positions: Positions, steps: int) -> BatchProducer:
    """Random permutation of a share: NumPy's, or a computed permutation for more than :data:`LARGE` samples."""
    return (Computed if positions.count > LARGE else Shuffled)(key, first, positions, steps)


def permuted(key: list[int], count: int, part: slice) -> Indices | NDArray[np.int32]:
    """A contiguous part of the permutation of ``range(count)`` that :func:`shuffled` gives."""
    if count > LARGE:
        return Permutation(key, count)(np.arange(*part.indices(count), dtype=np.int64))
    order = np.arange(count, dtype=np.int32)
    np.random.default_rng(key).shuffle(order)
    part_order: NDArray[np.int32] = order[part].copy()
    return part_order


def pieces(key: list[int], count: int) -> Iterator[Indices | NDArray[np.int32]]:
    """Yields the permutation of ``range(count)`` that :func:`shuffled` gives, some thousand values at a time."""
    whole = permuted(key, count, slice(None)) if count <= LARGE else None
    permutation = Permutation(key, count)
    for first in range(0, count, _AT_ONCE):
        end = min(count, first + _AT_ONCE)
        yield whole[first:end] if whole is not None else permutation(np.arange(first, end))


class RandomBlocks:
    """Order with one random start in each step, followed by consecutive samples."""

    def __init__(self, key: list[int], first: int, positions: Positions, steps: int) -> None:
        # All at once: a generator for each step would cost more than the rest of the step.
        self.begins = np.random.default_rng(key).integers(positions.count - positions.span + 1, size=steps)
        self.begins += first + positions.begin(0)
        self.size = positions.size

    def __call__(self, step: int) -> Indices:
        """Indices of ``step``; int64 of ``(size,)``."""
        begin = int(self.begins[step])
        return np.arange(begin, begin + self.size, dtype=np.int64)
