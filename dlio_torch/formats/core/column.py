"""Generator of one field of consecutive samples: threads fill pieces of the memory that is written."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_torch.formats.core import payload
from dlio_torch.formats.core.batch import ArraySpec
from dlio_torch.formats.core.ordered_map import in_order

PIECE_BYTES = 1 << 20
"""Bytes of content that one thread generates at a time; a multiple of the alignment of :func:`payload.fill`."""

_AHEAD_BYTES = 8 << 20  # made before the first of it is written

Octets = npt.NDArray[np.uint8]


class Piece(NamedTuple):
    """Contiguous range of a field's elements.

    Attributes:
        first: its first sample.
        sizes: elements of each of its samples, int64.
        start: first element of the sample; other than 0 where a large sample is cut, and is the only one.
    """

    first: int
    sizes: npt.NDArray[np.int64]
    start: int


@dataclass(frozen=True)
class Column:
    """The generator of the content of one field.

    Attributes:
        spec: the array.
        seed: of the data set.
        stream: of the field.
        rows: rows of each of ``count`` samples from ``first`` on, int64; of a fixed-length field not asked.
        mean_rows: their mean; 1 for a fixed-length field.
        compressibility: share of the content that is zero.
    """

    spec: ArraySpec
    seed: int
    stream: int
    rows: Callable[[int, int], npt.NDArray[np.int64]]
    mean_rows: float = 1.0
    compressibility: float = 0.0

    @property
    def mean_bytes(self) -> float:
        """Mean bytes of a sample."""
        return self._row * self.spec.dtype.itemsize * self.mean_rows

    @property
    def _row(self) -> int:
        return math.prod(self.spec.shape)

    def content(self, first: int, count: int) -> list[npt.NDArray[Any]]:
        """The field's content in ``count`` samples from ``first`` on, as views of one memory block."""
        sizes = self._sizes(first, count)
        ends = np.cumsum(sizes)
        flat = self.elements(first, count)
        shape = (-1, *self.spec.shape) if self.spec.variable else self.spec.shape
        return [flat[end - size : end].reshape(shape) for end, size in zip(ends.tolist(), sizes.tolist(), strict=True)]

    def elements(self, first: int, count: int) -> npt.NDArray[Any]:
        """The elements of ``count`` samples from ``first`` on in one array of shape ``(elements,)``."""
        return self._values(Piece(first, self._sizes(first, count), 0))

    def blocks(
        self, first: int, count: int, pool: Executor, block_bytes: int = PIECE_BYTES
    ) -> Iterator[npt.NDArray[Any]]:
        """The field's content in ``count`` samples from ``first`` on, with samples along the first axis.

        Yields:
            The rows of some consecutive samples, about ``block_bytes`` or one sample; made by the threads of ``pool``.
        """

        def shaped(piece: Piece) -> npt.NDArray[Any]:
            return self._values(piece).reshape(-1, *self.spec.shape)

        return in_order(pool, shaped, self._groups(first, count, block_bytes), max(3, 2 * _AHEAD_BYTES // block_bytes))

    def pieces(self, first: int, count: int, pool: Executor) -> Iterator[Octets]:
        """Yields the field's bytes in ``count`` samples from ``first`` on, about 1 MiB at a time.

        Yields:
            uint8; the memory is used again when the next piece is asked for.
        """
        spare: deque[npt.NDArray[Any]] = deque()
        room = PIECE_BYTES // self.spec.dtype.itemsize

        def filled(piece: Piece) -> tuple[npt.NDArray[Any], int]:
            size = int(piece.sizes.sum())
            try:
                memory = spare.pop()
            except IndexError:
                memory = np.empty(max(size, room), self.spec.dtype)
            if len(memory) < size:
                memory = np.empty(size, self.spec.dtype)
            self.make(piece, memory[:size])
            return memory, size

        for memory, size in in_order(pool, filled, self._cut(first, count), _AHEAD_BYTES // PIECE_BYTES):
            yield memory[:size].view(np.uint8)
            spare.append(memory)

    def make(self, piece: Piece, into: npt.NDArray[Any]) -> None:
        """Fill ``into`` with the elements of a piece."""
        payload.fill(into, self.seed, self.stream, piece.first, piece.sizes, self.compressibility, piece.start)

    def _values(self, piece: Piece) -> npt.NDArray[Any]:
        flat = np.empty(int(piece.sizes.sum()), self.spec.dtype)
        self.make(piece, flat)
        return flat

    def _sizes(self, first: int, count: int) -> npt.NDArray[np.int64]:
        if not self.spec.variable:
            return np.full(count, self._row, np.int64)
        return self.rows(first, count) * self._row

    def _groups(self, first: int, count: int, group_bytes: int = PIECE_BYTES) -> Iterator[Piece]:
        """Groups consecutive samples into about ``group_bytes``; each group has at least one sample."""
        step = max(1, int(group_bytes // max(1.0, self.mean_bytes)))
        for low in range(first, first + count, step):
            yield Piece(low, self._sizes(low, min(step, first + count - low)), 0)

    def _cut(self, first: int, count: int) -> Iterator[Piece]:
        """Same as ``_groups``, but splits a large sample into several pieces."""
        room = PIECE_BYTES // self.spec.dtype.itemsize
        for group in self._groups(first, count):
            size = int(group.sizes[0])
            if len(group.sizes) > 1 or size <= room:
                yield group
                continue
            for start in range(0, size, room):
                yield Piece(group.first, np.array([min(room, size - start)], np.int64), start)
