"""Copies of batches to the rank's GPU, as ``tensor.to(device)`` in a training loop makes them."""

from __future__ import annotations

import torch

from dlio_torch.config.gpu_options import gpu_options
from dlio_torch.config.schema import Config
from dlio_torch.environment.gpu import gpu_of
from dlio_torch.errors import PreconditionError, RunFailed
from dlio_torch.formats.core.batch import Batch, batch_tensors


def needs_gpu(config: Config) -> bool:
    """Whether the training uses a GPU.

    Raises:
        PreconditionError: it uses one, and torch finds none.
    """
    options = gpu_options(config)
    if options and not torch.cuda.is_available():
        raise PreconditionError(
            f"{options[0]} needs a GPU, and torch finds none on this machine",
            hint=f"leave {' and '.join(options)} out, or use a torch built for this machine's GPU",
        )
    return bool(options)


def pageable_copies(config: Config) -> str | None:
    """A line about copies ahead of their step that cannot overlap with compute; ``None``: they can, or none are."""
    if not config.loader.prefetch_to_device or config.loader.pin_memory:
        return None
    return (
        "loader.prefetch_to_device: copies from pageable memory do not overlap with compute; loader.pin_memory=true "
        "makes them overlap"
    )


def use_gpu(local_rank: int) -> torch.device:
    """Make the rank's GPU the current one of this process; there must be one.

    Args:
        local_rank: number of the rank on its node.
    """
    device = rank_gpu(local_rank)
    torch.cuda.set_device(device)
    return device


def rank_gpu(local_rank: int) -> torch.device:
    """The rank's GPU; there must be one.

    Args:
        local_rank: number of the rank on its node.
    """
    return torch.device("cuda", gpu_of(local_rank, torch.cuda.device_count()))


class DeviceCopies:
    """Copies each batch to a GPU, on the stream on which a model would use it.

    Memory on the GPU comes from torch's allocator.  A batch stays there until the copy of the next one is complete, as
    in a loop that rebinds the same variable, so the GPU holds two batches.

    Args:
        device: the GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self.name: str = torch.cuda.get_device_name(device)
        self._device = device
        self._done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._there: list[torch.Tensor] = []

    def start(self, batch: Batch) -> None:
        """Start the copies; returns at once for page-locked memory, else when the memory has been read.

        Raises:
            RunFailed: the GPU has no memory left, or another error of CUDA.
        """
        try:
            self._there = self._tensors(batch)
            self._done.record()
        except RuntimeError as error:
            raise copy_failed(error) from error

    def finish(self) -> None:
        """Wait until the GPU holds the batch.

        Raises:
            RunFailed: a copy failed.
        """
        try:
            self._done.synchronize()
        except RuntimeError as error:
            raise copy_failed(error) from error

    def _tensors(self, batch: Batch) -> list[torch.Tensor]:
        """The tensors of a batch on the GPU; their copies have been started."""
        return [tensor.to(self._device, non_blocking=True) for tensor in batch_tensors(batch)]


class BatchesOnDevice:
    """Hands batches that were read to a GPU's memory over to the stream on which a model would use them; copies none.

    Args:
        device: the GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self.name: str = torch.cuda.get_device_name(device)
        self._device = device

    def start(self, batch: Batch) -> None:
        """Keep the memory of a batch from being reused before the current stream is done with it."""
        user = torch.cuda.current_stream(self._device)
        for tensor in batch_tensors(batch):
            tensor.record_stream(user)

    def finish(self) -> None:
        """Do nothing: the reads have ended before the trainer gets a batch."""


def copy_failed(error: RuntimeError, *, ahead: bool = False) -> RunFailed:
    """The error of a run whose copy to the GPU, in its step or ahead of it, failed with an error of torch."""
    lower = "train.batch_size or loader.prefetch_to_device" if ahead else "train.batch_size"
    return RunFailed(
        f"a batch cannot be copied to the GPU: {str(error).splitlines()[0]}",
        hint=f"lower {lower}, or set train.device=cpu",
    )
