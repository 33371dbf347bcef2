"""In-place byte-order conversion by ``swap_bytes.c``, or by NumPy without a compiler."""

from __future__ import annotations

import ctypes
import functools
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dlio_torch import native
from dlio_torch.native.memory import address_of

Ints = npt.NDArray[np.int64]


class Swapper(Protocol):
    """Thread-safe protocol for in-place byte-order conversion.

    Attributes:
        implementation: the C file or library that does the work, for reports.
    """

    implementation: str

    def swap(self, addresses: Ints, lengths: Ints, sizes: Ints) -> None:
        """Swap the bytes of the elements in memory extents; contiguous int64 arrays of shape ``(extents,)``.

        Args:
            addresses: of the extents.
            lengths: bytes of each, whole elements.
            sizes: bytes of its elements: 2, 4 or 8; 1: they stay as they are.
        """


class NativeSwapper:
    """Swapper in C, which runs without the interpreter lock.

    Raises:
        NativeUnavailable: there is no library and none could be compiled.
    """

    def __init__(self) -> None:
        library, file = native.open_library("swap_bytes")
        self.implementation = f"swap_bytes.c, {file.origin}"
        self._swap = library.dlio_swap_bytes
        self._swap.restype = None
        self._swap.argtypes = [ctypes.c_int64, *[ctypes.c_void_p] * 3]

    def swap(self, addresses: Ints, lengths: Ints, sizes: Ints) -> None:
        """See :class:`Swapper`."""
        self._swap(len(addresses), address_of(addresses), address_of(lengths), address_of(sizes))


class NumpySwapper:
    """Swapper in NumPy, one extent at a time.

    Args:
        why: there is no native code.
    """

    def __init__(self, why: str) -> None:
        self.implementation = f"numpy ({why})"

    def swap(self, addresses: Ints, lengths: Ints, sizes: Ints) -> None:
        """See :class:`Swapper`."""
        for address, length, size in zip(addresses.tolist(), lengths.tolist(), sizes.tolist(), strict=True):
            if size > 1:
                octets = np.frombuffer((ctypes.c_char * length).from_address(address), np.uint8)
                octets.view(f"u{size}").byteswap(inplace=True)


@functools.cache
def open_swapper() -> Swapper:
    """The fastest swapper that works on this machine; the same object for every caller."""
    try:
        return NativeSwapper()
    except native.NativeUnavailable as error:
        return NumpySwapper(str(error))
