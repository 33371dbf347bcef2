"""Base of the netCDF formats: variants, chunks, filters, and writing and opening files of stacked samples."""

from __future__ import annotations

import math
import zlib
from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import ConfigError
from dlio_torch.files.locked_folder import temporary_folder
from dlio_torch.formats.core import payload
from dlio_torch.formats.core.array_format import FieldFormat
from dlio_torch.formats.core.chunk_shapes import chunk_shape, field_chunk
from dlio_torch.formats.core.format import FileInfo, MpiIo
from dlio_torch.formats.core.layout import FileLayout
from dlio_torch.formats.core.ragged import EXTENTS_SUFFIX
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.hdf5.guard import check_file
from dlio_torch.formats.netcdf.file import NcFile, Rows, create, creating, element_of, need_netcdf4
from dlio_torch.formats.netcdf.options import NetcdfConfig
from dlio_torch.formats.netcdf.reader import NetcdfReader, RowIndex
from dlio_torch.iotrace.recorder.spans import NULL, Recorder

if TYPE_CHECKING:
    import netCDF4

_LIMITS = {"classic": (1 << 31) - 4, "64bit_offset": (1 << 32) - 4}  # bytes of a variable, by variant
_TRIAL_BYTES = 256 << 10
_LEAST_CHUNK = 4 << 10
_TABLE_CHUNK = 1024  # rows
_MOST_DRAWN = 4096  # samples whose lengths tell the mean

Table = tuple["netCDF4.Variable[Any]", npt.NDArray[Any]]
"""Small variable and the values written to it."""


class NetcdfFiles(FieldFormat):
    """Arrays of ``dataset.fields`` as variables of netCDF files, samples along the first dimension.

    A format says which dimensions there are, what lies beside the arrays, and how samples are found.
    """

    suffix: ClassVar[str] = ".nc"
    has_layout: ClassVar[bool] = True
    may_crash: ClassVar[bool] = True
    mpi_io: ClassVar[MpiIo] = "extents"

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        self.options: NetcdfConfig = config.of(NetcdfConfig)
        super().__init__(config, seed)
        need_netcdf4(self.name)
        self._compressibility = self.options.compressibility
        variant = self.options.variant
        self._elements = [element_of(spec.dtype, variant, spec.name) for spec in self._specs]
        key = f"with dataset.netcdf.variant={variant}"
        chunked = self.options.chunk_bytes or any(field.chunk for field in config.fields)
        if variant != "netcdf4" and (chunked or self.options.compression != "none"):
            settings = f"chunk_bytes={self.options.chunk_bytes}, compression={self.options.compression}"
            raise ConfigError(
                f"dataset.netcdf: {settings} cannot be used {key}: classic variants have neither chunks nor "
                "compression",
                hint="set dataset.netcdf.variant=netcdf4, or remove the settings of chunks and compression",
            )
        for number, field in enumerate(config.fields):
            if variant != "netcdf4" and "/" in field.name:
                raise ConfigError(
                    f"dataset.fields: name={field.name!r} cannot be used {key}, which has no groups",
                    hint="rename the field, or set dataset.netcdf.variant=netcdf4",
                )
            # Wrong chunks and sizes are told before anything is written.
            field_chunk(field, 1, self.options.chunk_bytes)
            self._check_size(number, round(config.samples_per_file * (field.length_mean or 1)))

    def _check_size(self, number: int, rows: int) -> None:
        spec, variant = self._specs[number], self.options.variant
        size = rows * math.prod(spec.shape) * spec.dtype.itemsize
        if size > _LIMITS.get(variant, size) and not self._is_record(number):
            raise ConfigError(
                f"dataset.fields: {spec.name} needs {size} bytes in a file, more than a variable of "
                f"dataset.netcdf.variant={variant} can hold",
                hint="set dataset.netcdf.variant=64bit_data or netcdf4, or lower dataset.samples_per_file",
            )

    def _is_record(self, number: int) -> bool:
        """Whether the array lies along an unlimited dimension."""
        return self.options.unlimited and not self._specs[number].variable

    def layout_options(self) -> dict[str, Any]:
        options = {**super().layout_options(), **vars(self.options)}
        del options["chunk_cache_bytes"]  # belongs to reading: another value reads the same file
        return options

    # --- what a format says ---

    @abstractmethod
    def describe(self, file: netCDF4.Dataset, first_sample: int, rows: Sequence[npt.NDArray[np.int64]]) -> list[Table]:
        """Create the dimensions, attributes and all variables other than the arrays.

        Args:
            file: the new file.
            first_sample: index in the data set of the file's first sample.
            rows: rows of each sample, by field.

        Returns:
            What is to be written when all variables are there.
        """

    @abstractmethod
    def dimensions(self, number: int) -> tuple[str, ...]:
        """Names of the dimensions of field ``number``, which :meth:`describe` created."""

    def table_chunk(self, rows: int, *shape: int) -> dict[str, Any]:
        """Chunk options of a small variable along the samples; the library's default chunks would have a megabyte."""
        if self.options.variant != "netcdf4" or not self.options.unlimited:
            return {}
        return {"chunksizes": (min(rows, _TABLE_CHUNK), *shape)}

    def attributes(self, number: int) -> dict[str, Any]:
        """Attributes of field ``number``."""
        return {}

    @abstractmethod
    def index(self, file: NcFile, number: int, array: Rows) -> RowIndex:
        """Row index of the variable-length field ``number``.

        Raises:
            DataError: the file does not tell.
        """

    def check(self, file: NcFile) -> None:
        """Read the metadata that an application reads when it opens a file.

        Raises:
            DataError: something is missing or does not fit.
        """

    # --- writing ---

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        rows = [self.rows(number, first_sample, num_samples) for number in range(len(self._specs))]
        with creating(path, self.options.variant) as file:
            tables, arrays = self._define(file, first_sample, rows)
            for variable, values in tables:
                variable[:] = values
            for number, variable in enumerate(arrays):
                start, stored = 0, self._elements[number].dtype
                for block in self.blocks(number, first_sample, num_samples, pool):
                    variable[start : start + len(block)] = np.ascontiguousarray(block).view(stored)
                    start += len(block)

    def _define(
        self, file: netCDF4.Dataset, first_sample: int, rows: Sequence[npt.NDArray[np.int64]]
    ) -> tuple[list[Table], list[netCDF4.Variable[Any]]]:
        """Define all variables before data are written; in classic variants a later definition would move data."""
        tables = self.describe(file, first_sample, rows)
        arrays = []
        for number, spec in enumerate(self._specs):
            total = int(rows[number].sum())
            self._check_size(number, total)
            storage: dict[str, Any] = {}
            if self.options.variant == "netcdf4":
                storage = self._storage(number, total)
            variable = create(file, spec.name, self._elements[number], self.dimensions(number), **storage)
            variable.setncatts(self.attributes(number))
            arrays.append(variable)
        return tables, arrays

    def _storage(self, number: int, rows: int) -> dict[str, Any]:
        """Chunk and filter options of a netCDF-4 array."""
        options = self.options
        chunk = self._chunk(number, rows)
        storage: dict[str, Any] = {"contiguous": True} if chunk is None else {"chunksizes": chunk}
        if options.compression == "none":
            return storage
        return storage | {
            "compression": options.compression,
            "complevel": options.compression_level,
            "shuffle": options.shuffle,
        }

    def _chunk(self, number: int, rows: int) -> tuple[int, ...] | None:
        """Chunk shape of a netCDF-4 array; ``None``: contiguous."""
        spec, options = self._specs[number], self.options
        chunk = field_chunk(self.config.fields[number], rows, options.chunk_bytes)
        if chunk is None and (self._is_record(number) or options.compression != "none"):
            size = spec.dtype.itemsize * math.prod(spec.shape)
            return chunk_shape(rows, spec.shape, spec.dtype.itemsize, max(size, _LEAST_CHUNK))
        return chunk

    # --- sizes ---

    def stored_bytes(self) -> float:
        """Mean bytes of a sample in a file, from the size of the data and of an empty file."""
        samples = self.config.samples_per_file
        with temporary_folder() as folder:
            path = folder / "trial.nc"
            rows = [self.rows(number, 0, 1) for number in range(len(self._specs))]
            with creating(path, self.options.variant) as file:
                self._define(file, 0, rows)
            overhead = path.stat().st_size
        if self.options.variant != "netcdf4":  # there, room for the sample is part of the file
            overhead -= sum(self._data(n, int(count[0])) + round(self.table_bytes(n)) for n, count in enumerate(rows))
        total = float(max(0, overhead))
        for number in range(len(self._specs)):
            drawn = self.rows(number, 0, min(samples, _MOST_DRAWN))
            total += self._stored(number, max(1, round(samples * float(drawn.mean()))))
            total += samples * self.table_bytes(number)
        return total / samples

    def table_bytes(self, number: int) -> float:
        """Bytes that each sample of field ``number`` takes in addition to the array."""
        return 0

    def _data(self, number: int, rows: int) -> int:
        spec = self._specs[number]
        return rows * math.prod(spec.shape) * spec.dtype.itemsize

    def _stored(self, number: int, rows: int) -> float:
        """Bytes of an array in a file, including the index of its chunks."""
        spec = self._specs[number]
        chunk = self._chunk(number, rows) if self.options.variant == "netcdf4" else None
        if chunk is None:
            return self._data(number, rows)
        counts = [-(-length // part) for length, part in zip((rows, *spec.shape), chunk, strict=True)]
        # Nodes of a B-tree of HDF5 (version 1) with room for 64 chunks each, on average three quarters full.
        node = 24 + 65 * (8 + 8 * (len(chunk) + 1)) + 64 * 8
        index = node * math.ceil(math.prod(counts) / 48)
        size = math.prod(chunk) * spec.dtype.itemsize  # those at the edges are stored whole, too
        if self.options.compression == "none":
            return math.prod(counts) * size + index
        return self._data(number, rows) * self._ratio(number, size) + index

    def _ratio(self, number: int, chunk_bytes: int) -> float:
        """Compression ratio of a chunk: stored bytes / bytes in memory."""
        dtype = self._specs[number].dtype
        count = max(1, min(chunk_bytes, _TRIAL_BYTES) // dtype.itemsize)
        content = payload.array(payload.rng(self.seed, 0, number), (count,), dtype, self._compressibility)
        stored = content.view(np.uint8).reshape(count, -1)
        if self.options.shuffle:
            stored = np.ascontiguousarray(stored.T)
        return len(zlib.compress(stored.tobytes(), self.options.compression_level)) / content.nbytes

    # --- reading ---

    def inspect(self, path: Path) -> FileInfo:
        names = [spec.name for spec in self._specs]
        check_file(path, [*names, *(spec.name + EXTENTS_SUFFIX for spec in self._specs if spec.variable)])
        with closing(self._open(path)) as reader:
            return FileInfo(reader.num_samples, reader.describe())

    def open(self, path: Path, recorder: Recorder = NULL) -> Reader:
        return self._open(path)

    def layout(self, path: Path) -> FileLayout:
        with closing(self._open(path)) as reader:
            return FileLayout(reader.num_samples, reader.layouts())

    def _open(self, path: Path) -> NetcdfReader:
        file = NcFile(path)
        try:
            self.check(file)
            arrays: dict[str, Rows] = {}
            indexes: dict[str, RowIndex] = {}
            for number, spec in enumerate(self._specs):
                arrays[spec.name] = file.rows(spec.name, spec.dtype, spec.shape, self.options.chunk_cache_bytes)
                if spec.variable:
                    indexes[spec.name] = self.index(file, number, arrays[spec.name])
            return NetcdfReader(file, self._specs, arrays, indexes)
        except BaseException:
            file.close()
            raise
