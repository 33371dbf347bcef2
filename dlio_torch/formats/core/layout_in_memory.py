"""Layouts of samples that stay in memory for as long as their file would be open."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dlio_torch.formats.core.batch import ArraySpec, Sample
from dlio_torch.formats.core.layout import ArrayLayout, Copies, Ints
from dlio_torch.formats.core.layout_rows import RowExtents, within
from dlio_torch.native.memory import address_of


class Held(ArrayLayout):
    """Samples that were read when their file was opened.

    Args:
        path: the file.
        memory: arrays that hold them; kept as long as this object.
        starts: address of each sample.
        lengths: bytes of each.
    """

    in_memory = True

    def __init__(self, path: Path, memory: Sequence[npt.NDArray[np.generic]], starts: Ints, lengths: Ints) -> None:
        self.path = path
        self.memory = memory
        self.starts, self.lengths = starts, lengths

    def sizes(self, rows: Ints) -> Ints:
        return self.lengths[rows]

    def plan(self, rows: Ints, into: Ints) -> Copies:
        return Copies(self.starts[rows], self.lengths[rows], into)


class HeldRows(ArrayLayout):
    """Samples of several consecutive rows each, in an array that is in memory.

    Args:
        path: the file.
        name: of the array, for messages.
        array: all rows; kept as long as this object.
        extents: first row and number of rows of each sample.
    """

    in_memory = True

    def __init__(self, path: Path, name: str, array: npt.NDArray[np.generic], extents: RowExtents) -> None:
        self.path = path
        self._name = name
        self._array = np.ascontiguousarray(array)
        self._row = math.prod(array.shape[1:]) * array.dtype.itemsize
        self._extents = extents

    def _rows(self, samples: Ints) -> RowExtents:
        return within(self._extents, samples, len(self._array), self._name, self.path)

    def sizes(self, rows: Ints) -> Ints:
        return self._rows(rows)[1] * self._row

    def plan(self, rows: Ints, into: Ints) -> Copies:
        first, count = self._rows(rows)
        return Copies(address_of(self._array) + first * self._row, count * self._row, into)


def held(path: Path, array: npt.NDArray[np.generic]) -> Held:
    """Samples along the first axis of an array."""
    array = np.ascontiguousarray(array)
    count = len(array)
    size = array.nbytes // max(1, count)
    starts = address_of(array) + np.arange(count, dtype=np.int64) * size
    return Held(path, [array], starts, np.full(count, size, np.int64))


def held_rows(path: Path, array: npt.NDArray[np.generic], ends: Ints) -> Held:
    """Variable-length samples one after another along the first axis of an array.

    Args:
        path: the file.
        array: all rows.
        ends: rows up to the end of each sample; one more entry than samples, the first is 0.
    """
    array = np.ascontiguousarray(array)
    row = math.prod(array.shape[1:]) * array.dtype.itemsize
    return Held(path, [array], address_of(array) + ends[:-1] * row, np.diff(ends) * row)


def held_together(path: Path, parts: Sequence[Held]) -> Held:
    """Joins the samples of all parts without copying them."""
    nothing = np.zeros(0, np.int64)
    starts = np.concatenate([nothing, *(part.starts for part in parts)])
    lengths = np.concatenate([nothing, *(part.lengths for part in parts)])
    return Held(path, [array for part in parts for array in part.memory], starts, lengths)


def held_samples(
    path: Path, specs: Sequence[ArraySpec], samples: Iterable[Sample]
) -> tuple[dict[str, ArrayLayout], int]:
    """Returns the layout of samples that an iterator yields, and the number of samples."""
    columns: dict[str, list[npt.NDArray[np.generic]]] = {spec.name: [] for spec in specs}
    for sample in samples:
        for name, column in columns.items():
            column.append(sample[name])
    arrays: dict[str, ArrayLayout] = {}
    for spec in specs:
        column = columns[spec.name]
        if spec.variable:
            ends = np.concatenate([[0], np.cumsum([len(rows) for rows in column])]).astype(np.int64)
            arrays[spec.name] = held_rows(path, np.concatenate(column), ends)
        else:
            arrays[spec.name] = held(path, np.stack(column))
    return arrays, len(columns[specs[0].name])
