"""Decoding of many stored chunks in one call of ``decode_chunk.c``."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from dlio_torch import native
from dlio_torch.native.memory import address_of

Ints = npt.NDArray[np.int64]
LIBRARIES = ("libdeflate", "isa-l", "zlib-ng", "zlib")
"""Libraries that inflate, in the order of preference."""


class ChunkFilter(IntEnum):
    """Filters of chunks; the first three have HDF5's numbers."""

    DEFLATE = 1
    SHUFFLE = 2
    FLETCHER32 = 3
    TURNED = 4
    GZIP_FILE = 5
    ZSTD = 6
    CRC32C = 7


class ChunkResult(IntEnum):
    """Results of decoding a chunk."""

    SOUND = 0
    DAMAGED = 1
    WRONG_CHECKSUM = 2
    WRONG_SIZE = 3
    UNSUPPORTED = 4
    NO_MEMORY = 5


@dataclass(frozen=True)
class ChunkBatch:
    """Chunks that lie in memory as stored, and the fragments of them that are wanted.

    Attributes:
        filters: in the order of writing.
        itemsize: bytes of an element.
        size: bytes of a decoded chunk.
        fill: an element of chunks of 0 stored bytes, which were never written; ``None``: there are none.
        stored: address of each chunk; int64 of ``(chunks,)``, like the next two contiguous.
        lengths: stored bytes of each.
        skipped: bit ``i``: it was stored without filter ``i``.
        chunk: number of the chunk of each fragment, ascending from 0; int64 of ``(fragments,)``, like the next three.
        source: first byte of each fragment in the decoded chunk.
        sizes: bytes of each fragment.
        to: address of each fragment's destination.
    """

    filters: Sequence[ChunkFilter]
    itemsize: int
    size: int
    fill: bytes | None
    stored: Ints
    lengths: Ints
    skipped: Ints
    chunk: Ints
    source: Ints
    sizes: Ints
    to: Ints


@functools.cache
def inflate_packages() -> tuple[bytes, bytes]:
    """Paths of the files in which the packages isal and zlib-ng hold their libraries; empty where not installed."""
    isal, zlib_ng = (_file_of(*names) for names in (("isal", "isal_zlib"), ("zlib_ng", "zlib_ng")))
    return isal, zlib_ng


def _file_of(package: str, module: str) -> bytes:
    spec = importlib.util.find_spec(package) and importlib.util.find_spec(f"{package}.{module}")
    return os.fsencode(spec.origin) if spec and spec.origin else b""


class NativeChunks:
    """Thread-safe native decoder of chunks, which runs without the interpreter lock.

    Args:
        library: one of :data:`LIBRARIES`; ``None``: the first of them that the machine has.

    Attributes:
        library: the one that inflates; ``None``: the machine has none.
        implementation: the C file and the library that do the work, for reports.

    Raises:
        NativeUnavailable: the C library, or ``library``, is missing on this machine.
    """

    def __init__(self, library: str | None = None) -> None:
        code, file = native.open_library("decode_chunk")
        code.dlio_use_inflate_packages.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
        code.dlio_use_inflate_packages(*inflate_packages())
        self._name = code.dlio_inflate_library
        self._name.restype, self._name.argtypes = ctypes.c_char_p, [ctypes.c_int64]
        available = [name for number, name in enumerate(LIBRARIES) if self._name(number)]
        if library is not None and library not in available:
            raise native.NativeUnavailable(f"the library {library} is not installed")
        self.library = library or next(iter(available), None)
        self.implementation = f"decode_chunk.c, {file.origin}, inflates by {self.library or 'no library'}"
        self._number = LIBRARIES.index(self.library) if self.library else len(LIBRARIES)
        self._decode = code.dlio_decode_chunks
        self._decode.restype = ctypes.c_int64
        self._decode.argtypes = [ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p]

    def decode(self, batch: ChunkBatch) -> tuple[ChunkResult, int]:
        """Decode chunks and copy their fragments.

        Returns:
            The result, and where it is not ``SOUND``, the number of the chunk; those before it are done.
        """
        filters = np.array(batch.filters, np.int64)
        fill = None if batch.fill is None else np.frombuffer(batch.fill, np.uint8)
        fields = (
            len(filters), address_of(filters), batch.itemsize, batch.size, 0 if fill is None else address_of(fill),
            len(batch.stored), *map(address_of, (batch.stored, batch.lengths, batch.skipped)),
            len(batch.chunk), *map(address_of, (batch.chunk, batch.source, batch.sizes, batch.to)),
            0, 0,
        )  # fmt: skip
        described, failed = np.array(fields, np.int64), np.zeros(1, np.int64)
        result = self._decode(self._number, address_of(described), address_of(failed))
        return ChunkResult(result), int(failed[0])
