"""Format ``silo``: one plain array per field of a sample, stacked along the first axis and read in slices.

A fixed-length field ``f`` is an array of shape (samples, *shape).  A variable-length one has shape
(all rows, *shape), and beside it lies ``f_extents`` of shape (samples, 2): first row and number of rows.
Of arrays with more than three axes the last ones are stored as one, and unsigned integers as the signed ones of
their size.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.array_format import FieldFormat
from dlio_torch.formats.core.batch import ArraySpec, BatchBuffer
from dlio_torch.formats.core.format import FileInfo, MpiIo
from dlio_torch.formats.core.layout import ArrayLayout, FileLayout
from dlio_torch.formats.core.ragged import EXTENTS_SUFFIX, check_table_names, read_pieces, table_of
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.core.stacking import agreed, check_range
from dlio_torch.formats.hdf5.guard import check_file
from dlio_torch.formats.silo.layout import open_driver, silo_array_layout
from dlio_torch.formats.silo.library import SiloArray, SiloFile, library, make_repeatable, too_long
from dlio_torch.iotrace.recorder.spans import NULL, Recorder

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EXTENTS = np.dtype(np.int64)
_FILE, _ARRAY = 4600, 330  # bytes of a file, and of each array in it, beside the data


class SiloFormat(FieldFormat):
    """Arrays of ``dataset.fields`` in Silo files."""

    name: ClassVar[str] = "silo"
    suffix: ClassVar[str] = ".silo"
    has_layout: ClassVar[bool] = True
    may_crash: ClassVar[bool] = True
    mpi_io: ClassVar[MpiIo] = "extents"

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        super().__init__(config, seed)
        library()
        check_table_names(self._specs)
        for spec, field in zip(self._specs, config.fields, strict=True):
            if not _NAME.fullmatch(spec.name):
                raise ConfigError(
                    f"dataset.fields: name={spec.name!r} is not a valid name in Silo files",
                    hint="use only letters, digits and _",
                )
            if too_long(round(config.samples_per_file * (field.length_mean or 1)), spec.shape):
                raise ConfigError(
                    f"dataset.fields: {spec.name} has too many elements per file; Silo arrays have less than 2^31",
                    hint="lower dataset.samples_per_file",
                )

    def stored_bytes(self) -> float:
        tables = sum(spec.variable for spec in self._specs)
        metadata = _FILE + _ARRAY * (len(self._specs) + tables)
        return self.sample_bytes() + 2 * _EXTENTS.itemsize * tables + metadata / self.config.samples_per_file

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        with closing(SiloFile(path, create=True)) as file:
            for number, spec in enumerate(self._specs):
                rows = self.rows(number, first_sample, num_samples)
                start, total = 0, int(rows.sum())
                if spec.variable:
                    file.write(spec.name + EXTENTS_SUFFIX, 0, num_samples, table_of(rows))
                for block in self.blocks(number, first_sample, num_samples, pool):
                    file.write(spec.name, start, total, block)
                    start += len(block)
        make_repeatable(path)

    def inspect(self, path: Path) -> FileInfo:
        names = [spec.name for spec in self._specs]
        check_file(path, [*names, *(spec.name + EXTENTS_SUFFIX for spec in self._specs if spec.variable)])
        with closing(_SiloReader(path, self._specs)) as reader:
            return FileInfo(reader.num_samples, reader.describe())

    def open(self, path: Path, recorder: Recorder = NULL) -> Reader:
        return _SiloReader(path, self._specs)

    def layout(self, path: Path) -> FileLayout:
        with closing(_SiloReader(path, self._specs)) as reader:
            return FileLayout(reader.num_samples, reader.layouts())


class _SiloReader(Reader):
    num_samples: int

    def __init__(self, path: Path, specs: Sequence[ArraySpec]) -> None:
        self._path = path
        self._specs = specs
        self._file = SiloFile(path)
        try:
            self._arrays = {spec.name: self._file.array(spec.name, spec.dtype, spec.shape) for spec in specs}
            self._extents: dict[str, SiloArray] = {
                spec.name: self._file.array(spec.name + EXTENTS_SUFFIX, _EXTENTS, (2,))
                for spec in specs
                if spec.variable
            }
            counts = {name: self._extents.get(name, array).count for name, array in self._arrays.items()}
            self.num_samples = agreed(counts, path)
        except BaseException:
            self._file.close()
            raise

    def describe(self) -> dict[str, Any]:
        """Rows of each array; also reads the last sample, to check that the arrays are complete."""
        if self.num_samples:
            self.read(self.num_samples - 1, 1, BatchBuffer(self._specs, [0]), 0)
        return {name: {"rows": array.count} for name, array in self._arrays.items()}

    def read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        check_range(self._path, self.num_samples, first, count)
        for spec in self._specs:
            array = self._arrays[spec.name]
            if not spec.variable:
                array.read_into(first, buffer.fixed[spec.name][position : position + count])
                continue
            extents = self._extents[spec.name].read(first, count)
            read_pieces(
                array.read,
                extents[:, 0].tolist(),
                extents[:, 1].tolist(),
                buffer,
                position,
                name=spec.name,
                first=first,
                path=self._path,
            )

    def layouts(self) -> dict[str, ArrayLayout]:
        """The layout of each array; reads all extents.

        Raises:
            DataError: the file or an array is stored in a way that only the library reads.
        """
        with closing(open_driver(self._path)) as stored:
            layouts: dict[str, ArrayLayout] = {}
            for spec in self._specs:
                extents = None
                if spec.variable:
                    table = self._extents[spec.name].read(0, self.num_samples)
                    extents = table[:, 0], table[:, 1]
                layouts[spec.name] = silo_array_layout(stored, self._arrays[spec.name], spec.dtype, self._path, extents)
            return layouts

    def close(self) -> None:
        self._file.close()
