"""Memory blocks of a read core: a group gets the block that came back last when a thread begins to read it.

A block that a group would get when it is planned lies idle until its turn comes, and is no longer in the cores' caches
then.  Groups that are larger than blocks get memory of their own.
"""

from __future__ import annotations

import os
import weakref
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from dlio_torch.data.engines.decoupled.block_pool import Blocks, Memory, watched
from dlio_torch.data.engines.decoupled.shared_block_pool import SharedBlocks
from dlio_torch.native.memory import address_of
from dlio_torch.native.read_core import ReadCore


class WarmBlocks(ABC):
    """Blocks of equal size for the groups of a read core.

    Args:
        core: gives them to groups.
        size: bytes of a block.

    Attributes:
        size: as given.
    """

    def __init__(self, core: ReadCore, size: int) -> None:
        self._core = core
        self.size = size

    def reserve(self) -> None:
        """Give the core a block if it has fewer than groups that will need one.

        Raises:
            RunFailed: there is not so much memory.
        """
        if self._core.spare() <= 0:
            self._core.give(self._take())

    @abstractmethod
    def _take(self) -> int:
        """The address of a block that the core does not know."""

    @abstractmethod
    def lend(self, address: int, size: int) -> Memory:
        """The first ``size`` bytes of a block that a group has filled; it comes back when no view of it is left."""

    @abstractmethod
    def take_back(self, address: int) -> None:
        """Take back a block that a group has not filled."""

    def retire(self) -> None:
        """Give the core no more blocks: others take their place.  No group is under way."""
        self._core.forget_blocks()


class PrivateWarmBlocks(WarmBlocks):
    """Blocks of this process.

    Args:
        core: gives them to groups.
        blocks: allocates them.
        size: bytes of a block.
        most: free blocks that are kept.
    """

    def __init__(self, core: ReadCore, blocks: Blocks, size: int, most: int) -> None:
        super().__init__(core, size)
        self._blocks = blocks
        self._most = most
        self._pid = os.getpid()
        self._retired = False
        self._by_address: dict[int, Any] = {}
        self._lent: dict[int, weakref.ref[Memory]] = {}

    def _take(self) -> int:
        block = self._blocks.allocate(self.size)
        address = address_of(np.frombuffer(block, np.uint8))
        self._by_address[address] = block
        return address

    def lend(self, address: int, size: int) -> Memory:
        """As of :class:`WarmBlocks`."""
        memory = np.frombuffer(self._by_address[address], np.uint8, size)
        self._lent[address] = watched(memory, lambda _: self.take_back(address))
        return memory

    def take_back(self, address: int) -> None:
        """Take back a block; one that no group needs is freed if there are many."""
        if os.getpid() != self._pid:  # a forked process drops views of it that it has inherited
            return
        self._lent.pop(address, None)
        if self._retired or not self._core.is_open or self._core.spare() >= self._most:
            del self._by_address[address]
        else:
            self._core.give(address)

    def retire(self) -> None:
        """As of :class:`WarmBlocks`; blocks that are lent are freed when they come back."""
        self._retired = True
        super().retire()


class SharedWarmBlocks(WarmBlocks):
    """Blocks that a worker shares with the trainer.

    Args:
        core: gives them to groups.
        blocks: the worker's pool, to which the trainer gives them back.
        size: bytes of a block.
    """

    def __init__(self, core: ReadCore, blocks: SharedBlocks, size: int) -> None:
        super().__init__(core, size)
        self._blocks = blocks
        self._with_core: dict[int, Memory] = {}  # by address

    def _take(self) -> int:
        memory = self._blocks.take(self.size)
        address = address_of(memory)
        self._with_core[address] = memory
        return address

    def lend(self, address: int, size: int) -> Memory:
        """As of :class:`WarmBlocks`; it also comes back from the trainer to which it is sent."""
        return self._with_core.pop(address)[:size]

    def take_back(self, address: int) -> None:
        """Return a block that a group has not filled to the pool."""
        self._with_core.pop(address, None)

    def retire(self) -> None:
        """Return all blocks of the core to the pool; no group is under way."""
        super().retire()
        self._with_core.clear()
