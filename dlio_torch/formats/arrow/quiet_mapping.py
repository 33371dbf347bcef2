"""Mapping of a file without read-ahead: only the pages that are touched are read."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
_LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_LIBC.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_FAILED = ctypes.c_void_p(-1).value


class QuietMapping:
    """Read-only mapping of a whole file, which exists as long as this object; Python's own keeps the file open as well.

    Args:
        path: the file.

    Attributes:
        address: of the first byte.
        size: bytes of the file.

    Raises:
        OSError: it cannot be opened or mapped.
        ValueError: it is empty.
    """

    def __init__(self, path: Path) -> None:
        self.address, self.size = 0, 0
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            if not size:
                raise ValueError("the file is empty")
            address = _LIBC.mmap(None, size, mmap.PROT_READ, mmap.MAP_PRIVATE, descriptor, 0)
        finally:
            os.close(descriptor)
        if address in (None, _FAILED):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), os.fspath(path))
        self.address, self.size = address, size
        _LIBC.madvise(address, size, mmap.MADV_RANDOM)

    def __del__(self) -> None:
        if self.size:
            _LIBC.munmap(self.address, self.size)
