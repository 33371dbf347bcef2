"""Layout of samples in NumPy files: one unstacked sample, or several samples stacked along an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import ArraySpec, BatchBuffer
from dlio_torch.formats.core.reader import Reader

LENGTHS_SUFFIX = "_lengths"
HEADER_BYTES = 128
"""Size in bytes to which NumPy pads the header of an array with few axes."""


def is_stacked(config: DatasetConfig) -> bool:
    """Whether files hold several samples, stacked along an axis."""
    return max(config.samples_per_file, config.samples_per_file_eval) > 1


def write_header(file: IO[bytes], dtype: np.dtype[np.generic], shape: Sequence[int]) -> None:
    """Write the header that ``numpy.save`` writes for a C-ordered array."""
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": tuple(shape)}
    np.lib.format.write_array_header_1_0(file, described)


@dataclass(frozen=True)
class Stacking:
    """The axis of an array along which samples are stacked.

    Attributes:
        stacked: several samples along an axis; else the array is the sample.
        option: key of the option that says so, and its value for files of one sample; for messages.
        last: that axis is the last one; else the first.
    """

    stacked: bool
    option: str
    last: bool = False

    def shape(self, spec: ArraySpec, samples: int, rows: int) -> tuple[int, ...]:
        """Shape of the stored array of ``samples`` samples; variable-length samples have ``rows`` rows in total."""
        if spec.variable:
            return (rows, *spec.shape)
        if not self.stacked:
            return spec.shape
        return (*spec.shape, samples) if self.last else (samples, *spec.shape)

    def count(self, spec: ArraySpec, dtype: np.dtype[np.generic], shape: tuple[int, ...], path: Path) -> int:
        """Number of samples in an array of this type and shape; for a variable-length array, its number of rows.

        The rows of a variable-length sample of single elements are all elements of the array, whatever its shape.

        Raises:
            DataError: it is no array of such samples.
        """
        wanted: tuple[int, ...] | None = spec.shape
        count = 1
        if spec.variable and not spec.shape and not self.stacked and shape:
            shape = (math.prod(shape),)
        if self.stacked or spec.variable:
            wanted = None
            if shape:
                count = shape[-1 if self.last and not spec.variable else 0]
                wanted = self.shape(spec, count, count)
        if dtype != spec.dtype or shape != wanted:
            shown = self.shape(spec, -1, -1)
            raise DataError(
                f"{path}: array {spec.name} is {dtype}{list(shape)}, but dataset.fields expect "
                f"{spec.dtype}[{', '.join('n' if length < 0 else str(length) for length in shown)}]",
                hint=f"correct dataset.fields, or {self.option}",
            )
        return count


class Columns:
    """Arrays of a file in memory, with samples stacked along an axis.

    Args:
        stacking: where the samples lie.
        specs: arrays of a sample.
        arrays: the stored arrays; of a variable-length one, ``<name>_lengths`` as well.
        path: for errors.

    Raises:
        DataError: an array is of another type or shape, or they disagree on the number of samples.
    """

    def __init__(
        self, stacking: Stacking, specs: Sequence[ArraySpec], arrays: dict[str, npt.NDArray[Any]], path: Path
    ) -> None:
        self._stacking = stacking
        self._specs = specs
        self._arrays = arrays
        self._ends: dict[str, npt.NDArray[np.int64]] = {}
        counts = {}
        for spec in specs:
            array = arrays[spec.name]
            count = stacking.count(spec, array.dtype, array.shape, path)
            if spec.variable:
                lengths = arrays[spec.name + LENGTHS_SUFFIX]
                self._ends[spec.name] = ends_of(lengths, count, spec.name, path)
                count = len(lengths)
            counts[spec.name] = count
        self.num_samples = agreed(counts, path)

    def put(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        """Copy samples into a batch."""
        for spec in self._specs:
            array = self._arrays[spec.name]
            if spec.variable:
                ends = self._ends[spec.name]
                for i in range(count):
                    buffer.put(spec.name, position + i, array[ends[first + i] : ends[first + i + 1]].copy())
            elif self._stacking.last:
                buffer.fixed[spec.name][position : position + count] = np.moveaxis(
                    array[..., first : first + count], -1, 0
                )
            else:
                buffer.fixed[spec.name][position : position + count] = array[first : first + count]


class StackedReader(Reader):
    """Reader of a file whose samples were all read when it was opened.

    Args:
        columns: the samples.
        path: for errors.
    """

    num_samples: int

    def __init__(self, columns: Columns, path: Path) -> None:
        self._columns = columns
        self._path = path
        self.num_samples = columns.num_samples

    def read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        check_range(self._path, self.num_samples, first, count)
        self._columns.put(first, count, buffer, position)

    def close(self) -> None:
        """Does nothing: the file was closed after it was read."""


def ends_of(
    lengths: npt.NDArray[Any], rows: int, name: str, path: Path, table: str | None = None
) -> npt.NDArray[np.int64]:
    """First row of each sample, and the end of the last sample.

    Args:
        lengths: rows of each sample.
        rows: rows of the array.
        name: of the array.
        path: its file, for messages.
        table: name of the array of lengths; ``None``: that of NumPy's files.

    Raises:
        DataError: the lengths are no such table, or do not add up to ``rows``.
    """
    sound = lengths.dtype == np.int64 and lengths.ndim == 1 and bool((lengths >= 0).all())
    ends = np.concatenate([[0], np.cumsum(lengths)]) if sound and bool((lengths <= rows).all()) else np.array([-1])
    if ends[-1] != rows or bool((ends < 0).any()):
        raise DataError(
            f"{path}: array {table or name + LENGTHS_SUFFIX} does not divide the {rows} rows of array {name} into "
            "samples",
            hint="store the number of rows of each sample (int64) in that array",
        )
    return ends


def agreed(counts: dict[str, int], path: Path) -> int:
    """Returns the number of samples, which must be equal in all arrays.

    Raises:
        DataError: they disagree.
    """
    if len(set(counts.values())) > 1:
        raise DataError(
            f"{path}: the arrays hold different numbers of samples: "
            + ", ".join(f"{name} has {count}" for name, count in counts.items()),
            hint="replace the damaged file, or name arrays with equal numbers of samples in dataset.fields",
        )
    return next(iter(counts.values()))


def check_range(path: Path, num_samples: int, first: int, count: int) -> None:
    """Raise unless the file holds these samples.

    Raises:
        DataError: it does not.
    """
    if first < 0 or count < 0 or first + count > num_samples:
        raise DataError(
            f"{path} holds {num_samples} samples, but samples {first} to {first + count - 1} were requested",
            hint="the file was replaced or damaged; remove the file and generate the data again",
        )


def put_sample(
    spec: ArraySpec, array: npt.NDArray[Any], buffer: BatchBuffer, position: int, path: Path, option: str
) -> None:
    """Put a loaded array of one sample into the batch; ``option`` as in :class:`Stacking`.

    Raises:
        DataError: it is of another type or shape.
    """
    Stacking(False, option).count(spec, array.dtype, array.shape, path)
    if spec.variable:
        buffer.put(spec.name, position, np.ascontiguousarray(array).reshape(-1, *spec.shape))
    else:
        buffer.fixed[spec.name][position] = array
