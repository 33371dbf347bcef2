"""Deterministic content of generated samples.

Content is a function of (seed, sample, stream) alone: each gets a key of its own for the
counter-based Philox generator (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11),
so that any thread, rank or reader can make any sample without the ones before it.

``fill`` makes the arrays of many samples in one call, in the memory that is then written; ``array`` goes on with a
generator of which something was drawn already.  Both give the same elements from the same state.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.native.filling import DOUBLES, FLOATS, WORDS, open_filler

_BLOCK = 512  # bytes over which compressibility is spread evenly


def rng(seed: int, sample: int, stream: int = 0, skip: int = 0) -> np.random.Generator:
    """Random generator of one stream of one sample; ``sample`` is below 2**47 and ``stream`` below 2**16.

    The generator begins behind ``skip`` blocks of four numbers of 64 bits.
    """
    philox = _philox(seed, (sample << 16) | stream)
    return np.random.Generator(philox.advance(skip) if skip else philox)


def fill(
    into: npt.NDArray[Any],
    seed: int,
    stream: int,
    first: int | npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    compressibility: float = 0.0,
    start: int = 0,
) -> None:
    """Generates the elements of samples, one sample after another, without the interpreter lock.

    Args:
        into: where they go; contiguous, of a plain integer, floating-point or boolean type.
        seed: of the data set.
        stream: of the array, below 2**16.
        first: the first sample, below 2**47; or the number of each.
        sizes: elements of each sample from ``start`` on, int64; together those of ``into``.
        compressibility: share of each 512 bytes that is zero, 0 to 1.
        start: first element that is made of each sample; a multiple of 512.
    """
    dtype = into.dtype
    samples = np.arange(first, first + len(sizes)) if isinstance(first, int) else first
    numbers = samples.astype(np.uint64) << np.uint64(16) | np.uint64(stream)
    kept = _kept(dtype, compressibility) * dtype.itemsize
    kind = {("f", 4): FLOATS, ("f", 8): DOUBLES}.get((dtype.kind, dtype.itemsize), WORDS)
    open_filler().fill(
        into, seed % (1 << 64), numbers, sizes * dtype.itemsize, kind, _BLOCK, kept, start * dtype.itemsize
    )
    flat = into.reshape(-1)
    if dtype.kind == "b":
        np.right_shift(flat.view(np.uint8), 7, out=flat.view(np.uint8))
    elif dtype.kind == "f" and dtype.itemsize == 2:
        words = flat.view(np.uint16)
        words >>= 5  # 11 bits, all that a float16 has
        flat[:] = words * np.float32(2.0**-11)


def _kept(dtype: np.dtype[Any], compressibility: float) -> int:
    """Number of random elements in each block of 512 bytes."""
    return round(_BLOCK // dtype.itemsize * (1 - compressibility)) if compressibility > 0 else _BLOCK // dtype.itemsize


def array(
    generator: np.random.Generator, shape: Sequence[int], dtype: np.dtype[np.generic], compressibility: float = 0.0
) -> npt.NDArray[np.generic]:
    """Generates random elements of any plain dtype; floating-point values are finite and in [0, 1).

    Args:
        generator: source of randomness; advanced.
        shape: of the result.
        dtype: integer, floating-point or boolean type.
        compressibility: share of each 512 bytes that is zero, 0 to 1.
    """
    count = math.prod(shape)
    if dtype.kind == "f" and dtype.itemsize in (4, 8):
        values: npt.NDArray[Any] = generator.random(count, dtype=np.float32 if dtype.itemsize == 4 else np.float64)
    elif dtype.kind == "f":
        # 11 bits, all that a float16 has: a rounded float32 would sometimes be 1.
        values = (generator.integers(0, 2048, count, dtype=np.uint16) / np.float32(2048)).astype(dtype)
    elif dtype.kind == "b":
        values = generator.integers(0, 2, count, dtype=np.uint8).astype(np.bool_)
    else:
        words = generator.bit_generator.random_raw(-(-count * dtype.itemsize // 8))
        values = np.atleast_1d(words).view(np.uint8)[: count * dtype.itemsize].view(dtype)
    if compressibility > 0:
        per_block = max(1, _BLOCK // dtype.itemsize)
        kept = round(per_block * (1 - compressibility))
        values[np.arange(count) % per_block >= kept] = 0
    return values.reshape(tuple(shape))


def lengths(seed: int, stream: int, first: int, count: int, mean: float, stdev: float) -> npt.NDArray[np.int64]:
    """Rows of variable-length samples ``first`` to ``first + count - 1``.

    Normally distributed, at least 1 and at most ``2 * mean - 1`` so that cutting keeps the mean.
    Each sample's length depends on the seed and its own number alone.

    Returns:
        int64 array of shape (count,).
    """
    drawn = np.rint(mean + stdev * _normal(seed, stream, first, count)).astype(np.int64)
    top = max(1, round(2 * mean) - 1)
    return np.clip(drawn, 1, top)


def document_lengths(
    seed: int, stream: int, first: int, count: int, mean: float, stdev: float, bounds: tuple[int, int]
) -> npt.NDArray[np.int64]:
    """Tokens of documents ``first`` to ``first + count - 1``, which are log-normally distributed.

    Each document's length depends on the seed and its own number alone.

    Args:
        seed: of the data set.
        stream: of the lengths.
        first: the first document.
        count: documents.
        mean: tokens of a document.
        stdev: their standard deviation.
        bounds: tokens of the shortest and of the longest document that there can be.

    Returns:
        int64 array of shape (count,).
    """
    variance = math.log1p((stdev / mean) ** 2)  # of the logarithm
    exponent = math.log(mean) - variance / 2 + math.sqrt(variance) * _normal(seed, stream, first, count)
    drawn: npt.NDArray[np.int64] = np.rint(np.clip(np.exp(exponent), *bounds)).astype(np.int64)
    return drawn


def _normal(seed: int, stream: int, first: int, count: int) -> npt.NDArray[np.float64]:
    """Standard normal numbers, one for each sample."""
    # One uniform number a sample, made from the counter itself: Philox is addressed by advance().
    bits = _philox(seed, (1 << 63) | stream)
    if first:
        bits.advance(first // 4)
    raw = np.atleast_1d(bits.random_raw(count + first % 4))[first % 4 :]
    return _normal_quantile((raw >> np.uint64(11)).astype(np.float64) * 2.0**-53 + 2.0**-54)


def _philox(seed: int, number: int) -> np.random.Philox:
    # A list of Python integers on both sides of 2**63 would become float64 and lose its low bits.
    return np.random.Philox(key=np.array([seed % (1 << 64), number], np.uint64))


def _normal_quantile(p: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Inverse of the standard normal distribution."""
    import torch

    return torch.special.ndtri(torch.from_numpy(p)).numpy()  # type: ignore[no-any-return]
