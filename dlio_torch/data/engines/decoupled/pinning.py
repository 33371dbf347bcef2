"""Page-locked memory for copies to a GPU, where the memory was made elsewhere."""

from __future__ import annotations

from typing import Any

import torch

from dlio_torch.data.engines.decoupled.block_pool import Memory
from dlio_torch.errors import RunFailed
from dlio_torch.native.memory import address_of


class Pinned:
    """Locks blocks of memory once; they are unlocked when others take their place, and at the end."""

    def __init__(self, runtime: Any = None) -> None:
        self._runtime = runtime or torch.cuda.cudart()  # type: ignore[no-untyped-call]
        self._locked: dict[int, tuple[int, int]] = {}  # block -> address, bytes

    def pin(self, block: int, memory: Memory) -> None:
        """Lock the memory that is ``block`` now.

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
                f"{len(memory)} bytes of shared memory cannot be pinned: error {int(error)} of CUDA",
                hint="set loader.pin_memory=false, or lower loader.prefetch_bytes",
            )
        self._locked[block] = place

    def close(self) -> None:
        """Unlock all of it."""
        while self._locked:
            self._runtime.cudaHostUnregister(self._locked.popitem()[1][0])
