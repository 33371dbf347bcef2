"""Stream reader of a TFRecord file's records, with the read calls that TensorFlow makes.

TensorFlow fills a buffer of set size with ``pread``; a short answer is followed by a request for the rest,
so each file ends with one that returns nothing (tensorflow/core/lib/io/buffered_inputstream.cc).
"""

from __future__ import annotations

import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.tfrecord.example_proto import Octets
from dlio_torch.formats.tfrecord.framing import CRC, FRAMING, HEADER, Checker
from dlio_torch.native.memory import address_of

Pread = Callable[[int, int, int], bytes]
"""Read function (descriptor, size, offset -> bytes): ``os.pread``, or its replacement for direct reads."""

_ALIGNMENT = 64  # bytes; what NumPy's and torch's fast paths want at most
_PLAUSIBLE = 64 << 20  # a longer record is believed only if the file can hold it
_INFLATION = 1032  # deflate makes at most so many bytes of one
_EITHER = 32 + zlib.MAX_WBITS  # the header tells gzip from zlib
_DAMAGED = "the file is damaged or incomplete; replace the file"
_INFLATED = 256 << 10  # TensorFlow's output buffer


class ByteStream(ABC):
    """Byte stream over buffers that are filled on demand."""

    def __init__(self) -> None:
        self._buffer = memoryview(b"")

    @abstractmethod
    def _fill(self) -> bytes:
        """Returns the next buffer, which is empty at and after the end."""

    @abstractmethod
    def most(self) -> int:
        """Upper limit of the bytes in the whole stream."""

    def readinto(self, out: memoryview) -> int:
        """Fill ``out``; returns the bytes read, fewer than requested at the end of the stream."""
        done, size = 0, len(out)
        while done < size:
            if not len(self._buffer):
                self._buffer = memoryview(self._fill())
                if not len(self._buffer):
                    break
            taken = self._buffer[: size - done]
            out[done : done + len(taken)] = taken
            self._buffer = self._buffer[len(taken) :]
            done += len(taken)
        return done


class FileBytes(ByteStream):
    """Byte stream of an open file, read by ``transfer_size`` bytes."""

    def __init__(self, descriptor: int, transfer_size: int, pread: Pread = os.pread) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._pread = pread
        self._size = transfer_size
        self._offset = 0
        self._ended = False

    def _fill(self) -> bytes:
        content = b""
        while len(content) < self._size and not self._ended:
            more = self._pread(self._descriptor, self._size - len(content), self._offset)
            self._ended = not more
            self._offset += len(more)
            content = content + more if content else more
        return content

    def most(self) -> int:
        return os.fstat(self._descriptor).st_size


class DeflatedBytes(ByteStream):
    """Byte stream of the content of a gzip or zlib file, read by ``transfer_size`` compressed bytes.

    Raises:
        DataError: from ``readinto``, where the file is cut or is no such file.
    """

    def __init__(self, descriptor: int, transfer_size: int, path: Path, pread: Pread = os.pread) -> None:
        super().__init__()
        self._file = FileBytes(descriptor, transfer_size, pread)
        self._path = path
        self._engine = zlib.decompressobj(_EITHER)
        self._waiting = b""
        self._begun = False

    def _fill(self) -> bytes:
        while True:
            if not self._waiting:
                self._waiting = self._file._fill()
                if not self._waiting:
                    if self._begun:
                        raise DataError(f"{self._path}: the compressed stream is truncated", hint=_DAMAGED)
                    return b""
            try:
                content = self._engine.decompress(self._waiting, _INFLATED)
            except zlib.error as error:
                raise DataError(
                    f"{self._path} is not a gzip or zlib file or is damaged ({error})", hint=_DAMAGED
                ) from error
            self._waiting, self._begun = self._engine.unconsumed_tail, True
            if self._engine.eof:  # another gzip stream may follow
                self._waiting, self._begun = self._engine.unused_data, False
                self._engine = zlib.decompressobj(_EITHER)
            if content:
                return content

    def most(self) -> int:
        return self._file.most() * _INFLATION


class RecordStream:
    """Splits a byte stream into records.

    Args:
        stream: holds them from its start on.
        path: of the file, for errors.
        verify: check both checksums of each record.

    Attributes:
        number: of the next record.
        offset: of the next record in the stream.
    """

    def __init__(self, stream: ByteStream, path: Path, *, verify: bool) -> None:
        self._stream = stream
        self._checker = Checker(path, verify=verify)
        self._header = bytearray(HEADER.size)
        self._length: int | None = None  # of the next record, if its header has been read
        self._most: int | None = None
        self.number = 0
        self.offset = 0

    def peek(self) -> int | None:
        """Length of the next record's data in bytes; ``None`` after the last record.

        Raises:
            DataError: the header is cut or damaged.
        """
        if self._length is None:
            got = self._stream.readinto(memoryview(self._header))
            if got == 0:
                return None
            length = self._checker.header(bytes(self._header[:got]), self.number, self.offset)
            if length > _PLAUSIBLE:
                if self._most is None:
                    self._most = self._stream.most()
                self._checker.fits(length, self._most - self.offset, self.number, self.offset)
            self._length = length
        return self._length

    def next(self, lead: int = 0, *, verify: bool = True) -> Octets | None:
        """Reads the data of the next record into new memory; ``None`` after the last record.

        Args:
            lead: which of its bytes is to be aligned.
            verify: ``False`` leaves out the checksum of the data.

        Raises:
            DataError: the file is cut or damaged; names the record and its offset.
        """
        length = self.peek()
        if length is None:
            return None
        memory = _aligned(length + CRC.size, lead)
        if self._stream.readinto(memory.data) < len(memory):
            raise self._checker.damaged(self.number, self.offset, "the file ends within the data of the record")
        data = memory[:length]
        if verify:
            self._checker.data(data, memory[length:].tobytes(), self.number, self.offset)
        self._length = None
        self.number += 1
        self.offset += length + FRAMING
        return data


def _aligned(size: int, lead: int) -> Octets:
    """Allocates ``size`` bytes of which byte number ``lead`` is aligned."""
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    skip = -(address_of(memory) + lead) % _ALIGNMENT
    return memory[skip : skip + size]
