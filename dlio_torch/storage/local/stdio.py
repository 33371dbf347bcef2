"""Output files of C's standard I/O, whose buffer sets the sizes of the system calls.

The GNU C library gives a stream a buffer of the file system's block size (``st_blksize``: 4 KiB on ext4, 4 MiB on
Lustre; libio/filedoalloc.c).  ``fwrite`` fills what is left of the buffer and flushes it, writes all whole blocks
that follow by one write(2) from the caller's memory, and keeps the rest in the buffer (``_IO_new_file_xsputn`` in
libio/fileops.c).  So the size of a write(2) follows from the size of an ``fwrite``, which may be a whole file.
"""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.native.memory import address_of


class StdioFile:
    """An output stream of the C library.

    Args:
        path: created, or cut to nothing.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stream: int | None = _library().fopen(os.fsencode(path), b"we")
        if not self._stream:
            raise self._error()

    def write(self, octets: npt.NDArray[np.uint8]) -> int:
        """Write ``octets`` (contiguous uint8) by one ``fwrite``; returns their number.

        Raises:
            OSError: the system does not take them.
        """
        size = octets.nbytes
        if size and _library().fwrite(address_of(octets), 1, size, self._stream) != size:
            raise self._error()
        return size

    def flush(self) -> None:
        """Write the buffer to the system.

        Raises:
            OSError: the system does not take it.
        """
        if _library().fflush(self._stream):
            raise self._error()

    def close(self) -> None:
        """Flush and close the file.

        Raises:
            OSError: the system does not take what was in the buffer.
        """
        stream, self._stream = self._stream, None
        if stream and _library().fclose(stream):
            raise self._error()

    def __enter__(self) -> StdioFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _error(self) -> OSError:
        number = ctypes.get_errno()
        return OSError(number, os.strerror(number), str(self.path))


@functools.cache
def _library() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    library.fopen.restype, library.fopen.argtypes = pointer, [ctypes.c_char_p, ctypes.c_char_p]
    library.fwrite.restype, library.fwrite.argtypes = size, [pointer, size, size, pointer]
    for name in ("fflush", "fclose"):
        function = getattr(library, name)
        function.restype, function.argtypes = ctypes.c_int, [pointer]
    return library
