"""Format ``npy``: one NumPy file per field of a sample, read whole by ``numpy.load``.

With one field a sample is ``<stem>.npy``; with several it is ``<stem>_<name>.npy`` for each, as the cases of
MLPerf's unet3d are (``case_00000_x.npy`` and ``case_00000_y.npy``), or ``<stem><suffix>.npy`` with the suffixes of
``dataset.npz.field_suffixes``.  The first field's file stands for all of them in the manifest.

A data set of one-sample files holds each array as the sample has it; such files are opened, read and closed for
each use.  Files of several samples hold them stacked along the first axis; they are read whole when they are opened,
and stay in memory until they are closed.

``numpy.fromfile`` reads the elements through the C library, whose buffer is this file system's; of an array
that is larger than the buffer it makes one read call and one for what is left of the last block.
"""

from __future__ import annotations

import io
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.files.atomic_file import written_whole
from dlio_torch.formats.core.array_format import FieldFormat
from dlio_torch.formats.core.batch import ArraySpec, BatchBuffer
from dlio_torch.formats.core.buffered_file import (
    Header,
    companion_path,
    load,
    load_direct,
    open_buffered,
    read_header,
    refusing,
)
from dlio_torch.formats.core.direct_file import DirectRaw
from dlio_torch.formats.core.format import FileInfo, MpiIo
from dlio_torch.formats.core.layout import ArrayLayout, FileLayout
from dlio_torch.formats.core.layout_whole_file import Begun, begin, opened
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.core.stacking import (
    HEADER_BYTES,
    Columns,
    StackedReader,
    Stacking,
    agreed,
    check_range,
    put_sample,
    write_header,
)
from dlio_torch.formats.numpy.npy_layout import array_layout, header_of
from dlio_torch.formats.numpy.options import NpzConfig
from dlio_torch.formats.numpy.sample_layout import SAMPLES_OPTION, file_suffixes, stacks_samples
from dlio_torch.iotrace.recorder.spans import NULL, Recorder


class NpyFormat(FieldFormat):
    """Each array of ``dataset.fields`` in a file of its own, as ``numpy.save`` writes it."""

    name: ClassVar[str] = "npy"
    suffix: ClassVar[str] = ".npy"
    reads_direct: ClassVar[bool] = True
    has_layout: ClassVar[bool] = True
    mpi_io: ClassVar[MpiIo] = "extents"
    writes_at_once: ClassVar[bool] = True

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        self.options: NpzConfig = config.of(NpzConfig)
        super().__init__(config, seed)
        self._stacking = Stacking(stacks_samples(config), SAMPLES_OPTION)
        self._suffixes = file_suffixes(config, self._specs)
        self._headers: dict[bytes, Header] = {}
        for spec in self._specs:
            if "/" in spec.name and not self.options.field_suffixes:
                raise ConfigError(
                    f"dataset.fields: name={spec.name!r} contains a slash, but dataset.format=npy uses the name as "
                    "part of a file name",
                    hint="rename the field, set dataset.npz.field_suffixes, or set dataset.format=npz",
                )
            if spec.variable and self._stacking.stacked:
                raise ConfigError(
                    f"dataset.fields: {spec.name} is variable-length, of which dataset.format=npy stores one sample "
                    "per file, but files hold several stacked samples (dataset.samples_per_file="
                    f"{config.samples_per_file}, dataset.npz.samples_in_file={self.options.samples_in_file})",
                    hint="set dataset.samples_per_file=1 or dataset.npz.samples_in_file=one, or dataset.format=npz",
                )
        # This data set's own: files of the other fields are not listed, nor taken for samples.
        vars(self)["suffix"] = self._suffixes[0]

    def _files(self, path: Path) -> list[tuple[ArraySpec, Path]]:
        """Each array and the path of its file; the first path is ``path``."""
        others = zip(self._specs[1:], self._suffixes[1:], strict=True)
        return [(self._specs[0], path), *((spec, companion_path(path, self.suffix, end)) for spec, end in others)]

    def files_per_sample(self) -> int:
        return len(self._specs)

    def layout_options(self) -> dict[str, Any]:
        options = {**super().layout_options(), "stacked": self._stacking.stacked}
        return {**options, "suffixes": self._suffixes} if self.options.field_suffixes else options

    def stored_bytes(self) -> float:
        return self.sample_bytes() + len(self._specs) * HEADER_BYTES / self.config.samples_per_file

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        # Backwards: the first field's file makes the sample complete.
        for number, (spec, place) in reversed(list(enumerate(self._files(path)))):
            rows = int(self.rows(number, first_sample, num_samples).sum())
            opened = written_whole(place) if number else place.open("wb")
            with opened as file:
                write_header(file, spec.dtype, self._stacking.shape(spec, num_samples, rows))
                self.write_pieces(file, number, first_sample, num_samples, pool)

    def inspect(self, path: Path) -> FileInfo:
        counts: dict[str, int] = {}
        details: dict[str, Any] = {}
        for spec, place in self._files(path):
            with _reading(path, place), open_buffered(place, 0) as file:
                header = read_header(file, os.fstat(file.fileno()).st_size, place, spec.name)
                count = self._stacking.count(spec, header.dtype, header.shape, place)
            counts[spec.name] = count if self._stacking.stacked else 1
            details[spec.name] = {"shape": list(header.shape)}
        return FileInfo(agreed(counts, path), details)

    def open(self, path: Path, recorder: Recorder = NULL) -> Reader:
        if self._stacking.stacked:
            return _stacked(self._files(path), self._opened, recorder)
        return _SampleReader(self._files(path), self._opened)

    def layout(self, path: Path) -> FileLayout:
        arrays: dict[str, ArrayLayout] = {}
        counts: dict[str, int] = {}
        stacked, direct = self._stacking.stacked, self.config.direct_io
        begun: list[Begun] = []
        try:
            for number, (spec, place) in enumerate(self._files(path)):
                with _reading(path, place):
                    # Files of several samples are larger, and stay open.
                    expected = math.inf if stacked or direct else self.field_bytes(number) + HEADER_BYTES
                    begun.append(begin(place, expected))
                    header = header_of(begun[-1], spec.name, self._headers)
                    count = self._stacking.count(spec, header.dtype, header.shape, place)
                    arrays[spec.name] = array_layout(header, begun[-1], header.bytes, spec, stacked=stacked)
                counts[spec.name] = count if stacked else 1
            samples = agreed(counts, path)
        except BaseException:
            for file in begun:
                file.close()
            raise
        whole = [file.size for file in begun if file.descriptor is None]
        if direct:  # a reader that bypasses the page cache opens them itself
            for file in begun:
                file.close()
        return FileLayout(samples, arrays, None, opened(begun), len(whole) == len(begun), sum(whole))

    def companion_files(self, path: str) -> Sequence[str]:
        return [str(place) for _, place in self._files(Path(path))[1:]] if len(self._specs) > 1 else []

    def _opened(self, place: Path) -> io.BufferedReader:
        return open_buffered(place, self.options.buffer_bytes, direct=self.config.direct_io)


@contextmanager
def _reading(path: Path, place: Path) -> Iterator[None]:
    """Turn errors of the file ``place`` into errors that also name the sample's first file ``path``."""
    try:
        with refusing(place):
            yield
    except DataError as error:
        if place == path:
            raise
        raise DataError(
            f"{path}: another array of the same samples cannot be read: {error.message}", hint=error.hint
        ) from error


def _load(file: io.BufferedReader, place: Path) -> npt.NDArray[Any]:
    if isinstance(file.raw, DirectRaw):
        return load_direct(file, place)
    array = load(file)
    if not isinstance(array, np.ndarray):
        array.close()
        raise DataError(
            f"{file.name} is an archive of arrays (npz), not a single array (npy)", hint="set dataset.format=npz"
        )
    return array


_Open = Callable[[Path], io.BufferedReader]


class _SampleReader(Reader):
    """Reader of one sample that opens, reads and closes each file for each use; the first use takes the open files."""

    def __init__(self, files: list[tuple[ArraySpec, Path]], open_file: _Open) -> None:
        self._files = files
        self._path = files[0][1]
        self._open = open_file
        with refusing(self._path):
            self._opened: io.BufferedReader | None = open_file(self._path)
        self.num_samples = 1

    def read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        check_range(self._path, 1, first, count)
        for spec, place in self._files:
            with _reading(self._path, place):
                with self._take() or self._open(place) as file:
                    array = _load(file, place)
                put_sample(spec, array, buffer, position, place, SAMPLES_OPTION)

    def _take(self) -> io.BufferedReader | None:
        opened, self._opened = self._opened, None
        return opened

    def close(self) -> None:
        opened = self._take()
        if opened is not None:
            opened.close()


def _stacked(files: list[tuple[ArraySpec, Path]], open_file: _Open, recorder: Recorder) -> StackedReader:
    """Reader of the files of several samples, which are read whole."""
    path = files[0][1]
    arrays: dict[str, npt.NDArray[Any]] = {}
    for spec, place in files:
        began = time.perf_counter_ns()
        with _reading(path, place), open_file(place) as file:
            arrays[spec.name] = _load(file, place)
        recorder.add("read", began, time.perf_counter_ns(), file=str(place))
    return StackedReader(Columns(Stacking(True, SAMPLES_OPTION), [spec for spec, _ in files], arrays, path), path)
