"""Layouts of samples that are several consecutive rows of an array with equally spaced rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.core.layout import ArrayLayout, Extents, Ints

RowExtents = tuple[Ints, Ints]
"""First row and number of rows of each sample; int64 of ``(samples,)`` each."""


def within(extents: RowExtents, samples: Ints, rows: int, name: str, path: Path) -> RowExtents:
    """Returns the row extents of the given samples after checking that they lie inside the array.

    Args:
        extents: of all samples.
        samples: positions in the file; int64.
        rows: of the array.
        name: of the array.
        path: of its file.

    Raises:
        DataError: they reach beyond the array.
    """
    first, count = extents[0][samples], extents[1][samples]
    wrong = (first < 0) | (count < 0) | (count > rows) | (first > rows - count)
    if wrong.any():
        bad = int(wrong.argmax())
        raise DataError(
            f"{path}: array {name} has {rows} rows, but rows {int(first[bad])} to "
            f"{int(first[bad]) + int(count[bad]) - 1} were requested",
            hint="the file contradicts its own index; generate or fetch the file again",
        )
    return first, count


def counted(counts: Ints) -> Ints:
    """Concatenates ``range(count)`` for each of the counts."""
    ends = np.cumsum(counts)
    return np.arange(int(ends[-1]) if len(ends) else 0, dtype=np.int64) - np.repeat(ends - counts, counts)


@dataclass(frozen=True)
class Spaced:
    """An array whose rows lie at equal distances in a file.

    Attributes:
        path: the file.
        name: of the array, for messages.
        first: first byte of the first row.
        step: bytes from a row to the next.
        size: bytes of a row.
        rows: their number.
        turned: bytes of an element that is stored in the other byte order; 1: as it is.
    """

    path: Path
    name: str
    first: int
    step: int
    size: int
    rows: int
    turned: int = 1


class SpacedRows(ArrayLayout):
    """Layout of samples that are rows of a :class:`Spaced` array.

    Args:
        array: the array.
        extents: first row and number of rows of each sample; ``None``: a sample is one row.
    """

    def __init__(self, array: Spaced, extents: RowExtents | None = None) -> None:
        self.path = array.path
        self._array = array
        self._extents = extents

    def sizes(self, rows: Ints) -> Ints:
        return self._rows(rows)[1] * self._array.size

    def _rows(self, samples: Ints) -> RowExtents:
        extents, array = self._extents, self._array
        if extents is None:
            extents = samples, np.ones(len(samples), np.int64)
            samples = np.arange(len(samples))
        return within(extents, samples, array.rows, array.name, self.path)

    def plan(self, rows: Ints, into: Ints) -> Extents:
        array = self._array
        first, count = self._rows(rows)
        if array.step != array.size:  # other arrays lie between the rows
            number = counted(count)
            first, into = np.repeat(first, count) + number, np.repeat(into, count) + number * array.size
            count = np.ones(len(first), np.int64)
        turned = np.full(len(first), array.turned, np.int64) if array.turned > 1 else None
        return Extents(array.first + first * array.step, count * array.size, into, turned)
