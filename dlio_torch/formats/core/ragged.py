"""Variable-length samples in a stored array: tables of their rows, and splitting one read into samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core.batch import ArraySpec, BatchBuffer

EXTENTS_SUFFIX = "_extents"
"""Suffix of the name of an array's table of extents (first row and number of rows of each sample)."""


def check_table_names(specs: Sequence[ArraySpec]) -> None:
    """Raise unless each array has another name than the tables of extents of the variable-length arrays.

    Raises:
        ConfigError: one has not.
    """
    tables = {spec.name + EXTENTS_SUFFIX for spec in specs if spec.variable}
    for spec in specs:
        if spec.name in tables:
            raise ConfigError(
                f"dataset.fields: name={spec.name!r} is reserved for the extents of a variable-length array",
                hint="rename it",
            )


def table_of(rows: npt.NDArray[np.int64], dtype: npt.DTypeLike = np.int64) -> npt.NDArray[Any]:
    """Makes the table of first row and number of rows of adjacent samples; shape ``(samples, 2)``."""
    starts = np.concatenate([[0], np.cumsum(rows)[:-1]])
    return np.stack([starts, rows], axis=1).astype(dtype)


def read_pieces(
    read: Callable[[int, int], npt.NDArray[Any]],
    starts: Sequence[int],
    lengths: Sequence[int],
    buffer: BatchBuffer,
    position: int,
    *,
    name: str,
    first: int,
    path: Path,
) -> None:
    """Read the rows of consecutive samples in one call and split them into samples.

    Args:
        read: gives a number of rows from a first one on, in a new array.
        starts: first row of each sample.
        lengths: rows of each sample.
        buffer: receives sample ``first + i`` at position ``position + i``.
        position: first position in the buffer.
        name: of the array.
        first: position of the first sample inside the file, for messages.
        path: its file, for messages.

    Raises:
        DataError: the samples do not lie one after another.
    """
    begin, end = starts[0], starts[0]
    for start, length in zip(starts, lengths, strict=True):
        if start != end:
            raise DataError(
                f"{path}: samples {first} to {first + len(starts) - 1} of array {name} are not adjacent, so that one "
                "call cannot read them",
                hint="set access.unit=sample",
            )
        end += length
    rows = read(begin, end - begin)
    for i, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        buffer.put(name, position + i, rows[start - begin : start - begin + length])
