"""Samples of an array whose rows lie in several segments of a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dlio_torch.formats.core.layout import ArrayLayout, Extents, Ints
from dlio_torch.formats.core.layout_rows import RowExtents, counted, within


class Segmented(ArrayLayout):
    """Layout of one array whose rows lie in several segments of a file.

    Args:
        path: the file.
        name: of the array, for messages.
        offsets: first byte of each segment.
        rows: rows of each segment.
        size: bytes of a row.
        extents: first row and number of rows of each sample; ``None``: a sample is one row.
    """

    def __init__(
        self, path: Path, name: str, offsets: Sequence[int], rows: Sequence[int], size: int, extents: RowExtents | None
    ) -> None:
        self.path = path
        self._name = name
        self._offsets = np.array(offsets, np.int64)
        self._ends = np.cumsum([0, *rows], dtype=np.int64)  # where the rows of each segment begin, and the end
        self._size = size
        self._extents = extents

    def sizes(self, rows: Ints) -> Ints:
        return self._rows(rows)[1] * self._size

    def _rows(self, samples: Ints) -> RowExtents:
        extents = self._extents
        if extents is None:
            extents = samples, np.ones(len(samples), np.int64)
            samples = np.arange(len(samples))
        return within(extents, samples, int(self._ends[-1]), self._name, self.path)

    def plan(self, rows: Ints, into: Ints) -> Extents:
        first, count = self._rows(rows)
        low = np.searchsorted(self._ends, first, side="right") - 1
        high = np.searchsorted(self._ends, first + count, side="left")
        touched = np.where(count > 0, high - low, 0)
        segment = np.repeat(low, touched) + counted(touched)
        first, end = np.repeat(first, touched), np.repeat(first + count, touched)
        begin = np.maximum(self._ends[segment], first)
        length = np.minimum(self._ends[segment + 1], end) - begin
        offsets = self._offsets[segment] + (begin - self._ends[segment]) * self._size
        return Extents(offsets, length * self._size, np.repeat(into, touched) + (begin - first) * self._size)
