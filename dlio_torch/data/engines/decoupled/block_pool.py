"""Pool of memory blocks for batches; a block is reused when no tensor refers to it any more.

Fresh memory costs a page fault for each page: as much as reading into it.  The block that came back last is
given first, since the cores' caches still know it.
"""

from __future__ import annotations

import mmap
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from dlio_torch.errors import RunFailed

Memory = npt.NDArray[np.uint8]
_MADV_WIPEONFORK = 18  # of linux/mman.h; mmap does not have it
_HUGE = 2 << 20  # from this size on the system may use huge pages


def watched(memory: Memory, on_end: Callable[[weakref.ref[Memory]], None]) -> weakref.ref[Memory]:
    """Reference to memory that calls a function when no view of it is left, unless the interpreter ends."""

    def ended(reference: weakref.ref[Memory], is_over: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_over():  # else modules that the function uses are gone already
            on_end(reference)

    return weakref.ref(memory, ended)


class BlockPool(Protocol):
    """Pool of memory blocks for batches."""

    @property
    def allocated(self) -> int:
        """Number of blocks allocated so far."""

    def take(self, size: int) -> Memory:
        """Takes a block of ``size`` bytes, which is reused for another batch when no view of it is left.

        Raises:
            RunFailed: there is not so much memory.
        """


class Blocks:
    """Thread-safe pool of page-aligned blocks.

    Args:
        least: unused blocks that stay in the pool whatever their size.
        spare_bytes: unused memory that stays in it beside those.
        pinned: page-locked, for copies to a GPU.
        direct: read to past the page cache.  Processes that are forked later find zeros in the blocks: what is read to
            private memory past the page cache during a fork may be lost, see open(2).

    Attributes:
        made: blocks made so far.
    """

    def __init__(self, least: int, spare_bytes: int = 0, *, pinned: bool = False, direct: bool = False) -> None:
        self._least = least
        self._spare_bytes = spare_bytes
        self._pinned = pinned
        self._direct = direct
        self._lock = threading.RLock()  # a block may come back while the collector runs inside it
        self._free: list[Any] = []
        self._free_bytes = 0
        self._used: dict[int, weakref.ref[Memory]] = {}
        self.allocated = 0

    def take(self, size: int) -> Memory:
        """Takes a block of ``size`` bytes, which is reused for another batch when no view of it is left.

        Raises:
            RunFailed: there is not so much memory.
        """
        with self._lock:
            block = None
            while self._free and block is None:
                block = self._free.pop()
                self._free_bytes -= len(block)
                if len(block) < size:
                    block = None  # batches have grown: a larger one takes its place
        if block is None:
            block = self.allocate(size)
        memory = np.frombuffer(block, np.uint8, size)
        reference = watched(memory, lambda gone: self._back(gone, block))
        self._used[id(reference)] = reference
        return memory

    def _back(self, reference: weakref.ref[Memory], block: Any) -> None:
        self._used.pop(id(reference), None)
        with self._lock:
            if len(self._free) < self._least or self._free_bytes + len(block) <= self._spare_bytes:
                self._free.append(block)
                self._free_bytes += len(block)

    def allocate(self, size: int) -> Any:
        """Allocates a block of its own, of whole pages, that is not of the pool.

        Raises:
            RunFailed: there is not so much memory.
        """
        whole = -(-max(1, size) // mmap.PAGESIZE) * mmap.PAGESIZE
        try:
            if self._pinned:
                block: Any = torch.empty(whole, dtype=torch.uint8, pin_memory=True).numpy()
            else:
                # Private: most systems back only such memory by huge pages.
                block = mmap.mmap(-1, whole, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
                if whole >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
                    block.madvise(mmap.MADV_HUGEPAGE)
                if self._direct and sys.platform == "linux":
                    # Not MADV_DONTFORK: a fork that drops its copy of this object would unmap what it has there.
                    with suppress(OSError):  # Linux before 4.14
                        block.madvise(_MADV_WIPEONFORK)
        except (OSError, RuntimeError) as error:
            raise RunFailed(
                f"a block of {whole} bytes for batches cannot be allocated: {error}", hint="lower train.batch_size"
            ) from error
        self.allocated += 1
        return block
