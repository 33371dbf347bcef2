"""Format ``npz``: NumPy zip archives with one member per field of a sample, read by ``numpy.load``.

A data set of one-sample files holds each array as the sample has it, as FRNN's shots and MLPerf's unet3d
cases; such a file is opened, read and closed for each use.  Files of several samples hold them stacked
along an axis (a variable-length field: all rows, and ``<name>_lengths``); they are read whole when they are
opened, and stay in memory until they are closed.

A member of an archive of one sample may be a pickled dictionary of arrays, as ``signals_dict`` of FRNN's shots is.
"""

from __future__ import annotations

import io
import math
import time
import zipfile
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core import payload
from dlio_torch.formats.core.array_format import FieldFormat
from dlio_torch.formats.core.batch import ArraySpec, BatchBuffer
from dlio_torch.formats.core.buffered_file import load, open_buffered, read_header, refusing
from dlio_torch.formats.core.format import FileInfo, MpiIo
from dlio_torch.formats.core.layout import FileLayout
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.core.stacking import (
    HEADER_BYTES,
    LENGTHS_SUFFIX,
    Columns,
    StackedReader,
    Stacking,
    agreed,
    check_range,
    ends_of,
    put_sample,
    write_header,
)
from dlio_torch.formats.numpy.npz_layout import archive_layout
from dlio_torch.formats.numpy.options import NpzConfig
from dlio_torch.formats.numpy.pickled import read_dictionary, write_dictionary
from dlio_torch.formats.numpy.sample_layout import SAMPLES_OPTION, stacks_samples
from dlio_torch.formats.numpy.zip_members import Member, find_member, members_of, new_member
from dlio_torch.iotrace.recorder.spans import NULL, Recorder

_ENTRY_BYTES = 46 + 30 + 20  # of the central directory, of the local header, of its 64-bit sizes
_TRIAL_BYTES = 256 << 10
_PICKLED_BYTES = 80  # of a pickle beside the elements, for each array and for the dictionary


class NpzFormat(FieldFormat):
    """Arrays of ``dataset.fields`` in archives as ``numpy.savez`` writes them."""

    name: ClassVar[str] = "npz"
    suffix: ClassVar[str] = ".npz"
    reads_direct: ClassVar[bool] = True
    has_layout: ClassVar[bool] = True
    mpi_io: ClassVar[MpiIo] = "extents"
    writes_at_once: ClassVar[bool] = True

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        self.options: NpzConfig = config.of(NpzConfig)
        super().__init__(config, seed)
        options = self.options
        self._compressibility = options.compressibility
        self._stacking = Stacking(stacks_samples(config), SAMPLES_OPTION, options.sample_axis == "last")
        self._members = members_of(self._specs, options.pickled)
        if options.pickled and self._stacking.stacked:
            raise ConfigError(
                f"dataset.npz.pickled={options.pickled}: samples in a dictionary are not stacked, but files hold "
                f"several stacked samples (dataset.samples_per_file={config.samples_per_file}, "
                f"dataset.npz.samples_in_file={options.samples_in_file})",
                hint="set dataset.samples_per_file=1 or dataset.npz.samples_in_file=one",
            )
        names = [spec.name for spec in self._specs]
        for spec in self._specs:
            if spec.variable and self._stacking.last:
                raise ConfigError(
                    f"dataset.npz.sample_axis=last cannot be used with the variable-length field {spec.name!r}, "
                    "whose rows lie along the first axis",
                    hint="set dataset.npz.sample_axis=first",
                )
            if spec.variable and spec.name + LENGTHS_SUFFIX in names:
                raise ConfigError(
                    f"dataset.fields: name={spec.name + LENGTHS_SUFFIX!r} is reserved for the lengths of a "
                    "variable-length array",
                    hint="rename it",
                )

    def layout_options(self) -> dict[str, Any]:
        options = super().layout_options()
        # They belong to reading, or to another format; or "stacked" says it.
        for name in ("buffer_bytes", "samples_in_file", "field_suffixes"):
            del options[name]
        return {**options, "stacked": self._stacking.stacked}

    def stored_bytes(self) -> float:
        total = 0.0
        members = 0
        for number, spec in enumerate(self._specs):
            total += self.field_bytes(number) * self._ratio(number, spec)
            members += spec.variable and self._stacking.stacked
            total += 8 * (spec.variable and self._stacking.stacked)
        for member in self._members:
            members += 1
            total += member.pickled * _PICKLED_BYTES * (1 + len(member.fields))
        return total + members * (_ENTRY_BYTES + HEADER_BYTES) / self.config.samples_per_file

    def _ratio(self, number: int, spec: ArraySpec) -> float:
        """Compression ratio (stored bytes / bytes in memory), from compressing a part of the content."""
        if not self.options.compressed:
            return 1.0
        count = max(1, min(int(self.field_bytes(number)), _TRIAL_BYTES) // spec.dtype.itemsize)
        trial = payload.array(payload.rng(self.seed, 0, number), (count,), spec.dtype, self._compressibility)
        return len(zlib.compress(trial.tobytes())) / trial.nbytes

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        compression = zipfile.ZIP_DEFLATED if self.options.compressed else zipfile.ZIP_STORED
        with zipfile.ZipFile(path, "w", compression) as archive:
            for part in self._members:
                if part.pickled:
                    with new_member(archive, part.name) as member:
                        write_dictionary(member, self._dictionary(part, first_sample))
                    continue
                number = part.fields[0]
                spec = self._specs[number]
                rows = self.rows(number, first_sample, num_samples)
                shape = self._stacking.shape(spec, num_samples, int(rows.sum()))
                with new_member(archive, spec.name) as member:
                    write_header(member, spec.dtype, shape)
                    if self._stacking.last:
                        blocks = list(self.blocks(number, first_sample, num_samples, pool))
                        array = np.ascontiguousarray(np.moveaxis(np.concatenate(blocks), 0, -1))
                        member.write(array.view(np.uint8).data)
                    else:
                        self.write_pieces(member, number, first_sample, num_samples, pool)
                if spec.variable and self._stacking.stacked:
                    with new_member(archive, spec.name + LENGTHS_SUFFIX) as member:
                        write_header(member, rows.dtype, rows.shape)
                        member.write(rows.view(np.uint8).data)

    def _dictionary(self, member: Member, sample: int) -> dict[str, npt.NDArray[Any]]:
        """Content of a pickled member as a dictionary of arrays."""
        skipped = len(member.name) + 1
        return {self._specs[number].name[skipped:]: self.content(number, sample, 1)[0] for number in member.fields}

    def inspect(self, path: Path) -> FileInfo:
        with refusing(path), open_buffered(path, 0) as file, zipfile.ZipFile(file) as archive:
            counts: dict[str, int] = {}
            details: dict[str, Any] = {}
            for part in self._members:
                info = find_member(archive, part.name, path)
                specs = [self._specs[number] for number in part.fields]
                if part.pickled:
                    with archive.open(info) as member:
                        arrays = read_dictionary(member, info.file_size, specs, path, part.name)
                        shapes = [array.shape for array in arrays]
                    for spec, shape in zip(specs, shapes, strict=True):
                        counts[spec.name] = 1
                        details[spec.name] = {"shape": list(shape)}
                    continue
                spec = specs[0]
                with archive.open(info) as member:
                    header = read_header(member, info.file_size, path, spec.name)
                count = self._stacking.count(spec, header.dtype, header.shape, path)
                if spec.variable and self._stacking.stacked:
                    count = self._count_lengths(archive, spec, count, path)
                counts[spec.name] = count if self._stacking.stacked else 1
                details[spec.name] = {"shape": list(header.shape), "stored_bytes": info.compress_size}
            return FileInfo(agreed(counts, path), details)

    def _count_lengths(self, archive: zipfile.ZipFile, spec: ArraySpec, rows: int, path: Path) -> int:
        name = spec.name + LENGTHS_SUFFIX
        info = find_member(archive, name, path)
        with archive.open(info) as member:
            read_header(member, info.file_size, path, name)
        with archive.open(info) as member:
            lengths = np.lib.format.read_array(member, allow_pickle=False)
        return len(ends_of(lengths, rows, spec.name, path)) - 1

    def layout(self, path: Path) -> FileLayout:
        direct = self.config.direct_io  # a reader that bypasses the page cache opens the file itself
        expected = math.inf if direct else self._expected_bytes
        return archive_layout(path, self._specs, self._members, self._stacking, expected, keep_open=not direct)

    @cached_property
    def _expected_bytes(self) -> float:
        """Mean bytes of a file."""
        return self.stored_bytes() * self.config.samples_per_file

    def open(self, path: Path, recorder: Recorder = NULL) -> Reader:
        archive = partial(_Archive, path, self.options.buffer_bytes, direct=self.config.direct_io)
        if self._stacking.stacked:
            return _stacked(path, self._specs, self._stacking, archive, recorder)
        return _SampleReader(path, self._specs, self._members, archive)


class _Archive:
    """Open archive, as ``numpy.load(path)`` returns it."""

    def __init__(self, path: Path, buffer_bytes: int, *, direct: bool) -> None:
        self._path = path
        with refusing(path):
            self._file: io.BufferedReader = open_buffered(path, buffer_bytes, direct=direct)
            try:
                self._npz = load(self._file)
                if not isinstance(self._npz, np.lib.npyio.NpzFile):
                    raise DataError(
                        f"{path} is a single array (npy), not an archive of arrays (npz)", hint="set dataset.format=npy"
                    )
            except BaseException:
                self._file.close()
                raise

    def array(self, name: str) -> npt.NDArray[Any]:
        """Reads the whole member ``name``."""
        with refusing(self._path):
            find_member(self._npz.zip, name, self._path)
            array = self._npz[name]
            if not isinstance(array, np.ndarray):  # NumPy gives the bytes of a member that is no array
                raise DataError(
                    f"{self._path}: member {name} is not an array",
                    hint="the file is damaged; generate or fetch the file again",
                )
            return array

    def dictionary(self, name: str, specs: Sequence[ArraySpec]) -> list[npt.NDArray[Any]]:
        """Reads the arrays of the pickled dictionary ``name`` with the calls that ``NpzFile.__getitem__`` makes."""
        with refusing(self._path):
            info = find_member(self._npz.zip, name, self._path)
            with self._npz.zip.open(info.filename) as member:
                member.read(len(np.lib.format.MAGIC_PREFIX))
                member.seek(0)
                return list(read_dictionary(member, info.file_size, specs, self._path, name))

    def close(self) -> None:
        self._npz.close()
        self._file.close()


_Open = Callable[[], _Archive]


class _SampleReader(Reader):
    """Reader of one sample that opens, reads and closes the file for each use; the first use takes the open file."""

    def __init__(self, path: Path, specs: list[ArraySpec], members: list[Member], archive: _Open) -> None:
        self._path = path
        self._members = [(member, [specs[number] for number in member.fields]) for member in members]
        self._open = archive
        self._archive: _Archive | None = archive()
        self.num_samples = 1

    def read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        check_range(self._path, 1, first, count)
        archive = self._archive or self._open()
        self._archive = archive
        try:
            for member, specs in self._members:
                arrays = archive.dictionary(member.name, specs) if member.pickled else [archive.array(member.name)]
                for spec, array in zip(specs, arrays, strict=True):
                    put_sample(spec, array, buffer, position, self._path, SAMPLES_OPTION)
        finally:
            self.close()

    def close(self) -> None:
        if self._archive is not None:
            self._archive.close()
            self._archive = None


def _stacked(
    path: Path, specs: list[ArraySpec], stacking: Stacking, archive: _Open, recorder: Recorder
) -> StackedReader:
    """Reader of a file of several samples, which is read whole."""
    began = time.perf_counter_ns()
    opened = archive()
    arrays: dict[str, npt.NDArray[Any]] = {}
    try:
        for spec in specs:
            arrays[spec.name] = opened.array(spec.name)
            if spec.variable:
                arrays[spec.name + LENGTHS_SUFFIX] = opened.array(spec.name + LENGTHS_SUFFIX)
    finally:
        opened.close()
    recorder.add("read", began, time.perf_counter_ns(), file=str(path))
    return StackedReader(Columns(stacking, specs, arrays, path), path)
