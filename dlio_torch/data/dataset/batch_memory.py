"""Memory of the batches of a DataLoader's worker: shared with the trainer from the start.

torch's own collate function takes such memory in a worker, too: the batch is copied into it once, by the thread that
collates, and not a second time when it is transferred.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import get_worker_info

from dlio_torch.data.dataset.transfer_memory import transfer_error
from dlio_torch.environment.private_names import shared_storage
from dlio_torch.formats.core.batch import Allocate, as_tensor


def batch_allocator() -> Allocate | None:
    """Gives the memory of a batch; ``None``: this process is no worker, and its batches stay in it."""
    return None if get_worker_info() is None else _shared_array


def _shared_array(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> tuple[npt.NDArray[np.generic], torch.Tensor]:
    """An array in shared memory.

    Raises:
        DlioError: there is no room for it.
    """
    kind = as_tensor(np.empty((0, *shape[1:]), dtype))  # structured records become bytes
    nbytes = math.prod(shape) * dtype.itemsize
    if not nbytes:
        array = np.empty(shape, dtype)
        return array, as_tensor(array)
    try:
        storage = shared_storage(nbytes)
    except RuntimeError as error:
        line = transfer_error(error)
        if line is None:
            raise
        raise line from error
    tensor = torch.empty(0, dtype=kind.dtype).set_(storage, 0, (shape[0], *kind.shape[1:]))  # type: ignore[call-overload]
    array = tensor.numpy()
    return (array if dtype.fields is None else array.view(dtype).reshape(shape)), tensor
