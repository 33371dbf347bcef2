"""Samples of MDS shards as bytes: the columns of a sample found in them, and put together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import ArraySpec, BatchBuffer
from dlio_torch.formats.mds.encodings import prefix_bytes, shape_prefix
from dlio_torch.formats.mds.shard import WORD, StoredColumn

_HINT = "replace the damaged file, or correct dataset.fields to describe this data set"


@dataclass(frozen=True)
class SampleColumns:
    """Columns of a sample that are fields of the data set.

    Attributes:
        path: the shard.
        columns: all columns, in the order of storage.
        specs: the fields.
        positions: of each field, the position of its column.
        variable: positions of the columns of variable size.
    """

    path: Path
    columns: tuple[StoredColumn, ...]
    specs: tuple[ArraySpec, ...]
    positions: tuple[int, ...]
    variable: tuple[int, ...]

    @classmethod
    def of(cls, path: Path, columns: tuple[StoredColumn, ...], specs: Sequence[ArraySpec]) -> SampleColumns:
        """Finds the column of each field.

        Raises:
            DataError: a column is missing, or is of another type.
        """
        names = [column.name for column in columns]
        for spec in specs:
            if spec.name not in names:
                raise DataError(
                    f"{path} has no column {spec.name!r}, but columns {', '.join(names)}",
                    hint="name columns of the file in dataset.fields",
                )
            column = columns[names.index(spec.name)]
            encoding = column.parsed
            if not encoding.fits(spec) or column.size != encoding.size:
                shown = f"{spec.dtype}[{', '.join(['n'] * spec.variable + [str(edge) for edge in spec.shape])}]"
                raise DataError(
                    f"{path}: column {spec.name} is stored as {column.encoding}, but dataset.fields expect {shown}",
                    hint="correct dataset.fields; inspect shows the fields of this data set",
                )
        positions = tuple(names.index(spec.name) for spec in specs)
        variable = tuple(position for position, column in enumerate(columns) if column.size is None)
        return cls(path, columns, tuple(specs), positions, variable)

    def starts_and_sizes(
        self, variable_sizes: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """First byte in the sample and bytes of each column; int64 of ``(samples, columns)``.

        Args:
            variable_sizes: bytes of the columns of variable size; ``(samples, variable columns)``.
        """
        sizes = np.empty((len(variable_sizes), len(self.columns)), np.int64)
        for position, column in enumerate(self.columns):
            sizes[:, position] = column.size or 0
        sizes[:, list(self.variable)] = variable_sizes
        starts = WORD * len(self.variable) + np.cumsum(sizes, axis=1) - sizes
        return starts, sizes

    def put(self, sample: bytes, row: int, buffer: BatchBuffer, position: int) -> None:
        """Copy the fields of a sample into a batch.

        Raises:
            DataError: the sample is damaged.
        """
        head = WORD * len(self.variable)
        if len(sample) < head:
            raise self.damaged(row, f"has {len(sample)} bytes")
        sizes = np.frombuffer(sample, "<u4", len(self.variable)).astype(np.int64)
        starts, all_sizes = (table[0].tolist() for table in self.starts_and_sizes(sizes[None]))
        if head + sum(all_sizes) != len(sample):
            raise self.damaged(row, f"has {len(sample)} bytes, but its columns need {head + sum(all_sizes)}")
        stored = memoryview(sample)
        for spec, column in zip(self.specs, self.positions, strict=True):
            start, size = starts[column], all_sizes[column]
            if not spec.variable:
                value = np.frombuffer(sample, spec.dtype, math.prod(spec.shape), start)
                buffer.fixed[spec.name][position] = value.reshape(spec.shape)
                continue
            prefix = self._prefix(spec, self.columns[column], stored[start : start + size], row)
            count = (size - prefix) // spec.dtype.itemsize
            rows = np.frombuffer(sample, spec.dtype, count, start + prefix).reshape(-1, *spec.shape)
            buffer.put(spec.name, position, rows.copy())

    def _prefix(self, spec: ArraySpec, column: StoredColumn, value: memoryview, row: int) -> int:
        """Bytes before the elements of a column of variable size."""
        if column.parsed.kind == "bytes":
            return 0
        prefix = int(prefix_bytes(spec, np.array([len(value)], np.int64))[0])
        rows = (len(value) - prefix) // (math.prod(spec.shape) * spec.dtype.itemsize)
        if not prefix or value[:prefix] != shape_prefix(spec, rows):
            expected = f"{1 + len(spec.shape)} axes" + (f", the last ones {list(spec.shape)}" if spec.shape else "")
            raise self.damaged(row, f"column {spec.name} is no array with {expected}")
        return prefix

    def damaged(self, row: int, problem: str) -> DataError:
        """Error about a sample."""
        return DataError(f"{self.path}: sample {row}: {problem}", hint=_HINT)


def sample_bytes(columns: Sequence[tuple[ArraySpec, StoredColumn]], arrays: Sequence[npt.NDArray[Any]]) -> bytes:
    """A sample as MDSWriter stores it.

    Args:
        columns: of the shard, each with its field, in the order of storage.
        arrays: content of each.
    """
    values = []
    for (spec, column), array in zip(columns, arrays, strict=True):
        prefix = shape_prefix(spec, len(array)) if column.parsed.kind == "ragged" else b""
        values.append(prefix + array.tobytes())
    sizes = [len(value) for value, (_, column) in zip(values, columns, strict=True) if column.size is None]
    return np.array(sizes, "<u4").tobytes() + b"".join(values)
