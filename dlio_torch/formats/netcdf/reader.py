"""Reader of netCDF files: one library call per array for a sample or a run of samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.formats.core.batch import ArraySpec, BatchBuffer
from dlio_torch.formats.core.layout import ArrayLayout
from dlio_torch.formats.core.layout_rows import RowExtents
from dlio_torch.formats.core.ragged import read_pieces
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.core.stacking import agreed, check_range
from dlio_torch.formats.netcdf.file import NcFile, Rows, reading
from dlio_torch.formats.netcdf.layout import variable_layouts


class RowIndex(ABC):
    """Row index of variable-length samples.

    Attributes:
        num_samples: samples that it knows.
    """

    num_samples: int

    @abstractmethod
    def look_up(self, first: int, count: int) -> tuple[list[int], list[int]]:
        """First row and number of rows of ``count`` samples from sample ``first`` on."""

    @abstractmethod
    def extents(self) -> RowExtents:
        """First row and number of rows of all samples."""


class StoredIndex(RowIndex):
    """Row index stored as a table of first row and number of rows, of which each read fetches its part."""

    def __init__(self, table: Rows) -> None:
        self._table = table
        self.num_samples = table.count

    def look_up(self, first: int, count: int) -> tuple[list[int], list[int]]:
        rows = self._table.read(first, count)
        return rows[:, 0].tolist(), rows[:, 1].tolist()

    def extents(self) -> RowExtents:
        rows = self._table.read(0, self.num_samples).astype(np.int64)
        return rows[:, 0], rows[:, 1]


class CountedIndex(RowIndex):
    """Row index of adjacent samples, whose end rows are in memory.

    Args:
        ends: int64 (samples + 1,): where each sample's rows begin, and the end of the last one's.
    """

    def __init__(self, ends: npt.NDArray[np.int64]) -> None:
        self._ends = ends
        self.num_samples = len(ends) - 1

    def look_up(self, first: int, count: int) -> tuple[list[int], list[int]]:
        ends = self._ends[first : first + count + 1]
        return ends[:-1].tolist(), np.diff(ends).tolist()

    def extents(self) -> RowExtents:
        return self._ends[:-1], np.diff(self._ends)


class NetcdfReader(Reader):
    """Reader of the samples of one netCDF file.

    Args:
        file: the open file; closed by :meth:`close`.
        specs: arrays of a sample.
        arrays: the stored arrays by name.
        indexes: of each variable-length array.

    Raises:
        DataError: the arrays disagree on the number of samples.
    """

    num_samples: int

    def __init__(
        self, file: NcFile, specs: Sequence[ArraySpec], arrays: Mapping[str, Rows], indexes: Mapping[str, RowIndex]
    ) -> None:
        self._file = file
        self._specs = specs
        self._arrays = arrays
        self._indexes = indexes
        counts = {name: indexes[name].num_samples if name in indexes else arrays[name].count for name in arrays}
        self.num_samples = agreed(counts, file.path)

    def describe(self) -> dict[str, Any]:
        """Variant of the file, and chunks and filters of each array; also reads the rows of the last sample."""
        details: dict[str, Any] = {"variant": self._file.dataset.data_model}
        for name, array in self._arrays.items():
            if name in self._indexes and self.num_samples:
                starts, lengths = self._indexes[name].look_up(self.num_samples - 1, 1)
                array.check(starts[0], lengths[0])
            with reading(self._file.path):
                chunks, filters = array.variable.chunking(), array.variable.filters()
            used = sorted(key for key, on in (filters or {}).items() if on is True)
            details[name] = {"chunks": None if chunks == "contiguous" else chunks, "filters": used}
        return details

    def read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        path = self._file.path
        check_range(path, self.num_samples, first, count)
        for spec in self._specs:
            array = self._arrays[spec.name]
            if spec.variable:
                starts, lengths = self._indexes[spec.name].look_up(first, count)
                read_pieces(array.read, starts, lengths, buffer, position, name=spec.name, first=first, path=path)
            else:
                buffer.fixed[spec.name][position : position + count] = array.read(first, count)

    def layouts(self) -> dict[str, ArrayLayout]:
        """The layout of each array; reads all extents.

        Raises:
            DataError: an array is stored in a way that only the library reads.
        """
        extents = {name: index.extents() for name, index in self._indexes.items()}
        with reading(self._file.path):
            return variable_layouts(self._file, self._arrays, extents)

    def close(self) -> None:
        self._file.close()
