"""Direct reads of many extents in one call of ``read_direct.c``, or by ``os.preadv`` without a compiler."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading

import numpy as np
import numpy.typing as npt

from dlio_torch import native
from dlio_torch.native.extents import ExtentError, Ints, Mover
from dlio_torch.native.memory import address_of

Memory = npt.NDArray[np.uint8]


class DirectMover:
    """Mover that reads whole blocks of files which are open for direct reads.

    Extents must be in the order of files and of bytes in each.

    Args:
        inner: copies memory.
        block: bytes of a block, a power of two.
    """

    cold = False  # there is no cache to be warm

    def __init__(self, inner: Mover, block: int) -> None:
        self._inner = inner
        self._block = block
        self._local = threading.local()
        self.copy = inner.copy
        self._read: ctypes._NamedFuncPointer | None = None
        try:
            library, file = native.open_library("read_direct")
            self.implementation = f"read_direct.c, {file.origin}"
            self._read = library.dlio_read_direct
            self._read.restype = ctypes.c_int64
            self._read.argtypes = [
                ctypes.c_int64, *[ctypes.c_void_p] * 4, *[ctypes.c_int64] * 2, *[ctypes.c_void_p] * 2
            ]  # fmt: skip
        except native.NativeUnavailable as error:
            self.implementation = f"os.preadv ({error})"

    def read(
        self, descriptors: npt.NDArray[np.int32], offsets: Ints, lengths: Ints, addresses: Ints, request: int
    ) -> None:
        """Same as in ``extents.Mover``; each request covers at least one whole block."""
        request = max(1, request // self._block) * self._block
        scratch = self._scratch(request + 2 * self._block)
        if self._read is None:
            self._read_extents(descriptors, offsets, lengths, addresses, request, scratch)
            return
        failed = np.zeros(2, np.int64)
        # The list keeps the arrays alive during the call.
        arrays = [np.ascontiguousarray(array) for array in (descriptors, offsets, lengths, addresses)]
        result = self._read(
            len(offsets), *map(address_of, arrays), request, self._block, address_of(scratch), address_of(failed)
        )
        if result:
            raise ExtentError(int(failed[0]), int(failed[1]), result if result > 0 else None)

    def _read_extents(
        self,
        descriptors: npt.NDArray[np.int32],
        offsets: Ints,
        lengths: Ints,
        addresses: Ints,
        request: int,
        scratch: Memory,
    ) -> None:
        for extent, (descriptor, offset, length, address) in enumerate(
            zip(descriptors.tolist(), offsets.tolist(), lengths.tolist(), addresses.tolist(), strict=True)
        ):
            done = 0
            while done < length:
                skipped = (offset + done) % self._block
                size = min(request, -(-(skipped + length - done) // self._block) * self._block)
                try:
                    got = os.preadv(descriptor, [scratch[:size].data], offset + done - skipped) - skipped
                except OSError as error:
                    raise ExtentError(extent, done, error.errno) from error
                if got <= 0:
                    raise ExtentError(extent, done, None)
                got = min(got, length - done)
                ctypes.memmove(address + done, address_of(scratch) + skipped, got)
                done += got

    def _scratch(self, size: int) -> Memory:
        """Aligned scratch memory of this thread, which is reused."""
        memory: Memory | None = getattr(self._local, "scratch", None)
        if memory is None or len(memory) < size:
            memory = self._local.scratch = np.frombuffer(mmap.mmap(-1, size), np.uint8)
        return memory[:size]
