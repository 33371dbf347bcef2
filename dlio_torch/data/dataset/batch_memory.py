"""Memory of the batches of a DataLoader's worker: shared with the trainer from the start.

torch's own collate function takes such memory in a worker, too: the samples are copied into it once, by the thread that
collates, and not a second time when the batch is transferred.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import get_worker_info

from dlio_torch.data.dataset.transfer_memory import transfer_error
from dlio_torch.environment.private_names import shared_storage
from dlio_torch.formats.core.batch import Allocate, Batch, as_tensor, is_reserved


def batch_allocator() -> Allocate | None:
    """Gives the memory of a batch; ``None``: this process is no worker, and its batches stay in it."""
    return None if get_worker_info() is None else _shared_array


def collated_in_worker(batch: Batch) -> Batch:
    """A batch of samples that were read, as a worker transfers it; in any other process, the batch itself.

    Samples are read into memory of the worker, which is warm, and copied from there as an application collates them.
    If they were read into shared memory, its page faults would count as time of the reads.

    Raises:
        DlioError: there is no room for it.
    """
    if get_worker_info() is None:
        return batch
    return {name: tensor if is_reserved(name) else _copied(tensor) for name, tensor in batch.items()}


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    return _shared_tensor(tensor.shape, tensor.dtype).copy_(tensor) if tensor.numel() else tensor


def _shared_array(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> tuple[npt.NDArray[np.generic], torch.Tensor]:
    """An array in shared memory.

    Raises:
        DlioError: there is no room for it.
    """
    kind = as_tensor(np.empty((0, *shape[1:]), dtype))  # structured records become bytes
    if not math.prod(shape):
        array = np.empty(shape, dtype)
        return array, as_tensor(array)
    tensor = _shared_tensor((shape[0], *kind.shape[1:]), kind.dtype)
    array = tensor.numpy()
    return (array if dtype.fields is None else array.view(dtype).reshape(shape)), tensor


def _shared_tensor(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor in shared memory.

    Raises:
        DlioError: there is no room for it.
    """
    try:
        storage = shared_storage(math.prod(shape) * dtype.itemsize)
    except RuntimeError as error:
        line = transfer_error(error)
        if line is None:
            raise
        raise line from error
    return torch.empty(0, dtype=dtype).set_(storage, 0, tuple(shape))  # type: ignore[call-overload, no-any-return]
