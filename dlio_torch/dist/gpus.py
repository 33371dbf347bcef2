"""GPUs of ranks: NCCL can be used only if every rank has its own GPU."""

from __future__ import annotations

from typing import Any

import torch

from dlio_torch.environment.gpu import gpu_of
from dlio_torch.environment.host import host_identity


def own_gpu(local_rank: int) -> tuple[int, tuple[object, ...]] | None:
    """Returns index and identity of this rank's GPU; two ranks have the same identity only if they share a GPU."""
    if not torch.cuda.is_available():
        return None
    index = gpu_of(local_rank, torch.cuda.device_count())
    return index, (host_identity()[:2], str(torch.cuda.get_device_properties(index).uuid))


def all_different(identities: list[Any] | None) -> bool:
    """Whether every rank has a GPU that no other rank has; called on rank 0."""
    return identities is not None and None not in identities and len(set(identities)) == len(identities)
