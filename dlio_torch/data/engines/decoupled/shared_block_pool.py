"""Pool of memory blocks that a worker shares with the trainer, which gives them back."""

from __future__ import annotations

import threading
import time
import weakref

import torch

from dlio_torch.data.engines.decoupled.block_pool import Memory, watched
from dlio_torch.data.engines.decoupled.shared_memory import FREE, GONE, MOST_BLOCKS, READING, SENT, Region
from dlio_torch.errors import RunFailed
from dlio_torch.native.memory import address_of


class SharedBlocks:
    """Thread-safe pool of page-aligned blocks in a worker's shared region.

    Args:
        region: of this worker.
        least: unused blocks that stay in the pool whatever their size.
        spare_bytes: unused memory that stays in it beside those.
    """

    def __init__(self, region: Region, least: int, spare_bytes: int) -> None:
        self._region = region
        self._least = least
        self._spare_bytes = spare_bytes
        self._lock = threading.RLock()  # a block may come back while the collector runs inside it
        self._used: dict[int, weakref.ref[Memory]] = {}
        self._ranges: dict[int, tuple[int, int]] = {}  # block -> address, and that of its end
        region.state[region.state == READING] = FREE  # by a worker that ended
        self._known = int((region.state != GONE).nonzero()[0].max(initial=-1)) + 1  # all others have no memory

    @property
    def allocated(self) -> int:
        """Number of blocks allocated so far, including those of previous workers."""
        return int(self._region.allocated)

    def take(self, size: int) -> Memory:
        """Takes a block of ``size`` bytes, which returns when no view of it is left or when the trainer gives it back.

        Raises:
            RunFailed: there is not so much memory, or too many blocks are in use.
        """
        region = self._region
        with self._lock:
            block = self._unused(size)
            if block is None:
                block = self._fresh(size)
            region.state[block] = READING
            memory = region.memory(block, size)
            address = address_of(memory)
            self._ranges[block] = address, address + size
            self._used[block] = watched(memory, lambda gone: self._back(block, gone))
        return memory

    def position_of(self, tensor: torch.Tensor) -> tuple[int, int] | None:
        """The block that contains a tensor, and the tensor's offset in it; ``None`` if no block contains it."""
        address = tensor.data_ptr()
        for block, (begin, end) in list(self._ranges.items()):
            if begin <= address < end:
                return block, address - begin
        return None

    def block_at(self, address: int) -> int:
        """The block that begins at an address."""
        return next(block for block, (begin, _) in list(self._ranges.items()) if begin == address)

    def send(self, block: int) -> None:
        """Transfer a block to the trainer."""
        with self._lock:
            if self._used.pop(block, None) is not None:  # which nobody asks for its end any more
                del self._ranges[block]
                self._region.state[block] = SENT

    def forget_sent(self) -> None:
        """Take back blocks that were sent but never received, because their run was ended."""
        state = self._region.state
        state[state == SENT] = FREE

    def _back(self, block: int, reference: weakref.ref[Memory]) -> None:
        with self._lock:
            if self._used.get(block) is reference:
                del self._used[block], self._ranges[block]
                self._region.freed[block] = time.monotonic_ns()
                self._region.state[block] = FREE

    def _unused(self, size: int) -> int | None:
        """The most recently returned block that is large enough; frees blocks that are too small or superfluous."""
        region, known = self._region, self._known
        # There are few, so that lists are faster than arrays.
        freed = region.freed[:known].tolist()
        free = [block for block, state in enumerate(region.state[:known].tolist()) if state == FREE]
        free.sort(key=freed.__getitem__, reverse=True)
        chosen, kept, kept_bytes = None, 0, 0
        for block in free:
            room = int(region.size[block])
            if chosen is None and room >= size:
                chosen = block
            elif room < size or (kept >= self._least and kept_bytes + room > self._spare_bytes):
                region.give_up(block)
            else:
                kept, kept_bytes = kept + 1, kept_bytes + room
        return chosen

    def _fresh(self, size: int) -> int:
        gone = self._region.state == GONE
        if not gone.any():
            raise RunFailed(
                f"a loader worker needs more than the maximum of {MOST_BLOCKS} shared memory blocks at once",
                hint="keep references to fewer batches, or lower loader.prefetch_bytes",
            )
        block = int(gone.argmax())
        self._region.make(block, size)
        self._known = max(self._known, block + 1)
        return block
