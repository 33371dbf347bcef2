"""Readers of format ``indexed_binary``; see :mod:`dlio_torch.formats.indexed_binary.format` for the file layout."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import ArraySpec, BatchBuffer
from dlio_torch.formats.core.layout import ArrayLayout, Listed, StridedLayout
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.core.stacking import check_range
from dlio_torch.formats.indexed_binary.file import BinFile
from dlio_torch.formats.indexed_binary.gpt_index import EXTRA, GptIndex
from dlio_torch.formats.indexed_binary.index import SequenceIndex
from dlio_torch.formats.indexed_binary.layout import DocumentLayout


class BinaryReader(Reader):
    """Base of the three readers, which differ in how they locate a sample."""

    num_samples: int

    def __init__(self, file: BinFile, spec: ArraySpec) -> None:
        self._file = file
        self._path = file.path
        self._spec = spec
        self._bytes = math.prod(spec.shape) * spec.dtype.itemsize

    def read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        check_range(self._path, self.num_samples, first, count)
        self._read(first, count, buffer, position)

    @abstractmethod
    def _read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        """Read samples after the range of their numbers was checked."""

    def _room(self, buffer: BatchBuffer, position: int, count: int) -> memoryview:
        """Memory of fixed-length samples in the batch, as bytes."""
        return buffer.fixed[self._spec.name][position : position + count].reshape(-1).view(np.uint8).data

    def layout(self) -> ArrayLayout:
        """The layout of the samples: records of equal size, one after another."""
        return StridedLayout(self._path, 0, self._bytes)

    def describe(self) -> dict[str, Any]:
        """Figures of the layout; checks the whole index."""
        return {"bytes": self._file.size}

    def close(self) -> None:
        self._file.close()
        for mapped in ("_index", "_gpt"):
            vars(self).pop(mapped, None)  # the last reference unmaps it

    def _misfit(self, problem: str) -> DataError:
        return DataError(
            f"{self._path}: {problem}",
            hint="replace the damaged file, or correct dataset.fields to describe this data set",
        )


class RecordReader(BinaryReader):
    """Reader of records of equal size, without an index."""

    def __init__(self, file: BinFile, spec: ArraySpec) -> None:
        super().__init__(file, spec)
        self.num_samples, rest = divmod(file.size, self._bytes)
        if rest:
            raise self._misfit(
                f"the file size of {file.size} bytes is not a multiple of the sample size of {self._bytes} bytes"
            )

    def _read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        self._file.read(first * self._bytes, self._room(buffer, position, count))


class SequenceReader(BinaryReader):
    """Reader of samples that are sequences of the index."""

    def __init__(self, file: BinFile, spec: ArraySpec, index: SequenceIndex) -> None:
        super().__init__(file, spec)
        self._index = index
        self.num_samples = len(index)
        if index.end() > file.size:
            raise self._misfit(f"the index ends at byte {index.end()}, but the file has {file.size} bytes")

    def _read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
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
                self._read_rows(first + low, starts[low], sizes[low:high], buffer, position + low)
            else:
                self._file.read(starts[low], self._room(buffer, position + low, high - low))
            low = high

    def layout(self) -> ArrayLayout:
        index = self._index
        sizes = index.lengths if index.dtype.itemsize == 1 else index.lengths * np.int64(index.dtype.itemsize)
        variable = self._spec.variable
        return Listed(self._path, index.pointers, sizes, self._bytes, variable=variable, limit=self._file.size)

    def _read_rows(self, first: int, start: int, sizes: list[int], buffer: BatchBuffer, position: int) -> None:
        for i, size in enumerate(sizes):
            if size < 0 or size % self._bytes or start + size > self._file.size:  # before memory is asked for
                raise self._misfit(
                    f"sample {first + i} has {size} bytes, which is not a multiple of the row size of {self._bytes} "
                    "bytes"
                )
        rows = [size // self._bytes for size in sizes]
        piece = np.empty((sum(rows), *self._spec.shape), self._spec.dtype)
        if piece.size:
            self._file.read(start, piece.reshape(-1).view(np.uint8).data)
        row = 0
        for i, length in enumerate(rows):
            buffer.put(self._spec.name, position + i, piece[row : row + length])
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


class DocumentReader(BinaryReader):
    """Reader of samples that are cut from shuffled documents, with one read for each document that a sample crosses.

    As GPTDataset does (``_query_document_sample_shuffle_indices``), the token behind the sample is read with it.
    """

    def __init__(self, file: BinFile, spec: ArraySpec, index: SequenceIndex, gpt: GptIndex) -> None:
        super().__init__(file, spec)
        self._index = index
        self._gpt = gpt
        self.num_samples = len(gpt)
        self._tokens = np.empty(self._bytes // index.dtype.itemsize + EXTRA, index.dtype)
        if index.end() > file.size:
            raise self._misfit(f"the index ends at byte {index.end()}, but the file has {file.size} bytes")

    def _read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        for i in range(count):
            self._read_one(first + i)
            np.copyto(np.frombuffer(self._room(buffer, position + i, 1), np.uint8), self._octets()[: self._bytes])

    def layout(self) -> ArrayLayout:
        return DocumentLayout(self._path, self._index, self._gpt, self._bytes)

    def _read_one(self, sample: int) -> None:
        """Read one sample into ``self._tokens`` piece by piece."""
        index, gpt = self._index, self._gpt
        slot = int(gpt.shuffle[sample])
        if not 0 <= slot < len(gpt):
            raise self._unfit(sample)
        (first, start), (last, end) = gpt.samples[slot].tolist(), gpt.samples[slot + 1].tolist()
        room, itemsize = self._octets().data, index.dtype.itemsize
        for position in range(first, last + 1):
            document = int(gpt.documents[position]) if 0 <= position < len(gpt.documents) else -1
            if not 0 <= document < len(index):
                raise self._unfit(sample)
            offset = start if position == first else 0
            stop = end + EXTRA if position == last else int(index.lengths[document])
            taken = (stop - offset) * itemsize
            if not 0 <= taken <= len(room):
                raise self._unfit(sample)
            self._file.read(int(index.pointers[document]) + offset * itemsize, room[:taken])
            room = room[taken:]
        if len(room):
            raise self._unfit(sample)

    def _octets(self) -> npt.NDArray[np.uint8]:
        return self._tokens.view(np.uint8)

    def _unfit(self, sample: int) -> DataError:
        return self._misfit(f"sample {sample} of the index of samples contradicts the documents of the file")

    def describe(self) -> dict[str, Any]:
        self._index.check(self._file.size)
        return {**super().describe(), "sequences": len(self._index), "documents": len(self._index.documents) - 1}
