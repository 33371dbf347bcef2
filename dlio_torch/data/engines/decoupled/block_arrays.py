"""Arrays in memory blocks of batches, in the host's memory or a GPU's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from dlio_torch.formats.core.batch import ArraySpec, Batch, as_tensor

BlockArray = Callable[[Any, ArraySpec, int, int], Any]
"""Function of a block, an array of samples, its rows and its first byte; returns the array, without a copy."""


def host_array(memory: Any, spec: ArraySpec, rows: int, first: int) -> Any:
    """An array of a block in the host's memory, as NumPy array."""
    return np.ndarray((rows, *spec.shape), spec.dtype, memory, first)


def device_array(memory: torch.Tensor, spec: ArraySpec, rows: int, first: int) -> torch.Tensor:
    """An array of a block that is a tensor of bytes, as tensor of the type that :func:`as_tensor` gives."""
    size = rows * math.prod(spec.shape) * spec.dtype.itemsize
    like = as_tensor(np.empty((0, *spec.shape), spec.dtype))
    part: torch.Tensor = memory[first : first + size]
    return part.view(like.dtype).reshape(rows, *like.shape[1:])


def tensor_of(rows: Any) -> torch.Tensor:
    """Rows of an array of a block as tensor on the same memory."""
    return rows if isinstance(rows, torch.Tensor) else as_tensor(rows)


def in_host_memory(batch: Batch) -> Batch:
    """The batch with its tensors in the host's memory; those that are there are not copied."""
    return {name: tensor.cpu() for name, tensor in batch.items()}
