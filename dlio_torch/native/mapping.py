"""One line where a mapped file is cut, see ``mapped.c``; without a compiler SIGBUS ends the process without a word."""

from __future__ import annotations

import ctypes
import functools

from dlio_torch import native


def guard_mapped() -> None:
    """Call this where a file is mapped; libraries may have taken the handler away since the last time."""
    library = _library()
    if library is not None:
        library.dlio_mapped_guard()


@functools.cache
def _library() -> ctypes.CDLL | None:
    try:
        return native.load("mapped")
    except native.NativeUnavailable:
        return None
