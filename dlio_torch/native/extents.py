"""Reads and copies of many extents in one call of ``read_extents.c``, or by ``os.preadv`` without a compiler."""

from __future__ import annotations

import ctypes
import os
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dlio_torch import native
from dlio_torch.native.memory import address_of

Ints = npt.NDArray[np.int64]
_IOV_MAX = 1024


class ExtentError(Exception):
    """Error for an extent that could not be read.

    Attributes:
        extent: its number.
        got: bytes of it that were read.
        errno: what the system said; ``None``: the file ended.
    """

    def __init__(self, extent: int, got: int, errno: int | None) -> None:
        super().__init__(extent, got, errno)
        self.extent, self.got, self.errno = extent, got, errno


class Mover(Protocol):
    """Thread-safe protocol for reading file extents and copying memory extents.

    Attributes:
        implementation: the C file or library that does the work, for reports.
        cold: whether much of what was read last was not in the page cache, as far as that can be told.
    """

    implementation: str
    cold: bool

    def read(
        self, descriptors: npt.NDArray[np.int32], offsets: Ints, lengths: Ints, addresses: Ints, request: int
    ) -> None:
        """Read extents of files in this order; adjacent extents are merged into one request.

        Args:
            descriptors: of the file of each extent; int32, like the others contiguous.
            offsets: first byte of each extent.
            lengths: bytes of each extent.
            addresses: where it goes.
            request: most bytes of a request.

        Raises:
            ExtentError: an extent could not be read.
        """

    def copy(self, sources: Ints, lengths: Ints, addresses: Ints) -> None:
        """Copy extents of memory."""


class NativeMover:
    """Mover in C, which runs without the interpreter lock.

    Raises:
        NativeUnavailable: there is no library and none could be compiled.
    """

    def __init__(self) -> None:
        library, file = native.open_library("read_extents")
        self.implementation = f"read_extents.c, {file.origin}"
        self._read, self._copy = library.dlio_read_extents, library.dlio_copy_extents
        self._read.restype = ctypes.c_int64
        self._read.argtypes = [ctypes.c_int64, *[ctypes.c_void_p] * 4, ctypes.c_int64, ctypes.c_void_p]
        self._copy.restype = None
        self._copy.argtypes = [ctypes.c_int64, *[ctypes.c_void_p] * 3]
        self.cold = False

    def read(
        self, descriptors: npt.NDArray[np.int32], offsets: Ints, lengths: Ints, addresses: Ints, request: int
    ) -> None:
        """See :class:`Mover`."""
        failed = np.zeros(4, np.int64)
        result = self._read(
            len(offsets), address_of(descriptors), address_of(offsets), address_of(lengths), address_of(addresses),
            request, address_of(failed),
        )  # fmt: skip
        self.cold = bool(failed[2])
        if result:
            raise ExtentError(int(failed[0]), int(failed[1]), result if result > 0 else None)

    def copy(self, sources: Ints, lengths: Ints, addresses: Ints) -> None:
        """See :class:`Mover`."""
        self._copy(len(sources), address_of(sources), address_of(lengths), address_of(addresses))


class PythonMover:
    """Mover in Python: one system call per request, in a loop over the extents.

    Args:
        why: there is no native code.
    """

    cold = False

    def __init__(self, why: str) -> None:
        self.implementation = f"os.preadv ({why})"

    def read(
        self, descriptors: npt.NDArray[np.int32], offsets: Ints, lengths: Ints, addresses: Ints, request: int
    ) -> None:
        """See :class:`Mover`."""
        extent, done, count = 0, 0, len(offsets)
        while extent < count:
            parts: list[ctypes.Array[ctypes.c_char]] = []
            size, last, begun = 0, extent, done
            while last < count and size < request and len(parts) < _IOV_MAX:
                if last > extent and (
                    descriptors[last] != descriptors[last - 1] or offsets[last] != offsets[last - 1] + lengths[last - 1]
                ):
                    break
                taken = min(int(lengths[last]) - begun, request - size)
                parts.append((ctypes.c_char * taken).from_address(int(addresses[last]) + begun))
                size, last, begun = size + taken, last + 1, 0
            begin = int(offsets[extent]) + done
            got = self._preadv(int(descriptors[extent]), parts, begin, extent, done) if size else 0
            while extent < count and (got or done == lengths[extent]):
                taken = min(got, int(lengths[extent]) - done)
                got, done = got - taken, done + taken
                if done < lengths[extent]:
                    break
                extent, done = extent + 1, 0

    def _preadv(
        self, descriptor: int, parts: list[ctypes.Array[ctypes.c_char]], begin: int, extent: int, done: int
    ) -> int:
        try:
            got = os.preadv(descriptor, parts, begin)
        except OSError as error:
            raise ExtentError(extent, done, error.errno) from error
        if not got:
            raise ExtentError(extent, done, None)
        return got

    def copy(self, sources: Ints, lengths: Ints, addresses: Ints) -> None:
        """See :class:`Mover`."""
        for source, length, address in zip(sources.tolist(), lengths.tolist(), addresses.tolist(), strict=True):
            ctypes.memmove(address, source, length)


def open_mover() -> Mover:
    """The fastest mover that works on this machine."""
    try:
        return NativeMover()
    except native.NativeUnavailable as error:
        return PythonMover(str(error))
