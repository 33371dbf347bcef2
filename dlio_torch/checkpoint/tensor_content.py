"""Content of the tensors of a checkpoint: a function of the seed, the tensor's name and the index of an element.

The bits of an element are a hash of its index in the whole tensor, whichever rank holds it, so that a checkpoint that
was saved by some ranks can be verified by others.  Bits are compared, not numbers: some are NaN.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

_BLOCK = 1 << 18  # elements that are hashed at a time: intermediate arrays stay in the cache
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by size of an element, bytes


def fill(tensor: torch.Tensor, seed: int, name: str, offsets: Sequence[int], shape: Sequence[int]) -> None:
    """Write the content into a part of a tensor, in place.

    Args:
        tensor: contiguous, in main memory: a block of the whole tensor.
        seed: of the experiment.
        name: of the tensor.
        offsets: first index of the block in each dimension.
        shape: numbers of elements of the whole tensor.
    """
    bits = _bits(tensor)
    for first, values in _blocks(seed, name, offsets, tuple(tensor.shape), shape):
        bits[first : first + values.size] = values  # the low bits


def first_difference(
    tensor: torch.Tensor, seed: int, name: str, offsets: Sequence[int], shape: Sequence[int]
) -> tuple[int, ...] | None:
    """Index in the whole tensor of the first element of a block that has another content; ``None`` if all agree.

    Arguments are those of :func:`fill`.
    """
    bits, local = _bits(tensor), tuple(tensor.shape)
    for first, values in _blocks(seed, name, offsets, local, shape):
        part = bits[first : first + values.size]
        wrong = part != values.astype(part.dtype)
        if wrong.any():
            index = np.unravel_index(first + int(wrong.argmax()), local) if local else ()
            return tuple(int(i) + offset for i, offset in zip(index, offsets, strict=True))
    return None


def _bits(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """The elements as unsigned integers of the same size, in one row, in the memory of the tensor."""
    row: npt.NDArray[Any] = tensor.detach().reshape(-1).view(_INTEGERS[tensor.element_size()]).numpy()
    return row.view(f"u{row.itemsize}")


def _blocks(
    seed: int, name: str, offsets: Sequence[int], local: tuple[int, ...], shape: Sequence[int]
) -> Iterator[tuple[int, npt.NDArray[np.uint32]]]:
    """Yields the first element and the hashes of consecutive elements of the part."""
    key = np.uint32(int.from_bytes(hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=4).digest(), "little"))
    width = local[-1] if local else 1
    rows = math.prod(local[:-1])
    first_column = np.arange(width, dtype=np.uint32) + np.uint32((offsets[-1] if offsets else 0) & 0xFFFFFFFF)
    starts = _row_starts(offsets, local, shape)
    if not rows or not width:
        return
    rows_at_once, columns_at_once = max(1, _BLOCK // width), min(width, _BLOCK)
    for row in range(0, rows, rows_at_once):
        for column in range(0, width, columns_at_once):
            part = first_column[column : column + columns_at_once]
            indices = starts[row : row + rows_at_once, None] + part
            yield row * width + column, _hashed(indices.reshape(-1), key)


def _row_starts(offsets: Sequence[int], local: tuple[int, ...], shape: Sequence[int]) -> npt.NDArray[np.uint32]:
    """Index in the whole tensor, modulo 2**32, of the first element of the last dimension of each row of the part."""
    starts: npt.NDArray[Any] = np.zeros(1, dtype=np.uint64)
    for offset, count, size in zip(offsets[:-1], local[:-1], shape[:-1], strict=True):
        starts = (starts[:, None] * np.uint64(size) + np.arange(offset, offset + count, dtype=np.uint64)).reshape(-1)
    return (starts * np.uint64(shape[-1] if shape else 1)).astype(np.uint32)


def _hashed(indices: npt.NDArray[np.uint32], key: np.uint32) -> npt.NDArray[np.uint32]:
    """Hashes of indices, in place, by the finaliser of MurmurHash3 (Appleby): each bit depends on the whole index."""
    indices ^= key
    indices ^= indices >> np.uint32(16)
    indices *= np.uint32(0x85EBCA6B)
    indices ^= indices >> np.uint32(13)
    indices *= np.uint32(0xC2B2AE35)
    indices ^= indices >> np.uint32(16)
    return indices
