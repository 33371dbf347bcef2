"""Decoding chunks outside of HDF5's lock: deflate and the byte shuffle.

Inflating releases the interpreter lock.  python-isal (extra ``fast``) does it two to three times as fast as the
standard library; both give the same bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError

DEFLATE, SHUFFLE = "gzip", "shuffle"
KNOWN = {1: DEFLATE, 2: SHUFFLE}
"""Filters that can be undone here, by HDF5's numbers."""

_DAMAGE: tuple[Any, ...] = (zlib.error,)
_inflate: Callable[..., Any] = zlib.decompress
try:
    from isal import isal_zlib
except ImportError:
    pass
else:
    _inflate = isal_zlib.decompress
    _DAMAGE = (zlib.error, isal_zlib.error)


def inflated(stored: Any, size: int, where: str, *, bare: bool = False) -> Any:
    """The bytes of a deflate stream, outside of the interpreter lock.

    Args:
        stored: the stream.
        size: bytes that it should hold.
        where: names it, for the error.
        bare: it has no header and no checksum.

    Raises:
        DataError: it is damaged.
    """
    try:
        return _inflate(stored, wbits=-zlib.MAX_WBITS if bare else zlib.MAX_WBITS, bufsize=max(1, size))
    except _DAMAGE as error:
        raise DataError(
            f"{where} cannot be inflated: {error}", hint="the file is damaged; generate or fetch it again"
        ) from error


def decoded(
    stored: memoryview, filters: tuple[str, ...], skipped: int, size: int, itemsize: int, where: str
) -> npt.NDArray[np.uint8]:
    """The bytes of a chunk.

    Args:
        stored: as it is in the file.
        filters: names, in the order of writing.
        skipped: bit ``i``: filter ``i`` was left out.
        size: bytes of the chunk.
        itemsize: bytes of an element.
        where: names the chunk, for the error.

    Raises:
        DataError: it is damaged.
    """
    data: Any = stored
    for number in reversed(range(len(filters))):
        if skipped >> number & 1:
            continue
        if filters[number] == DEFLATE:
            data = inflated(data, size, where)
        else:
            data = _unshuffled(np.frombuffer(data, np.uint8), itemsize)
    found = np.frombuffer(data, np.uint8)
    if len(found) != size:
        raise DataError(
            f"{where} has {len(found)} bytes, expected {size}", hint="the file is damaged; generate or fetch it again"
        )
    return found


def _unshuffled(data: npt.NDArray[np.uint8], itemsize: int) -> npt.NDArray[np.uint8]:
    """First bytes of all elements, then second ones ...: back to element after element."""
    whole = len(data) // itemsize * itemsize
    out = np.empty_like(data)
    out[:whole].reshape(-1, itemsize)[:] = data[:whole].reshape(itemsize, -1).T
    out[whole:] = data[whole:]
    return out
