"""Format ``hdf5``: one array per field of a sample, with samples stacked along the first axis.

A fixed-length field ``f`` is an array of shape (samples, *shape).  A variable-length one is an array
of shape (all rows, *shape) and beside it ``f_extents`` with {first u8, N u4} for each sample: the
scheme of larcv3, read with one small and one large request.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import h5py
import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core import payload
from dlio_torch.formats.core.array_specs import specs_of
from dlio_torch.formats.core.batch import ArraySpec, BatchBuffer, Sample
from dlio_torch.formats.core.chunk_shapes import field_chunk
from dlio_torch.formats.core.column import Column
from dlio_torch.formats.core.format import FileInfo, Format, MpiIo
from dlio_torch.formats.core.layout import FileLayout
from dlio_torch.formats.core.mpi_file import Ranks, SharedFile
from dlio_torch.formats.core.ragged import EXTENTS_SUFFIX, check_table_names
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.hdf5.mpi_file import Hdf5Shared, check_parallel
from dlio_torch.formats.hdf5.options import Hdf5Config
from dlio_torch.formats.hdf5.reader import EXTENTS, Hdf5Reader
from dlio_torch.formats.hdf5.writer import write_array
from dlio_torch.iotrace.recorder.spans import NULL, Recorder

_EXTENTS_CHUNK = 1024
_OF_READING = ("chunk_cache_bytes", "driver", "reopen", "crop")  # another value reads the same file
_TRIAL_BYTES = 256 << 10


class Hdf5Format(Format):
    """Arrays of ``dataset.fields`` in HDF5 files."""

    name: ClassVar[str] = "hdf5"
    suffix: ClassVar[str] = ".h5"
    has_layout: ClassVar[bool] = True
    may_crash: ClassVar[bool] = True
    mpi_io: ClassVar[MpiIo] = "library"
    writes_at_once: ClassVar[bool] = True
    reads_columns: ClassVar[bool] = True

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        self.options: Hdf5Config = config.of(Hdf5Config)
        super().__init__(config, seed)
        if not config.fields and config.path is not None:
            raise ConfigError(
                f"dataset.path={config.path}: dataset.fields is empty, so that no array is read",
                hint=f"name arrays that `python -m dlio_torch inspect {config.path}` lists as readable",
            )
        self._specs = specs_of(config.fields)
        check_table_names(self._specs)
        for field in config.fields:
            self._chunk(field, 1)  # a wrong chunk is told before anything is written
            _check_select(field)
        self._select = {field.name: tuple(field.select) for field in config.fields}

    def specs(self) -> list[ArraySpec]:
        return [
            replace(spec, shape=(len(select), *spec.shape[1:])) if (select := self._select[spec.name]) else spec
            for spec in self._specs
        ]

    def layout_options(self) -> dict[str, Any]:
        options = super().layout_options()
        for key in _OF_READING:
            del options[key]
        options["fields"] = [{k: v for k, v in field.items() if k != "select"} for field in options["fields"]]
        return options

    def expected(self, sample: int) -> Sample:
        arrays: Sample = {}
        for number, field in enumerate(self.config.fields):
            content = self._column(number, field).content(sample, 1)[0]
            arrays[field.name] = content[field.select] if field.select else content
        return arrays

    def rows(self, first: int, count: int) -> Sample:
        """Content of ``count`` samples of fixed length from ``first`` on, along the first axis of each array."""
        columns = ((spec, self._column(number, field)) for number, (spec, field) in self._numbered())
        return {spec.name: column.elements(first, count).reshape(count, *spec.shape) for spec, column in columns}

    def _numbered(self) -> Iterator[tuple[int, tuple[ArraySpec, FieldConfig]]]:
        return enumerate(zip(self._specs, self.config.fields, strict=True))

    def _column(self, number: int, field: FieldConfig) -> Column:
        """The generator of the content of one field."""
        rows, share = partial(self._lengths, number, field), self.options.compressibility
        return Column(self._specs[number], self.seed, number, rows, field.length_mean or 1, share)

    def _lengths(self, number: int, field: FieldConfig, first: int, count: int) -> npt.NDArray[np.int64]:
        """Rows of each sample; 1 for fixed-length fields, whose samples are one row of the array."""
        if field.length_mean <= 0:
            return np.ones(count, np.int64)
        return payload.lengths(self.seed, number, first, count, field.length_mean, field.length_stdev)

    def sample_bytes(self) -> float:
        return sum(
            math.prod(spec.shape) * spec.dtype.itemsize * (field.length_mean or 1)
            for spec, field in zip(self.specs(), self.config.fields, strict=True)
        )

    def stored_bytes(self) -> float:
        samples = self.config.samples_per_file
        total = 0.0
        for number, field in enumerate(self.config.fields):
            rows = max(1, round(samples * (field.length_mean or 1)))
            chunk = self._chunk(field, rows)
            size = (rows, *field.shape)
            if chunk is not None and self.options.compression == "none":
                # Chunks at the edges are stored whole.
                size = tuple(-(-length // part) * part for length, part in zip(size, chunk, strict=True))
            stored = math.prod(size) * np.dtype(field.dtype).itemsize * self._ratio(number, field, chunk)
            total += stored + (samples * EXTENTS.itemsize if field.length_mean > 0 else 0)
        return total / samples

    def _ratio(self, number: int, field: FieldConfig, chunk: tuple[int, ...] | None) -> float:
        """Compression ratio (stored bytes / bytes in memory) of a trial chunk, which is written to a file in memory."""
        if chunk is None or self.options.compression == "none":
            return 1.0
        dtype = np.dtype(field.dtype)
        count = min(math.prod(chunk), max(1, _TRIAL_BYTES // dtype.itemsize))
        content = payload.array(payload.rng(self.seed, 0, number), (count,), dtype, self.options.compressibility)
        with h5py.File("trial", "w", driver="core", backing_store=False) as file:
            array = file.create_dataset("trial", data=content, chunks=(count,), **self._filters())
            file.flush()
            return float(array.id.get_chunk_info(0).size / content.nbytes)

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        with h5py.File(path, "w", libver="earliest") as file:
            for number, field in enumerate(self.config.fields):
                rows = self._lengths(number, field, first_sample, num_samples)
                array = self._create(file, field, int(rows.sum()))
                if field.length_mean > 0:
                    self._write_extents(file, field, rows)
                write_array(array, path, self._column(number, field), first_sample, num_samples, pool)

    def _chunk(self, field: FieldConfig, rows: int) -> tuple[int, ...] | None:
        """Chunk shape of the field's array of ``rows`` rows; ``None``: contiguous."""
        return field_chunk(field, rows, self.options.chunk_bytes)

    def _filters(self) -> dict[str, object]:
        options = self.options
        if options.compression == "none":
            return {}
        level = {"compression_opts": options.compression_level} if options.compression == "gzip" else {}
        return {"compression": options.compression, **level}

    def _create(self, file: h5py.File, field: FieldConfig, rows: int) -> h5py.Dataset:
        chunk = self._chunk(field, rows)
        filters = self._filters() if chunk is not None else {}
        return file.create_dataset(field.name, (rows, *field.shape), np.dtype(field.dtype), chunks=chunk, **filters)

    def _write_extents(self, file: h5py.File, field: FieldConfig, rows: npt.NDArray[np.int64]) -> None:
        table = np.zeros(len(rows), EXTENTS)
        table["first"] = np.concatenate([[0], np.cumsum(rows)[:-1]])
        table["N"] = rows
        chunked = self.options.chunk_bytes > 0 or field.chunk is not None
        chunks = (min(_EXTENTS_CHUNK, len(rows)),) if chunked else None
        file.create_dataset(field.name + EXTENTS_SUFFIX, data=table, chunks=chunks)

    def inspect(self, path: Path) -> FileInfo:
        with self._open_all(path) as reader:
            return FileInfo(reader.rows, reader.describe())

    def open(self, path: Path, recorder: Recorder = NULL) -> Reader:
        return Hdf5Reader(path, self._specs, self._select, self.options)

    def look_at_shapes(self, path: Path) -> None:
        """Opens each array and queries its shape without reading: ``f["a"].shape; f["b"].shape``."""
        self._open_all(path).close()

    def read_once(self, path: Path, columns: Sequence[int] = ()) -> None:
        """Reads each array: ``f["a"][:]; f["b"][:]``, or ``f["a"][:, column]`` for each of ``columns``."""
        with Hdf5Reader(path, self._specs, {}, replace(self.options, reopen="array")) as reader:
            if not columns:
                count = reader.rows
                reader.read(0, count, BatchBuffer(self.specs(), range(count)), 0)
            for spec in self._specs if columns else ():
                for column in columns:
                    reader.read_column(spec.name, column)

    def layout(self, path: Path) -> FileLayout:
        with self._open_all(path) as reader:
            return FileLayout(reader.rows, reader.layouts())

    def check_shared(self) -> None:
        check_parallel()

    def open_shared(self, path: Path, ranks: Ranks) -> SharedFile:
        return Hdf5Shared(path, self._specs, self._select, self.options, ranks)

    def _open_all(self, path: Path) -> Hdf5Reader:
        """Opens the file and all its arrays, which stay open."""
        return Hdf5Reader(path, self._specs, self._select, replace(self.options, reopen="none"))


def _check_select(field: FieldConfig) -> None:
    chosen = field.select
    if not chosen:
        return
    if field.length_mean > 0 or not field.shape:
        raise ConfigError(
            f"dataset.fields: {field.name}: select={chosen} needs a fixed-length field with at least one axis",
            hint="remove select from the field",
        )
    if chosen != sorted(set(chosen)) or not 0 <= chosen[0] <= chosen[-1] < field.shape[0]:
        raise ConfigError(
            f"dataset.fields: {field.name}: select={chosen} must be ascending indices below {field.shape[0]}",
            hint="set a list of indices such as [0, 1, 2]",
        )
