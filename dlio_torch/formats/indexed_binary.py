"""Flat binary files: the elements of all samples one after another, found through an index beside them.

The layout and the calls are Megatron-LM's: ``access=file`` opens, seeks, reads and closes the ``.bin`` for
each piece (its --no-mmap-bin-files), ``access=mmap`` copies pieces out of the mapped file.  Samples of a fixed
length may be cut from documents end to end, as Megatron-LM's are; one that crosses a boundary is read in a
piece for each document.  Without an index the file is records of equal size, as the binary rows of DLRM.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats import payload
from dlio_torch.formats.base import FileInfo, Reader, open_error
from dlio_torch.formats.batch import ArraySpec, BatchBuffer
from dlio_torch.formats.binfile import BinFile, MappedFile, ReadFile
from dlio_torch.formats.fieldformat import FieldFormat
from dlio_torch.formats.megatron_index import CODES, MAX_LENGTH, SUFFIX, Index, read_index, write_index
from dlio_torch.formats.pyfile import beside
from dlio_torch.formats.stacking import check_range
from dlio_torch.trace.spans import NULL, Recorder

_BLOCK = 1 << 20  # samples whose lengths are drawn at a time
_DOCUMENTS = 1  # stream of the lengths of documents


class IndexedBinaryFormat(FieldFormat):
    """The one array of ``dataset.fields`` in ``.bin`` files."""

    name: ClassVar[str] = "indexed_binary"
    suffix: ClassVar[str] = ".bin"

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        super().__init__(config, seed)
        options = config.binary
        if len(self._specs) > 1:
            raise ConfigError(
                f"dataset.fields names {len(self._specs)} arrays with dataset.format={self.name}",
                hint="a sample is one array of elements; join them",
            )
        self._spec = self._specs[0]
        # Types that an index does not know are stored as bytes.
        self._element = self._spec.dtype if self._spec.dtype.name in CODES else np.dtype(np.uint8)
        self._row = math.prod(self._spec.shape) * self._spec.dtype.itemsize // self._element.itemsize
        if options.index and self._row > MAX_LENGTH:
            raise ConfigError(
                f"dataset.fields: {self._spec.name} has {self._row} elements, an index counts up to {MAX_LENGTH}",
                hint="set dataset.binary.index=false, or a smaller shape",
            )
        if self._spec.variable and not options.index:
            raise ConfigError(
                f"dataset.binary.index=false with the variable-length field {self._spec.name!r}",
                hint="records without an index are of equal size; set dataset.binary.index=true",
            )
        if options.document_mean > 0 and (self._spec.variable or not options.index):
            raise ConfigError(
                f"dataset.binary.document_mean={options.document_mean:g} needs samples of a fixed length and an index",
                hint="set dataset.binary.document_mean=0, or give the field a shape and no length_mean",
            )

    def layout_options(self) -> dict[str, Any]:
        options = self.config.binary
        return {
            **super().layout_options(),
            "index": options.index,
            "documents": [options.document_mean, options.document_stdev],
        }

    def stored_bytes(self) -> float:
        if not self.config.binary.index:
            return self.sample_bytes()
        documents = self.config.binary.document_mean
        sequences = self.sample_bytes() / self._element.itemsize / documents if documents > 0 else 1.0
        return self.sample_bytes() + 20 * sequences

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        if self.config.binary.index:
            place = beside(path, self.suffix, SUFFIX)
            if self.config.binary.document_mean > 0:
                documents = self._documents(first_sample, num_samples * self._row)
                write_index(place, self._element, len(documents), lambda: [documents])
            else:
                write_index(place, self._element, num_samples, lambda: self._lengths(first_sample, num_samples))
        with path.open("wb") as file:
            for block in self.blocks(0, first_sample, num_samples, pool):
                file.write(np.ascontiguousarray(block).view(np.uint8).data)

    def _lengths(self, first: int, count: int) -> Iterator[npt.NDArray[np.int64]]:
        """Elements of each sample of a file; an index of 10**8 of them is not held in memory."""
        for low in range(first, first + count, _BLOCK):
            yield self.rows(0, low, min(_BLOCK, first + count - low)) * self._row

    def _documents(self, first: int, elements: int) -> npt.NDArray[np.int64]:
        """Elements of the documents that a file's samples are cut from; the last one is cut off."""
        options = self.config.binary
        mean = options.document_mean
        drawn = np.zeros(0, np.int64)
        while drawn.sum() < elements:
            more = 16 + int((elements - drawn.sum()) / mean)
            found = payload.lengths(self.seed, _DOCUMENTS, first + len(drawn), more, mean, options.document_stdev)
            drawn = np.concatenate([drawn, found])
        ends = np.cumsum(drawn)
        last = int(np.searchsorted(ends, elements))
        drawn[last] -= ends[last] - elements
        return drawn[: last + 1]

    def inspect(self, path: Path) -> FileInfo:
        with closing(self._open(path)) as reader:
            return FileInfo(reader.num_samples, reader.describe())

    def open(self, path: Path, recorder: Recorder = NULL) -> Reader:
        return self._open(path)

    def _open(self, path: Path) -> _Reader:
        options = self.config.binary
        if not path.exists():
            raise open_error(path, FileNotFoundError())
        index = self._index(path) if options.index else None
        file = MappedFile(path) if options.access == "mmap" else ReadFile(path)
        try:
            if index is None:
                return _RecordReader(file, self._spec)
            if options.document_mean > 0:
                return _DocumentReader(file, self._spec, index)
            return _SequenceReader(file, self._spec, index)
        except BaseException:
            file.close()
            raise

    def _index(self, path: Path) -> Index:
        place = beside(path, self.suffix, SUFFIX)
        try:
            index = read_index(place)
        except DataError as error:
            raise DataError(f"{path} has no usable index: {error.message}", hint=error.hint) from error
        if index.dtype != self._element:
            raise DataError(
                f"{path}: its index says {index.dtype}, expected {self._element} of dataset.fields",
                hint="correct the dtype in dataset.fields",
            )
        return index


class _Reader(Reader):
    """What the three ways of finding a sample share."""

    num_samples: int

    def __init__(self, file: BinFile, spec: ArraySpec) -> None:
        self._file = file
        self._path = file.path
        self._spec = spec
        self._bytes = math.prod(spec.shape) * spec.dtype.itemsize

    def read(self, first: int, count: int, buffer: BatchBuffer, at: int) -> None:
        check_range(self._path, self.num_samples, first, count)
        self._read(first, count, buffer, at)

    @abstractmethod
    def _read(self, first: int, count: int, buffer: BatchBuffer, at: int) -> None:
        """Read samples that the file holds."""

    def _room(self, buffer: BatchBuffer, at: int, count: int) -> memoryview:
        """The bytes of fixed-length samples in the batch."""
        return buffer.fixed[self._spec.name][at : at + count].reshape(-1).view(np.uint8).data

    def describe(self) -> dict[str, Any]:
        """Figures of the layout; looks at the whole index."""
        return {"bytes": self._file.size}

    def close(self) -> None:
        self._file.close()
        vars(self).pop("_index", None)  # the last reference unmaps it

    def _misfit(self, what: str) -> DataError:
        return DataError(f"{self._path}: {what}", hint="the file is damaged, or dataset.fields is another data set's")


class _RecordReader(_Reader):
    """Records of equal size, without an index."""

    def __init__(self, file: BinFile, spec: ArraySpec) -> None:
        super().__init__(file, spec)
        self.num_samples, rest = divmod(file.size, self._bytes)
        if rest:
            raise self._misfit(f"{file.size} bytes are no whole number of samples of {self._bytes} bytes")

    def _read(self, first: int, count: int, buffer: BatchBuffer, at: int) -> None:
        self._file.read(first * self._bytes, self._room(buffer, at, count))


class _SequenceReader(_Reader):
    """Each sample is a sequence of the index."""

    def __init__(self, file: BinFile, spec: ArraySpec, index: Index) -> None:
        super().__init__(file, spec)
        self._index = index
        self.num_samples = len(index)
        if index.end() > file.size:
            raise self._misfit(f"its index ends at byte {index.end()}, the file has {file.size} bytes")

    def _read(self, first: int, count: int, buffer: BatchBuffer, at: int) -> None:
        starts = self._index.pointers[first : first + count].tolist()
        sizes = [n * self._index.dtype.itemsize for n in self._index.lengths[first : first + count].tolist()]
        if not self._spec.variable:
            for i, size in enumerate(sizes):
                if size != self._bytes:
                    raise self._misfit(f"sample {first + i} has {size} bytes, expected {self._bytes}")
        low = 0
        while low < count:
            # Sequences that lie one after another are one piece.
            high = low + 1
            while high < count and starts[high] == starts[high - 1] + sizes[high - 1]:
                high += 1
            if self._spec.variable:
                self._read_rows(first + low, starts[low], sizes[low:high], buffer, at + low)
            else:
                self._file.read(starts[low], self._room(buffer, at + low, high - low))
            low = high

    def _read_rows(self, first: int, start: int, sizes: list[int], buffer: BatchBuffer, at: int) -> None:
        for i, size in enumerate(sizes):
            if size < 0 or size % self._bytes or start + size > self._file.size:  # before memory is asked for
                raise self._misfit(f"sample {first + i} has {size} bytes, rows have {self._bytes}")
        rows = [size // self._bytes for size in sizes]
        piece = np.empty((sum(rows), *self._spec.shape), self._spec.dtype)
        if piece.size:
            self._file.read(start, piece.reshape(-1).view(np.uint8).data)
        row = 0
        for i, length in enumerate(rows):
            buffer.put(self._spec.name, at + i, piece[row : row + length])
            row += length

    def describe(self) -> dict[str, Any]:
        self._index.check(self._file.size)
        if not self._spec.variable:
            row = self._bytes // self._index.dtype.itemsize
            wrong = np.flatnonzero(self._index.lengths != row)
            if len(wrong):
                length = int(self._index.lengths[wrong[0]])
                raise self._misfit(f"sample {int(wrong[0])} has {length} elements, expected {row}")
        return {**super().describe(), "sequences": len(self._index), "documents": len(self._index.documents) - 1}


class _DocumentReader(_Reader):
    """Samples are cut from the sequences end to end; a sample is read in a piece for each."""

    def __init__(self, file: BinFile, spec: ArraySpec, index: Index) -> None:
        super().__init__(file, spec)
        self._index = index
        self.num_samples = index.end() // self._bytes
        if index.end() > file.size:
            raise self._misfit(f"its index ends at byte {index.end()}, the file has {file.size} bytes")

    def _read(self, first: int, count: int, buffer: BatchBuffer, at: int) -> None:
        for i in range(count):
            self._read_one((first + i) * self._bytes, self._room(buffer, at + i, 1))

    def _read_one(self, offset: int, room: memoryview) -> None:
        index = self._index
        sequence = int(np.searchsorted(index.pointers, offset, side="right")) - 1
        while len(room):
            if sequence >= len(index):
                raise self._misfit(f"its index has no sequence at byte {offset}")
            end = int(index.pointers[sequence]) + int(index.lengths[sequence]) * index.dtype.itemsize
            taken = min(len(room), end - offset)
            if taken > 0:
                self._file.read(offset, room[:taken])
                room, offset = room[taken:], offset + taken
            sequence += 1
            if len(room) and sequence < len(index) and int(index.pointers[sequence]) != offset:
                raise self._misfit(f"sequence {sequence} of its index does not begin where the one before ends")

    def describe(self) -> dict[str, Any]:
        self._index.check(self._file.size)
        return {**super().describe(), "sequences": len(self._index)}
