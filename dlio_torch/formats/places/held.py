"""Samples that are in memory as long as their file would be open."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dlio_torch.formats.batch import ArraySpec, Sample
from dlio_torch.formats.places.base import ArrayPlaces, Copies, Ints
from dlio_torch.native.memory import address_of


class Held(ArrayPlaces):
    """Samples that were read when their file was opened.

    Args:
        path: the file.
        memory: contiguous; kept as long as this object.
        starts: first byte in it of each sample.
        sizes: bytes of each.
    """

    in_memory = True

    def __init__(self, path: Path, memory: npt.NDArray[np.uint8], starts: Ints, sizes: Ints) -> None:
        self.path = path
        self._memory = memory
        self._starts, self._sizes = starts + address_of(memory), sizes

    def sizes(self, rows: Ints) -> Ints:
        return self._sizes[rows]

    def plan(self, rows: Ints, into: Ints) -> Copies:
        return Copies(self._starts[rows], self._sizes[rows], into)


def held(path: Path, array: npt.NDArray[np.generic]) -> Held:
    """Samples along the first axis of an array."""
    array = np.ascontiguousarray(array)
    count = len(array)
    size = array.nbytes // max(1, count)
    memory = array.reshape(-1).view(np.uint8)
    return Held(path, memory, np.arange(count, dtype=np.int64) * size, np.full(count, size, np.int64))


def held_rows(path: Path, array: npt.NDArray[np.generic], ends: Ints) -> Held:
    """Variable-length samples one after another along the first axis of an array.

    Args:
        path: the file.
        array: all rows.
        ends: rows up to the end of each sample; one more entry than samples, the first is 0.
    """
    array = np.ascontiguousarray(array)
    row = math.prod(array.shape[1:]) * array.dtype.itemsize
    return Held(path, array.reshape(-1).view(np.uint8), ends[:-1] * row, np.diff(ends) * row)


def held_samples(
    path: Path, specs: Sequence[ArraySpec], samples: Iterable[Sample]
) -> tuple[dict[str, ArrayPlaces], int]:
    """The places of samples that come one after another, and their number."""
    columns: dict[str, list[npt.NDArray[np.generic]]] = {spec.name: [] for spec in specs}
    for sample in samples:
        for name, column in columns.items():
            column.append(sample[name])
    arrays: dict[str, ArrayPlaces] = {}
    for spec in specs:
        column = columns[spec.name]
        if spec.variable:
            ends = np.concatenate([[0], np.cumsum([len(rows) for rows in column])]).astype(np.int64)
            arrays[spec.name] = held_rows(path, np.concatenate(column), ends)
        else:
            arrays[spec.name] = held(path, np.stack(column))
    return arrays, len(columns[specs[0].name])
