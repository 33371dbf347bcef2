"""Rows of consecutive cells of a table's column, as views of the memory in which they were read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dlio_torch.formats.core.batch import ArraySpec, BatchBuffer
from dlio_torch.formats.core.layout import Ints


@dataclass(frozen=True)
class CellRows:
    """Rows of consecutive cells.

    Attributes:
        rows: of all cells; of a fixed-length array, one a cell.
        ends: of a variable-length array, first row of each cell, and the end of the last one's.
    """

    rows: npt.NDArray[np.generic]
    ends: Ints | None

    def cell(self, number: int) -> npt.NDArray[np.generic]:
        """Copies the rows of one cell."""
        if self.ends is None:
            return np.array(self.rows[number])
        return np.array(self.rows[self.ends[number] : self.ends[number + 1]])

    @property
    def count(self) -> int:
        """Number of cells."""
        return len(self.rows) if self.ends is None else len(self.ends) - 1

    def put(self, name: str, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        """Copy ``count`` cells from ``first`` on to a batch, as samples of array ``name`` from ``position`` on."""
        if self.ends is None:
            buffer.fixed[name][position : position + count] = self.rows[first : first + count]
            return
        for i in range(count):
            buffer.put(name, position + i, self.cell(first + i))


def joined(parts: Sequence[CellRows], spec: ArraySpec) -> CellRows:
    """Concatenates the cells of all parts, which may be none."""
    rows = np.concatenate([np.empty((0, *spec.shape), spec.dtype), *(part.rows for part in parts)])
    if not spec.variable:
        return CellRows(rows, None)
    lengths = [np.diff(part.ends) for part in parts if part.ends is not None]
    return CellRows(rows, np.concatenate([[0], np.cumsum(np.concatenate([[], *lengths]), dtype=np.int64)]))
