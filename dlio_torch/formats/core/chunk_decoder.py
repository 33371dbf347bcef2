"""Decoders of stored chunks: native code without the interpreter lock, or Python without a compiler."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dlio_torch import native
from dlio_torch.formats.core.codecs import CRC32C, DEFLATE, FLETCHER32, GZIP_FILE, SHUFFLE, TURNED, ZSTD, decoded
from dlio_torch.formats.core.layout import Chunks, Ints
from dlio_torch.native.chunks import ChunkBatch, ChunkFilter, ChunkResult, NativeChunks
from dlio_torch.native.memory import address_of

_NUMBERS = {
    DEFLATE: ChunkFilter.DEFLATE,
    SHUFFLE: ChunkFilter.SHUFFLE,
    FLETCHER32: ChunkFilter.FLETCHER32,
    TURNED: ChunkFilter.TURNED,
    GZIP_FILE: ChunkFilter.GZIP_FILE,
    ZSTD: ChunkFilter.ZSTD,
    CRC32C: ChunkFilter.CRC32C,
}


class ChunkDecoder(Protocol):
    """Thread-safe protocol for decoding chunks that were read to memory.

    Attributes:
        implementation: the C file or library that does the work, for reports.
    """

    implementation: str

    def decode(self, path: Path, chunks: Chunks, low: int, high: int, stored: Ints, base: int) -> None:
        """Decode chunks ``low`` to ``high`` and copy their fragments to the memory of the batch.

        Args:
            path: their file, for errors.
            chunks: the plan.
            low: first chunk.
            high: the one behind the last.
            stored: address of each of these chunks as stored; int64 of ``(high - low,)``.
            base: address of the memory of the batch.

        Raises:
            DataError: a chunk is damaged; names the file and the chunk.
        """


class PythonChunkDecoder:
    """Decoder of one chunk after another by Python's libraries; inflating releases the interpreter lock.

    Args:
        why: there is no native code.
    """

    def __init__(self, why: str) -> None:
        self.implementation = f"Python's libraries ({why})"

    def decode(self, path: Path, chunks: Chunks, low: int, high: int, stored: Ints, base: int) -> None:
        """See :class:`ChunkDecoder`."""
        for number, address in enumerate(stored.tolist(), start=low):
            content = _content(path, chunks, number, address)
            begin, end = np.searchsorted(chunks.chunk, (number, number + 1))
            fragments = (array[begin:end].tolist() for array in (chunks.source, chunks.lengths, chunks.to))
            _copy(address_of(content), base, zip(*fragments, strict=True))


class NativeChunkDecoder:
    """Decoder in C; a chunk that it refuses goes to Python's libraries, which accept it or say what is wrong.

    Raises:
        NativeUnavailable: there is no library and none could be compiled.
    """

    def __init__(self) -> None:
        self._native = NativeChunks()
        self._python = PythonChunkDecoder("refused by native code")
        self.implementation = self._native.implementation

    def decode(self, path: Path, chunks: Chunks, low: int, high: int, stored: Ints, base: int) -> None:
        """See :class:`ChunkDecoder`."""
        while low < high:
            result, failed = self._native.decode(batch_of(chunks, low, high, stored, base))
            if result is ChunkResult.SOUND:
                return
            refused = low + failed
            self._python.decode(path, chunks, refused, refused + 1, stored[failed : failed + 1], base)
            low, stored = refused + 1, stored[failed + 1 :]


def batch_of(chunks: Chunks, low: int, high: int, stored: Ints, base: int) -> ChunkBatch:
    """Chunks ``low`` to ``high`` of a plan for native code; see :meth:`ChunkDecoder.decode`."""
    begin, end = np.searchsorted(chunks.chunk, (low, high))
    lengths, skipped, source, sizes = map(
        np.ascontiguousarray,
        (chunks.sizes[low:high], chunks.skipped[low:high], chunks.source[begin:end], chunks.lengths[begin:end]),
    )
    filters = [_NUMBERS[name] for name in chunks.filters]
    return ChunkBatch(
        filters, chunks.itemsize, chunks.size, chunks.fill, stored, lengths, skipped, chunks.chunk[begin:end] - low,
        source, sizes, chunks.to[begin:end] + base,
    )  # fmt: skip


def native_file(chunks: Chunks, descriptor: int) -> tuple[Ints, list[npt.NDArray[Any]]]:
    """All chunks of a plan as ``struct chunk_file`` of ``core_tasks.h``, and the arrays that it names."""
    filters = np.array([_NUMBERS[name] for name in chunks.filters], np.int64)
    arrays = [np.ascontiguousarray(array) for array in
              (chunks.sizes, chunks.skipped, chunks.chunk, chunks.source, chunks.lengths, chunks.to)]  # fmt: skip
    sizes, skipped, chunk, source, lengths, to = map(address_of, arrays)
    kept: list[npt.NDArray[Any]] = [filters, *arrays]
    fill = 0
    if chunks.fill is not None:
        kept.append(np.frombuffer(chunks.fill, np.uint8))
        fill = address_of(kept[-1])
    row = (descriptor, len(filters), address_of(filters), chunks.itemsize, chunks.size, fill, len(chunks.offsets), 0,
           sizes, skipped, len(chunks.chunk), chunk, source, lengths, to, 0, 0)  # fmt: skip
    return np.array(row, np.int64), kept


@functools.cache
def open_chunk_decoder() -> ChunkDecoder:
    """The fastest decoder that works on this machine; the same object for every caller."""
    try:
        return NativeChunkDecoder()
    except native.NativeUnavailable as error:
        return PythonChunkDecoder(str(error))


def _content(path: Path, chunks: Chunks, number: int, address: int) -> npt.NDArray[np.uint8]:
    """The bytes of a chunk."""
    length = int(chunks.sizes[number])
    if chunks.fill is not None and not length:
        return np.tile(np.frombuffer(chunks.fill, np.uint8), chunks.size // chunks.itemsize)
    stored = memoryview((ctypes.c_char * length).from_address(address)).cast("B")
    label = f"{path}: the chunk at byte {chunks.offsets[number]}"
    return decoded(stored, chunks.filters, int(chunks.skipped[number]), chunks.size, chunks.itemsize, label)


def _copy(source: int, base: int, fragments: Iterable[tuple[int, int, int]]) -> None:
    for first, length, to in fragments:
        ctypes.memmove(base + to, source + first, length)
