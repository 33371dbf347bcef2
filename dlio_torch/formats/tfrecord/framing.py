"""TFRecord framing (length, checksums), compatible with TensorFlow.

A record is its length (u64), the masked CRC-32C of these eight bytes, the data, and their masked CRC-32C
(tensorflow/core/lib/io/record_writer.h).  A file is records one after another, and nothing else; a
compressed one is the same in one gzip or zlib stream.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.core.libraries import import_library
from dlio_torch.formats.core.ordered_map import in_order
from dlio_torch.formats.tfrecord.example_proto import Octets, Piece

HEADER = struct.Struct("<QI")
LENGTH = struct.Struct("<Q")
CRC = struct.Struct("<I")
FRAMING = HEADER.size + CRC.size
"""Bytes of the framing of a record (lengths and checksums)."""

GZIP_MAGIC = b"\x1f\x8b"
_LAST_BLOCK = b"\x03\x00"  # of a deflate stream, empty


# --- checksums ---


def crc32c() -> Callable[[int, Any], int]:
    """Returns the function ``extend(crc, data)`` of the package google-crc32c.

    Raises:
        MissingPackageError: it is not installed.
    """
    library = import_library("google_crc32c", "TFRecord files need the package google-crc32c", "tfrecord")
    return library.extend  # type: ignore[no-any-return]


def masked(crc: int) -> int:
    """Masks a checksum as TFRecord files store it (tensorflow/core/lib/hash/crc32c.h)."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


# --- writing ---


def frame(pieces: list[Piece]) -> list[Piece]:
    """Frames a record whose data are the concatenated ``pieces``."""
    extend = crc32c()
    length = LENGTH.pack(sum(len(piece) for piece in pieces))
    crc = 0
    for piece in pieces:
        crc = extend(crc, piece)
    return [length + CRC.pack(masked(extend(0, length))), *pieces, CRC.pack(masked(crc))]


def view_of(piece: Piece | memoryview) -> memoryview:
    """The memory of a piece as bytes to write to a file."""
    return piece.data if isinstance(piece, np.ndarray) else memoryview(piece)


def gzipped(pieces: Iterable[Piece | memoryview], level: int, pool: Executor) -> Iterator[bytes]:
    """Compresses to one gzip stream whose bytes do not depend on the number of threads; 1 MiB parts are independent."""
    crc = size = 0

    def counted() -> Iterator[bytes]:
        nonlocal crc, size
        for part in _parts(pieces, 1 << 20):
            crc, size = zlib.crc32(part, crc), size + len(part)
            yield part

    # No name, no time, "Unix": the header that zlib writes for TensorFlow.
    yield GZIP_MAGIC + b"\x08\x00\x00\x00\x00\x00\x00\x03"
    yield from in_order(pool, partial(_deflated_part, level), counted(), 16)
    yield _LAST_BLOCK + struct.pack("<II", crc, size & 0xFFFFFFFF)


def deflated(pieces: Iterable[Piece | memoryview], level: int, pool: Executor) -> Iterator[bytes]:
    """Same as :func:`gzipped`, but as a zlib stream (RFC 1950)."""
    adler = 1

    def counted() -> Iterator[bytes]:
        nonlocal adler
        for part in _parts(pieces, 1 << 20):
            adler = zlib.adler32(part, adler)
            yield part

    yield zlib.compress(b"", level)[:2]
    yield from in_order(pool, partial(_deflated_part, level), counted(), 16)
    yield _LAST_BLOCK + struct.pack(">I", adler)


def _deflated_part(level: int, part: bytes) -> bytes:
    """Compresses a part of a deflate stream; it ends on a byte (a sync flush), so that others may follow it."""
    engine = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    return engine.compress(part) + engine.flush(zlib.Z_SYNC_FLUSH)


def _parts(pieces: Iterable[Piece | memoryview], size: int) -> Iterator[bytes]:
    """Splits the bytes of ``pieces`` into parts of ``size`` bytes."""
    held = bytearray()
    for piece in pieces:
        view = view_of(piece)
        while view:
            taken = view[: size - len(held)]
            held += taken
            view = view[len(taken) :]
            if len(held) == size:
                yield bytes(held)
                held.clear()
    if held:
        yield bytes(held)


# --- checks ---


class Checker:
    """Checker of the framing of one file's records.

    Args:
        path: of the file, for errors.
        verify: look at the checksums.
    """

    def __init__(self, path: Path, *, verify: bool) -> None:
        self._path = path
        self._extend = crc32c() if verify else None

    def header(self, header: bytes, number: int, offset: int) -> int:
        """Returns the data length from a record's header.

        Args:
            header: twelve bytes, or fewer where the file ends.
            number: of the record.
            offset: of its header in the stream of records.

        Raises:
            DataError: the header is cut, or its checksum is wrong.
        """
        if len(header) < HEADER.size:
            raise self.damaged(number, offset, "the file ends within the header of the record")
        length, crc = HEADER.unpack(header)
        if self._extend is not None and masked(self._extend(0, header[: LENGTH.size])) != crc:
            if number == 0 and header.startswith(GZIP_MAGIC):
                raise DataError(
                    f"{self._path} is gzip-compressed, but dataset.tfrecord.compression=none",
                    hint="set dataset.tfrecord.compression=gzip",
                )
            raise self.damaged(number, offset, "the checksum of the record's length is wrong")
        return int(length)

    def fits(self, length: int, room: int, number: int, offset: int) -> None:
        """Raise unless a record of ``length`` bytes fits into the rest of the file.

        Raises:
            DataError: it has not.
        """
        if length > room - FRAMING:
            raise self.damaged(number, offset, f"the record's length of {length} bytes exceeds the rest of the file")

    def data(self, data: Octets, stored: bytes, number: int, offset: int) -> None:
        """Verify a record's data with the stored checksum.

        Raises:
            DataError: it is wrong.
        """
        if self._extend is not None and masked(self._extend(0, data)) != CRC.unpack(stored)[0]:
            raise self.damaged(number, offset, "the checksum of the record's data is wrong")

    def damaged(self, number: int, offset: int, problem: str) -> DataError:
        """Returns the error for a damaged record."""
        return DataError(
            f"{self._path}: record {number} at byte {offset}: {problem}",
            hint="the file is damaged or incomplete; replace the file",
        )
