"""Shared memory of the trainer and its workers: one unnamed file with a region for each worker.

A file of ``memfd_create`` lies in no folder, has no limit but the memory, and is gone with the last process that has
it, however that ends.  Regions are far apart in it: what was never written takes no memory.  Each begins with a
table, by which both sides tell each other what becomes of blocks and how far the trainer is; every number of it has
one writer at a time, and is stored at once.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from multiprocessing import reduction
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.data.engines.decoupled.event_descriptors import set_event
from dlio_torch.errors import RunFailed
from dlio_torch.syserrors import refused

GONE, FREE, READING, SENT, HELD = range(5)
"""States of a block: without memory; free; being filled; on its way to the trainer; in use by the trainer."""
MOST_BLOCKS = 4096
"""Maximum number of blocks in a region."""

Numbers = npt.NDArray[np.int64]
_REGION = 1 << 40
_WINDOW = 256 << 20  # a mapping has a descriptor of its own in Python: few large ones
_FEWER = "lower loader.num_workers"
_HUGE = 2 << 20  # from this size on the system may use huge pages
_HEAD = mmap.PAGESIZE // 8  # numbers before the columns of the table
RING = 256
"""Groups that a worker can have published and the trainer not received."""
MESSAGE = 5
"""Numbers of the message about a group."""
_TABLE = (_HEAD + 4 * MOST_BLOCKS + MESSAGE * RING) * 8


def _number(position: int) -> property:
    """Property for one of the numbers before the table of blocks."""

    def read(region: Region) -> int:
        return int(region.head[position])

    def store(region: Region, value: int) -> None:
        region.head[position] = value

    return property(read, store)


class Region:
    """Region of one worker in the shared memory; the module describes its layout.

    Args:
        descriptor: of the file.
        number: of the worker.

    Attributes:
        head: the numbers before the columns; see the properties.
        state: of each block, one of the names above.
        offset: first byte of each block in the region.
        size: its bytes.
        freed: when it became free; ``time.monotonic_ns``.
        ring: messages about the last groups; a group's number modulo :data:`RING` is its row.
    """

    def __init__(self, descriptor: int, number: int) -> None:
        self._descriptor = descriptor
        self._base = number * _REGION
        self._windows: dict[tuple[int, int], mmap.mmap] = {}
        table: Numbers = np.frombuffer(self._map(0, _TABLE), np.int64)
        self.head = table[:_HEAD]
        columns, ring = np.split(table[_HEAD:], [4 * MOST_BLOCKS])
        self.state, self.offset, self.size, self.freed = columns.reshape(4, MOST_BLOCKS)
        self.ring = ring.reshape(RING, MESSAGE)

    def memory(self, block: int, size: int) -> npt.NDArray[np.uint8]:
        """The first ``size`` bytes of a block."""
        window, offset = self._window(block)
        return np.frombuffer(window, np.uint8, size, offset)

    def make(self, block: int, size: int) -> None:
        """Allocate zeroed memory of whole pages for a block."""
        whole = -(-max(1, size) // mmap.PAGESIZE) * mmap.PAGESIZE
        begin = self._aligned(max(self.end, _HUGE), _HUGE if whole >= _HUGE else mmap.PAGESIZE)
        if begin // _WINDOW != (begin + whole - 1) // _WINDOW:
            begin = self._aligned(begin, _WINDOW)
        if begin + whole > _REGION:
            raise RunFailed(
                f"a loader worker has used up its {_REGION} bytes of shared memory for blocks",
                hint="lower train.batch_size",
            )
        self.offset[block], self.size[block], self.end = begin, whole, begin + whole
        if whole >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
            window, offset = self._window(block)
            with suppress(OSError):  # a kernel without them
                window.madvise(mmap.MADV_HUGEPAGE, offset, whole)
        self.allocated += 1

    def give_up(self, block: int) -> None:
        """Return the memory of a block to the system; its bytes of the file are not used again."""
        window, offset = self._window(block)
        window.madvise(mmap.MADV_REMOVE, offset, int(self.size[block]))
        self.state[block] = GONE

    @staticmethod
    def _aligned(value: int, to: int) -> int:
        return -(-value // to) * to

    def _window(self, block: int) -> tuple[mmap.mmap, int]:
        """The mapping that contains a block, and the block's offset in it."""
        offset, size = int(self.offset[block]), int(self.size[block])
        begin = offset // _WINDOW * _WINDOW
        length = max(_WINDOW, self._aligned(offset + size - begin, mmap.PAGESIZE))
        window = self._windows.get((begin, length))
        if window is None:
            window = self._windows[begin, length] = self._map(begin, length)
        return window, offset - begin

    def _map(self, begin: int, length: int) -> mmap.mmap:
        try:
            return mmap.mmap(self._descriptor, length, offset=self._base + begin)
        except OSError as error:
            raise refused("shared memory of the loader workers cannot be mapped", error, elsewhere=_FEWER) from error

    alive = _number(0)
    """Number of the current run; a worker ends any other run."""
    epoch = _number(1)
    """Epoch of the current run."""
    step = _number(2)
    """First step of the current run."""
    taken = _number(3)
    """Number of groups of the current run that the trainer has taken."""
    end = _number(4)
    """Offset of the next block in bytes."""
    allocated = _number(5)
    """Number of blocks allocated so far."""
    published = _number(6)
    """Number of groups that the worker has published, in all runs."""
    received = _number(7)
    """Number of groups that the trainer has received or passed over, in all runs."""
    ended = _number(8)
    """Number of the last run that the worker has ended."""


class SharedMemory:
    """Shared memory file, and wake-up events of the trainer and each worker, for workers of every start method.

    Args:
        workers: how many.

    Raises:
        RunFailed: the system has no room for it.
    """

    def __init__(self, workers: int) -> None:
        try:
            self._descriptors = [os.memfd_create("dlio_torch", os.MFD_CLOEXEC)]
            os.ftruncate(self._descriptors[0], workers * _REGION)
            self._descriptors += [os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) for _ in range(workers + 1)]
        except OSError as error:
            raise RunFailed(
                f"shared memory for the loader workers cannot be created: {error.strerror}",
                hint="set loader.num_workers=0",
            ) from error

    def region(self, worker: int) -> Region:
        """The region of a worker."""
        return Region(self._descriptors[0], worker)

    def event(self, worker: int) -> int:
        """Descriptor that becomes readable when :meth:`wake` is called."""
        return self._descriptors[1 + worker]

    @property
    def bell(self) -> int:
        """Descriptor that becomes readable when a worker calls :meth:`ring_bell`."""
        return self._descriptors[-1]

    def ring_bell(self) -> None:
        """Wake the trainer so that it checks the regions."""
        set_event(self._descriptors[-1])

    def wake(self, worker: int) -> None:
        """Wake a worker so that it checks its region."""
        if self._descriptors:
            set_event(self._descriptors[1 + worker])

    def close(self) -> None:
        """Close the descriptors; mappings stay until nothing refers to them."""
        descriptors, self._descriptors = self._descriptors, []
        for descriptor in descriptors:
            os.close(descriptor)

    def __del__(self) -> None:
        if getattr(self, "_descriptors", None):
            self.close()

    def __getstate__(self) -> list[Any]:
        return [reduction.DupFd(descriptor) for descriptor in self._descriptors]

    def __setstate__(self, state: list[Any]) -> None:
        self._descriptors = [descriptor.detach() for descriptor in state]
