"""Reads of many extents by io_uring, with many requests in flight; ``read_uring.c`` does the work."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import threading
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dlio_torch import native
from dlio_torch.native.extents import ExtentError, Ints, Mover, open_mover
from dlio_torch.native.memory import address_of

_SWITCH = Path("/proc/sys/kernel/io_uring_disabled")


class UringMover:
    """Mover that reads by io_uring, with a ring for each thread.

    With ``block`` it reads files that are open for direct reads, as
    :class:`~dlio_torch.native.direct.DirectMover` does: extents must be in the order of files and of bytes in each.

    Args:
        depth: most requests in flight of each thread.
        block: bytes of a block of direct reads, a power of two; 0: reads go through the page cache.

    Raises:
        NativeUnavailable: there is no library and none could be compiled.
    """

    def __init__(self, depth: int, block: int = 0) -> None:
        self._library, file = _library()
        self.implementation = f"read_uring.c, {file.origin}"
        self._depth = depth
        self._block = block
        self._local = threading.local()
        self._memory: Mover = open_mover()
        self.copy = self._memory.copy
        self.cold = False

    def read(
        self, descriptors: npt.NDArray[np.int32], offsets: Ints, lengths: Ints, addresses: Ints, request: int
    ) -> None:
        """See :class:`~dlio_torch.native.extents.Mover`; a direct request covers at least one whole block.

        Raises:
            ExtentError: an extent could not be read: the first of them.
            OSError: the system has no room for the ring of this thread.
        """
        if self._block:
            request = max(1, request // self._block) * self._block
        failed = np.zeros(4, np.int64)
        # The list keeps the arrays alive during the call.
        arrays = [np.ascontiguousarray(array) for array in (descriptors, offsets, lengths, addresses)]
        result = self._library.dlio_uring_read(
            self._ring(), len(offsets), *map(address_of, arrays), request, self._block, address_of(failed)
        )
        self.cold = bool(failed[2])
        if result:
            raise ExtentError(int(failed[0]), int(failed[1]), result if result > 0 else None)

    def _ring(self) -> ctypes.c_void_p:
        """The ring of this thread; a process that was forked needs its own."""
        ring: _Ring | None = getattr(self._local, "ring", None)
        if ring is None or ring.process != os.getpid():
            ring = self._local.ring = _Ring(self._library, self._depth)
        return ring.address


class _Ring:
    """Ring of the thread that creates it; closed when nothing refers to it.

    Attributes:
        address: of the ring, for C.
        process: number of the process that created it.
    """

    def __init__(self, library: ctypes.CDLL, depth: int) -> None:
        self.address = ctypes.c_void_p()
        self.process = os.getpid()
        self._close = library.dlio_uring_close
        error = library.dlio_uring_open(depth, ctypes.byref(self.address))
        if error:
            raise OSError(error, os.strerror(error))

    def __del__(self) -> None:
        if self.process == os.getpid():  # a forked process does not have the ring's memory
            self._close(self.address)


@functools.cache
def uring_refusal(depth: int) -> str | None:
    """Why this process cannot read by io_uring with ``depth`` requests in flight; ``None``: it can."""
    try:
        library, _ = _library()
        _Ring(library, depth)
    except native.NativeUnavailable as error:
        return f"it is used by native code, and there is none: {error}"
    except OSError as error:
        return _reason(error)
    return None


def _reason(error: OSError) -> str:
    """Why the system refuses a ring, in words."""
    if error.errno == errno.ENOSYS:
        return "this system does not have it, or a sandbox hides it (ENOSYS)"
    if error.errno == errno.EOPNOTSUPP:
        return "this Linux, or the headers with which the native code was compiled, are older than 5.6"
    if error.errno in (errno.EPERM, errno.EACCES):
        try:
            switch = _SWITCH.read_text(encoding="ascii").strip()
        except OSError:
            switch = "0"
        if switch != "0":
            return f"the system has switched it off (kernel.io_uring_disabled={switch})"
        return "a container or a security policy forbids it (EPERM)"
    if error.errno == errno.ENOMEM:
        return "the system has no room for its memory (ENOMEM; see ulimit -l)"
    return str(error.strerror)


def _library() -> tuple[ctypes.CDLL, native.NativeLibrary]:
    library, file = native.open_library("read_uring")
    library.dlio_uring_open.restype = library.dlio_uring_read.restype = ctypes.c_int64
    library.dlio_uring_open.argtypes = [ctypes.c_uint32, ctypes.c_void_p]
    library.dlio_uring_close.restype = None
    library.dlio_uring_close.argtypes = [ctypes.c_void_p]
    library.dlio_uring_read.argtypes = [
        ctypes.c_void_p, ctypes.c_int64, *[ctypes.c_void_p] * 4, *[ctypes.c_int64] * 2, ctypes.c_void_p
    ]  # fmt: skip
    return library, file
