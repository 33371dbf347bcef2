"""Filling of memory from many random streams in one call of ``fill_random.c``, or by NumPy without a compiler."""

from __future__ import annotations

import ctypes
import functools
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dlio_torch import native
from dlio_torch.native.memory import address_of

WORDS, FLOATS, DOUBLES = 0, 1, 2
"""Content types of a stream: raw bytes, or float32 or float64 numbers in [0, 1)."""

_COUNTER_BYTES = 32  # of a stream, that one counter gives


class Filler(Protocol):
    """Thread-safe protocol for filling memory with random content.

    Attributes:
        implementation: the C file or library that does the work, for reports.
    """

    implementation: str

    def fill(
        self,
        into: npt.NDArray[Any],
        seed: int,
        numbers: npt.NDArray[np.uint64],
        sizes: npt.NDArray[np.int64],
        kind: int,
        period: int,
        kept: int,
        start: int = 0,
    ) -> None:
        """Fill memory with consecutive streams of NumPy's Philox generator.

        Args:
            into: contiguous; as many bytes as ``sizes`` together.
            seed: first word of each stream's key, 0 to 2**64 - 1.
            numbers: second word of each stream's key, contiguous.
            sizes: bytes of each stream, contiguous; of a ``kind`` of numbers, whole ones.
            kind: what becomes of the words.
            period: bytes of one random run and one zero run of a stream, a multiple of 32.
            kept: bytes of each period that are random, the first ones.
            start: byte of each stream to begin at, a multiple of ``period``.
        """


class NativeFiller:
    """Filler in C, which runs without the interpreter lock.

    Raises:
        NativeUnavailable: there is no library and none could be compiled.
    """

    def __init__(self) -> None:
        library, file = native.open_library("fill_random")
        self.implementation = f"fill_random.c, {file.origin}"
        self._fill = library.dlio_fill_random
        self._fill.restype = None
        self._fill.argtypes = [
            ctypes.c_int64, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64,
            ctypes.c_int64, ctypes.c_int, ctypes.c_void_p,
        ]  # fmt: skip

    def fill(
        self,
        into: npt.NDArray[Any],
        seed: int,
        numbers: npt.NDArray[np.uint64],
        sizes: npt.NDArray[np.int64],
        kind: int,
        period: int,
        kept: int,
        start: int = 0,
    ) -> None:
        """See :class:`Filler`."""
        self._fill(
            len(sizes), seed, address_of(numbers), address_of(sizes), start, period, kept, kind, address_of(into)
        )  # fmt: skip


class NumpyFiller:
    """Filler in NumPy with identical bytes, one stream at a time.

    Args:
        why: there is no native code.
    """

    def __init__(self, why: str) -> None:
        self.implementation = f"numpy ({why})"

    def fill(
        self,
        into: npt.NDArray[Any],
        seed: int,
        numbers: npt.NDArray[np.uint64],
        sizes: npt.NDArray[np.int64],
        kind: int,
        period: int,
        kept: int,
        start: int = 0,
    ) -> None:
        """See :class:`Filler`."""
        octets, offset = into.reshape(-1).view(np.uint8), 0
        for number, size in zip(numbers, sizes.tolist(), strict=True):
            bits = np.random.Philox(key=np.array([np.uint64(seed), number]))
            bits.advance(start // _COUNTER_BYTES)
            words = np.atleast_1d(bits.random_raw(-(-size // 8)))
            if kind == FLOATS:
                drawn = (words.view(np.uint32) >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)
            elif kind == DOUBLES:
                drawn = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
            else:
                drawn = words
            stream = octets[offset : offset + size]
            stream[:] = drawn.view(np.uint8)[:size]
            if kept < period:
                stream[np.arange(size) % period >= kept] = 0
            offset += size


@functools.cache
def open_filler() -> Filler:
    """The fastest filler that works on this machine; the same object for every caller."""
    try:
        return NativeFiller()
    except native.NativeUnavailable as error:
        return NumpyFiller(str(error))
