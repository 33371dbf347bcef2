"""Reading and copying many pieces in one call, see ``read_places.c``; without a compiler through ``os.preadv``."""

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


class PlaceError(Exception):
    """A piece could not be read.

    Attributes:
        piece: its number.
        got: bytes of it that were read.
        errno: what the system said; ``None``: the file ended.
    """

    def __init__(self, piece: int, got: int, errno: int | None) -> None:
        super().__init__(piece, got, errno)
        self.piece, self.got, self.errno = piece, got, errno


class Mover(Protocol):
    """Moves pieces of files and of memory; any number of threads may use one.

    Attributes:
        how: what it is made of, for reports.
        cold: whether something that was read last was not in the page cache, as far as that can be told.
    """

    how: str
    cold: bool

    def read(
        self, descriptors: npt.NDArray[np.int32], offsets: Ints, lengths: Ints, addresses: Ints, request: int
    ) -> None:
        """Read pieces of files, in this order; neighbours become one request.

        Args:
            descriptors: of the file of each piece; int32, like the others contiguous.
            offsets: first byte of each piece.
            lengths: bytes of each piece.
            addresses: where it goes.
            request: most bytes of a request.

        Raises:
            PlaceError: a piece could not be read.
        """

    def copy(self, sources: Ints, lengths: Ints, addresses: Ints) -> None:
        """Copy pieces of memory."""


class NativeMover:
    """In C, without the interpreter lock.

    Raises:
        NativeUnavailable: there is no library and none could be compiled.
    """

    def __init__(self) -> None:
        library, found = native.open_library("read_places")
        self.how = f"read_places.c, {found.how}"
        self._read, self._copy = library.dlio_read_places, library.dlio_copy_places
        self._read.restype = ctypes.c_int64
        self._read.argtypes = [ctypes.c_int64, *[ctypes.c_void_p] * 4, ctypes.c_int64, ctypes.c_void_p]
        self._copy.restype = None
        self._copy.argtypes = [ctypes.c_int64, *[ctypes.c_void_p] * 3]
        self.cold = False

    def read(
        self, descriptors: npt.NDArray[np.int32], offsets: Ints, lengths: Ints, addresses: Ints, request: int
    ) -> None:
        """See :class:`Mover`."""
        failed = np.zeros(3, np.int64)
        result = self._read(
            len(offsets), address_of(descriptors), address_of(offsets), address_of(lengths), address_of(addresses),
            request, address_of(failed),
        )  # fmt: skip
        self.cold = bool(failed[2])
        if result:
            raise PlaceError(int(failed[0]), int(failed[1]), result if result > 0 else None)

    def copy(self, sources: Ints, lengths: Ints, addresses: Ints) -> None:
        """See :class:`Mover`."""
        self._copy(len(sources), address_of(sources), address_of(lengths), address_of(addresses))


class PythonMover:
    """The same without native code: one system call after another, and a Python loop over the pieces.

    Args:
        why: there is no native code.
    """

    cold = False

    def __init__(self, why: str) -> None:
        self.how = f"os.preadv ({why})"

    def read(
        self, descriptors: npt.NDArray[np.int32], offsets: Ints, lengths: Ints, addresses: Ints, request: int
    ) -> None:
        """See :class:`Mover`."""
        piece, done, count = 0, 0, len(offsets)
        while piece < count:
            parts: list[ctypes.Array[ctypes.c_char]] = []
            size, last, begun = 0, piece, done
            while last < count and size < request and len(parts) < _IOV_MAX:
                if last > piece and (
                    descriptors[last] != descriptors[last - 1] or offsets[last] != offsets[last - 1] + lengths[last - 1]
                ):
                    break
                taken = min(int(lengths[last]) - begun, request - size)
                parts.append((ctypes.c_char * taken).from_address(int(addresses[last]) + begun))
                size, last, begun = size + taken, last + 1, 0
            got = self._preadv(int(descriptors[piece]), parts, int(offsets[piece]) + done, piece, done) if size else 0
            while piece < count and (got or done == lengths[piece]):
                taken = min(got, int(lengths[piece]) - done)
                got, done = got - taken, done + taken
                if done < lengths[piece]:
                    break
                piece, done = piece + 1, 0

    def _preadv(self, descriptor: int, parts: list[ctypes.Array[ctypes.c_char]], at: int, piece: int, done: int) -> int:
        try:
            got = os.preadv(descriptor, parts, at)
        except OSError as error:
            raise PlaceError(piece, done, error.errno) from error
        if not got:
            raise PlaceError(piece, done, None)
        return got

    def copy(self, sources: Ints, lengths: Ints, addresses: Ints) -> None:
        """See :class:`Mover`."""
        for source, length, address in zip(sources.tolist(), lengths.tolist(), addresses.tolist(), strict=True):
            ctypes.memmove(address, source, length)


def open_mover() -> Mover:
    """The best of this machine."""
    try:
        return NativeMover()
    except native.NativeUnavailable as error:
        return PythonMover(str(error))
