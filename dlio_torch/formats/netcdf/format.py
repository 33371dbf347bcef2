"""Format ``netcdf``: one variable per field of a sample, with samples stacked along the dimension ``sample``.

A fixed-length field ``f`` is a variable of shape (samples, *shape).  A variable-length one has shape
(all rows, *shape), and beside it lies ``f_extents`` of shape (samples, 2): first row and number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.formats.core.ragged import EXTENTS_SUFFIX, check_table_names, table_of
from dlio_torch.formats.netcdf.array_format import NetcdfFiles, Table
from dlio_torch.formats.netcdf.file import Element, NcFile, Rows, create
from dlio_torch.formats.netcdf.reader import RowIndex, StoredIndex

if TYPE_CHECKING:
    import netCDF4

_SAMPLE, _PAIR = "sample", "first_and_count"
_WIDE, _NARROW = np.dtype(np.int64), np.dtype(np.int32)


class NetcdfFormat(NetcdfFiles):
    """Arrays of ``dataset.fields`` in netCDF-4 or classic files."""

    name: ClassVar[str] = "netcdf"

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        super().__init__(config, seed)
        check_table_names(self._specs)
        self._count = Element(_WIDE if self.options.variant in ("netcdf4", "64bit_data") else _NARROW, {})

    def describe(self, file: netCDF4.Dataset, first_sample: int, rows: Sequence[npt.NDArray[np.int64]]) -> list[Table]:
        file.createDimension(_SAMPLE, None if self.options.unlimited else len(rows[0]))
        for length in sorted({length for spec in self._specs for length in spec.shape}):
            file.createDimension(f"n{length}", length)
        tables = []
        for number, spec in enumerate(self._specs):
            if spec.variable:
                file.createDimension(f"rows{number}", int(rows[number].sum()))
                if _PAIR not in file.dimensions:
                    file.createDimension(_PAIR, 2)
                storage = self.table_chunk(len(rows[number]), 2)
                table = create(file, spec.name + EXTENTS_SUFFIX, self._count, (_SAMPLE, _PAIR), **storage)
                tables.append((table, table_of(rows[number], self._count.dtype)))
        return tables

    def dimensions(self, number: int) -> tuple[str, ...]:
        spec = self._specs[number]
        return (f"rows{number}" if spec.variable else _SAMPLE, *(f"n{length}" for length in spec.shape))

    def table_bytes(self, number: int) -> float:
        return 2 * self._count.dtype.itemsize if self._specs[number].variable else 0

    def index(self, file: NcFile, number: int, array: Rows) -> RowIndex:
        name = self._specs[number].name + EXTENTS_SUFFIX
        stored = file.variable(name).dtype  # of 4 bytes in a file of a variant without larger ones
        return StoredIndex(file.rows(name, _NARROW if stored == _NARROW else _WIDE, (2,)))
