"""Page-locking (pinning) of existing memory for copies to a GPU."""

from __future__ import annotations

from typing import Any

import torch

from dlio_torch.data.engines.decoupled.block_pool import Memory
from dlio_torch.errors import RunFailed
from dlio_torch.native.memory import address_of


class Pinned:
    """Registry of pinned blocks, which are unpinned when their memory is replaced and at the end."""

    def __init__(self, runtime: Any = None) -> None:
        self._runtime = runtime or torch.cuda.cudart()  # type: ignore[no-untyped-call]
        self._locked: dict[int, tuple[int, int]] = {}  # block -> address, bytes

    def pin(self, block: int, memory: Memory) -> None:
        """Pin the current memory of ``block``.

        Raises:
            RunFailed: the driver refuses.
        """
        place = address_of(memory), len(memory)
        before = self._locked.get(block)
        if before == place:
            return
        if before is not None:
            self._runtime.cudaHostUnregister(before[0])
        error = self._runtime.cudaHostRegister(*place, 0)
        if int(error):
            raise RunFailed(
                f"{len(memory)} bytes of shared memory cannot be pinned: CUDA error {int(error)}",
                hint="set loader.pin_memory=false, or lower loader.prefetch_bytes",
            )
        self._locked[block] = place

    def close(self) -> None:
        """Unpin all memory."""
        while self._locked:
            self._runtime.cudaHostUnregister(self._locked.popitem()[1][0])
