"""Layout of larcv3 files: a sample consists of table rows and of the voxel extents that these rows point to."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt

from dlio_torch.formats.core.layout import ArrayLayout, Chunks, Copies, Extents, Ints
from dlio_torch.formats.core.layout_rows import RowExtents
from dlio_torch.formats.hdf5.layout import array_layout


def row_extents(table: npt.NDArray[np.void]) -> RowExtents:
    """Columns ``first`` and ``N`` of a table as int64; values that overflow in a damaged file become negative."""
    return table["first"].astype(np.int64), table["N"].astype(np.int64)


class GatheredRows(ArrayLayout):
    """Layout of samples that consist of several row extents each, which are adjacent in memory.

    Args:
        array: open; holds the rows.
        path: its file.
        samples: first extent and number of extents of each sample.
        extents: first row and number of rows of each extent.
        table: layout of the table that ``extents`` was read from: it knows which of its rows there are.
    """

    def __init__(
        self, array: h5py.Dataset, path: Path, samples: RowExtents, extents: RowExtents, table: ArrayLayout
    ) -> None:
        self.path = path
        self._samples = samples
        self._rows = array_layout(array, path, extents)
        self._table = table

    def sizes(self, rows: Ints) -> Ints:
        return self._extents_of(rows)[1]

    def plan(self, rows: Ints, into: Ints) -> Extents | Chunks | Copies:
        numbers, _, each, starts = self._extents_of(rows)
        return self._rows.plan(numbers, np.repeat(into, each) + starts)

    def _extents_of(self, rows: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Indices of all extents; bytes and extents of each sample; first byte of each extent within its sample."""
        self._table.sizes(rows)  # raises unless the table has them
        first, count = self._samples[0][rows], self._samples[1][rows]
        ends = np.cumsum(count)
        within = np.arange(int(ends[-1]) if len(ends) else 0, dtype=np.int64) - np.repeat(ends - count, count)
        numbers = np.repeat(first, count) + within
        sizes = self._rows.sizes(numbers)
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        begins = before[ends - count]
        return numbers, before[ends] - begins, count, before[:-1] - np.repeat(begins, count)
