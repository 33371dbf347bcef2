"""Chunk shapes of the formats that store arrays in chunks."""

from __future__ import annotations

import math

import numpy as np

from dlio_torch.config.schema import FieldConfig
from dlio_torch.errors import ConfigError

_CHUNK_LIMIT = 1 << 32


def chunk_shape(rows: int, shape: tuple[int, ...], itemsize: int, chunk_bytes: int) -> tuple[int, ...]:
    """Chooses a chunk shape of at most ``chunk_bytes`` (but at least one element) that fits the array.

    Whole samples if one fits; else a sample is cut along its leading axes first, as the applications'
    row-wise chunks are.
    """
    sample = math.prod(shape) * itemsize
    if sample <= chunk_bytes:
        return (max(1, min(rows, chunk_bytes // max(1, sample))), *shape)
    cut: list[int] = [1]
    rest = sample
    for axis, length in enumerate(shape):
        rest //= length
        take = max(1, min(length, chunk_bytes // rest))
        cut.append(take)
        if take > 1 or rest <= chunk_bytes:
            return (*cut, *shape[axis + 1 :])
    return tuple(cut)


def field_chunk(field: FieldConfig, rows: int, chunk_bytes: int) -> tuple[int, ...] | None:
    """Chunk shape of the array of a field with ``rows`` rows; ``None`` if the field sets no chunk.

    Args:
        field: its ``chunk`` wins over ``chunk_bytes``.
        rows: of the array.
        chunk_bytes: size of a chunk; 0: no chunks.

    Raises:
        ConfigError: a chunk that does not fit the array, or of 4 GiB and more, which HDF5 does not take.
    """
    shape, itemsize = (rows, *field.shape), np.dtype(field.dtype).itemsize
    chunk: tuple[int, ...]
    if field.chunk is not None:
        if len(field.chunk) != len(shape) or any(length < 1 for length in field.chunk):
            raise ConfigError(
                f"dataset.fields: {field.name}: chunk={field.chunk} does not fit the stored array, which has "
                f"{len(shape)} axes",
                hint="set one positive length per axis, the number of rows first",
            )
        chunk = tuple(min(a, b) for a, b in zip(field.chunk, shape, strict=True))
    elif chunk_bytes > 0:
        chunk = chunk_shape(rows, tuple(field.shape), itemsize, chunk_bytes)
    else:
        return None
    if math.prod(chunk) * itemsize >= _CHUNK_LIMIT:
        raise ConfigError(
            f"dataset.fields: {field.name}: a chunk has {math.prod(chunk) * itemsize} bytes; HDF5 allows less than 4 "
            "GiB",
            hint="set a smaller chunk, below 4 GiB",
        )
    return chunk
