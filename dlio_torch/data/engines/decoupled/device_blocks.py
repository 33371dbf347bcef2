"""Memory blocks of a GPU for batches that are read there."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from dlio_torch.errors import RunFailed


def current_gpu() -> torch.device:
    """The GPU that is current in this thread."""
    return torch.device("cuda", torch.cuda.current_device())


class DeviceBlocks:
    """Thread-safe source of memory blocks of a GPU, by torch's allocator.

    Reads into a block are ordered by no stream.  So blocks come from a stream of their own, on which nothing runs, and
    one who uses a batch on another stream says so by ``record_stream``: the allocator then gives the memory to another
    batch only when that stream is done with it.

    Args:
        device: the GPU; the CPU's memory in tests.

    Attributes:
        device: as given.
        allocated: blocks allocated so far.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.allocated = 0
        self._stream: Any = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def take(self, size: int) -> torch.Tensor:
        """Takes a block of ``size`` bytes, whose memory is free when no tensor refers to it.

        Raises:
            RunFailed: the GPU has not so much memory.
        """
        stream = contextlib.nullcontext() if self._stream is None else torch.cuda.stream(self._stream)
        try:
            with stream:
                block = torch.empty(size, dtype=torch.uint8, device=self.device)
        except RuntimeError as error:
            raise RunFailed(
                f"a block of {size} bytes for batches cannot be allocated on the GPU: {str(error).splitlines()[0]}",
                hint="lower train.batch_size or loader.prefetch_bytes, or set loader.read_to=host",
            ) from error
        self.allocated += 1
        return block
