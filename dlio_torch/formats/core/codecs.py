"""Decoders of chunks that run outside of any library's lock: deflate, shuffle, Zstandard, checksums and byte order.

Inflating releases the interpreter lock.  python-isal (extra ``fast``) does it two to three times as fast as the
standard library; both give the same bytes.  Where there is a C compiler, ``chunk_decoder`` decodes by native code and
comes here with what that refuses.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError

DEFLATE, SHUFFLE, FLETCHER32 = "gzip", "shuffle", "fletcher32"
TURNED = "other byte order"
"""Marks elements of the other byte order; not an HDF5 filter, but undone after the filters."""
KNOWN = {1: DEFLATE, 2: SHUFFLE, 3: FLETCHER32}
"""HDF5 filters that this module can undo, by HDF5's filter numbers."""
GZIP_FILE, ZSTD, CRC32C = "gzip file", "zstd", "crc32c"
"""Codecs of Zarr that this module can undo, besides :data:`DEFLATE`; their libraries come with zarr-python."""

_MODULUS = 65535
_WORDS = 1 << 16  # numbers that are summed at a time
_WEIGHTS = np.arange(_WORDS, 0, -1, dtype=np.uint64)

_GZIP = 16  # added to the window bits of zlib
_GAIN = 1032  # of deflate, at most
_ROOM = 256 << 20  # bytes that a chunk may become unseen

_DAMAGE: tuple[Any, ...] = (zlib.error,)
_inflate: Callable[..., Any] = zlib.decompress
_inflater: Callable[[int], Any] = zlib.decompressobj
try:
    from isal import isal_zlib
except ImportError:
    pass
else:
    _inflate, _inflater = isal_zlib.decompress, isal_zlib.decompressobj
    _DAMAGE = (zlib.error, isal_zlib.error)


def inflated(stored: Any, size: int, label: str, *, bare: bool = False, framed: bool = False) -> Any:
    """Decompresses a deflate stream outside of the interpreter lock.

    Args:
        stored: the stream.
        size: bytes that it should hold.
        label: name of the stream, for the error.
        bare: it has no header and no checksum.
        framed: it has the header and the checksum of a gzip file.

    Raises:
        DataError: it is damaged.
    """
    wbits = -zlib.MAX_WBITS if bare else zlib.MAX_WBITS + (_GZIP if framed else 0)
    if _GAIN * len(stored) > max(_ROOM, 4 * size):  # where it could become far more than it should hold
        return _inflated_up_to(stored, size, label, wbits)
    try:
        return _inflate(stored, wbits=wbits, bufsize=max(1, size))
    except _DAMAGE as error:
        raise DataError(
            f"{label} cannot be decompressed: {error}", hint="the file is damaged; generate or fetch the file again"
        ) from error


def _inflated_up_to(stored: Any, size: int, label: str, wbits: int) -> bytes:
    """Same as :func:`inflated`, but never holds more memory than the expected size."""
    engine = _inflater(wbits)
    try:
        content: bytes = engine.decompress(stored, size + 1)
    except _DAMAGE as error:
        raise DataError(
            f"{label} cannot be decompressed: {error}", hint="the file is damaged; generate or fetch the file again"
        ) from error
    if len(content) > size or not engine.eof:
        problem = (
            f"decompresses to more than the expected {size} bytes"
            if len(content) > size
            else "is truncated within its deflate stream"
        )
        raise DataError(f"{label} {problem}", hint="the file is damaged; generate or fetch the file again")
    return content


def decoded(
    stored: memoryview, filters: tuple[str, ...], skipped: int, size: int, itemsize: int, label: str
) -> npt.NDArray[np.uint8]:
    """Decodes the bytes of a chunk.

    Args:
        stored: as it is in the file.
        filters: names, in the order of writing.
        skipped: bit ``i``: filter ``i`` was left out.
        size: bytes of the chunk.
        itemsize: bytes of an element.
        label: name of the chunk, for the error.

    Raises:
        DataError: it is damaged.
    """
    data: Any = stored
    for number in reversed(range(len(filters))):
        if skipped >> number & 1:
            continue
        if filters[number] == DEFLATE:
            data = inflated(data, size, label)
        elif filters[number] == GZIP_FILE:
            data = inflated(data, size, label, framed=True)
        elif filters[number] == ZSTD:
            data = _expanded(data, label)
        elif filters[number] == CRC32C:
            data = without_crc32c(memoryview(data), label)
        elif filters[number] == FLETCHER32:
            data = _checked(memoryview(data), label)
        elif filters[number] == TURNED:
            data = _turned(np.frombuffer(data, np.uint8), itemsize)
        else:
            data = _unshuffled(np.frombuffer(data, np.uint8), itemsize)
    content = np.frombuffer(data, np.uint8)
    if len(content) != size:
        raise DataError(
            f"{label} has {len(content)} bytes after decoding, expected {size}",
            hint="the file is damaged; generate or fetch the file again",
        )
    return content


def _expanded(data: Any, label: str) -> Any:
    """Decompresses a frame of Zstandard outside of the interpreter lock."""
    from numcodecs import zstd

    try:
        return zstd.decompress(data)
    except (RuntimeError, ValueError, MemoryError) as error:
        raise DataError(
            f"{label} cannot be decompressed: {error}", hint="the file is damaged; generate or fetch the file again"
        ) from error


def without_crc32c(data: memoryview, label: str) -> memoryview:
    """Verifies the CRC-32C (Castagnoli, little-endian) at the end of some bytes and returns those before it.

    Raises:
        DataError: it does not match.
    """
    import google_crc32c

    content, stored = data[:-4], data[-4:]
    if len(stored) != 4 or google_crc32c.value(bytes(content)) != int.from_bytes(stored, "little"):
        raise DataError(
            f"{label} does not match its stored checksum",
            hint="the file is damaged; generate or fetch the file again",
        )
    return content


def _checked(data: memoryview, label: str) -> memoryview:
    """Verifies the checksum at the end of a chunk and returns the content before it."""
    content, stored = data[:-4], bytes(data[-4:])
    # Libraries up to 1.6.2 stored the bytes of each half in the other order on little-endian machines.
    known = (stored, bytes([stored[1], stored[0], stored[3], stored[2]])) if len(stored) == 4 else ()
    checksum = fletcher32(content)
    if not any(_halves(int.from_bytes(variant, "little")) == checksum for variant in known):
        raise DataError(
            f"{label} does not match its stored checksum",
            hint="the file is damaged; generate or fetch the file again",
        )
    return content


def fletcher32(content: memoryview) -> tuple[int, int]:
    """Computes Fletcher's checksum over big-endian 16-bit numbers, as HDF5's H5checksum.c does."""
    words = np.frombuffer(content[: len(content) // 2 * 2], ">u2")
    first = second = 0
    for low in range(0, len(words), _WORDS):
        part = words[low : low + _WORDS].astype(np.uint64)
        second += first * len(part) + int(np.dot(part, _WEIGHTS[len(_WEIGHTS) - len(part) :]))
        first += int(part.sum())
    if len(content) % 2:
        first += content[-1] << 8
        second += first
    return first % _MODULUS, second % _MODULUS


def _halves(stored: int) -> tuple[int, int]:
    return (stored & 0xFFFF) % _MODULUS, (stored >> 16) % _MODULUS


def _turned(data: npt.NDArray[np.uint8], itemsize: int) -> npt.NDArray[np.uint8]:
    """Swaps the byte order of elements."""
    whole = len(data) // itemsize * itemsize
    swapped = np.dtype(f"u{itemsize}").newbyteorder()
    turned: npt.NDArray[np.uint8] = data[:whole].view(swapped).astype(swapped.newbyteorder()).view(np.uint8)
    return turned


def _unshuffled(data: npt.NDArray[np.uint8], itemsize: int) -> npt.NDArray[np.uint8]:
    """Undoes the shuffle filter: groups of equal byte positions become whole elements."""
    whole = len(data) // itemsize * itemsize
    out = np.empty_like(data)
    out[:whole].reshape(-1, itemsize)[:] = data[:whole].reshape(itemsize, -1).T
    out[whole:] = data[whole:]
    return out
