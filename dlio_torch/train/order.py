"""Checksum of the order in which samples were used; every run computes this checksum.

It is the CRC-32 (zlib's) of the sample numbers of an epoch as little-endian int64, in global order: step by step, in
each step rank by rank.  It never depends on the engine or on prefetching.  Whether it depends on the number of loader
workers and ranks is a question of the access pattern, which :func:`comparable_settings` answers.

A rank takes the CRC-32 of each of its batches in about a microsecond.  CRC-32 is linear over GF(2): the CRC of two
texts in a row is the CRC of the first, extended by as many zero bytes as the second has, xor the CRC of the second.
The contribution of each rank's batches therefore follows from their positions, and xor combines the ranks.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import Config

_POLYNOMIAL = 0xEDB88320  # CRC-32 of zlib, bit 31 is the power 0
_ITEM_BYTES = 8
_Vector = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class OrderPart:
    """Contribution of one rank's batches to the checksum of an epoch.

    Attributes:
        crc: contribution, which xor combines with that of ranks whose batches have the same sizes.
        steps: steps of the epoch that this run did.
        sizes: CRC-32 of the numbers of samples of these batches, by which ranks compare them.
    """

    crc: int
    steps: int
    sizes: int


def comparable_settings(config: Config, world_size: int) -> dict[str, Any] | None:
    """Settings under which runs with the same data, seed, access pattern and batch have the same checksum.

    ================== ==================== ================================================================
    ``access.pattern`` loader workers       ranks
    ================== ==================== ================================================================
    ``samples``        any number           any number with ``access.partition=batches`` and
                                            ``train.batch_scope=global``, else the same number; with
                                            ``access.tail=keep`` the same number, a multiple of which
                                            the last samples are completed to
    ``stream``         the same number;     the same number
                       0 is as 1
    ``lanes``          as ``stream``        the same number
    ================== ==================== ================================================================

    Each loader worker of a stream reads files of its own and has a shuffle pool of its own, as with torch's
    ``IterableDataset`` or ``tf.data``'s shards; each worker of ``lanes`` fills lanes of its own.

    Args:
        config: the resolved configuration.
        world_size: number of ranks.

    Returns:
        ``engines``, ``num_workers`` (``"any"`` or a list of numbers) and ``ranks`` (``"any"`` or a number).  ``None``:
        the checksum is comparable with that of no other run, because batches come as they are ready
        (``loader.in_order=false``) or the same ones again and again (``loader.replay=samples`` and ``batches``).
    """
    loader, access = config.loader, config.access
    if not loader.in_order or loader.replay in ("samples", "batches"):
        return None
    by_number = access.pattern == "samples"
    shared = by_number and access.partition == "batches" and config.train.batch_scope == "global"
    shared = shared and access.tail != "keep"
    same = [0, 1] if loader.num_workers <= 1 else [loader.num_workers]
    return {
        "engines": "any",
        "num_workers": "any" if by_number else same,
        "ranks": "any" if shared else world_size,
    }


class OrderChecksum:
    """Computes the checksum of the samples of one rank's batches.

    Args:
        rank: number of this process.
        world_size: number of ranks.
    """

    def __init__(self, rank: int, world_size: int) -> None:
        self._rank, self._world_size = rank, world_size
        self._begin()

    def _begin(self) -> None:
        self._crcs = array("I")
        self._sizes: list[list[int]] = []  # samples of a batch, and number of such batches in a row

    def add(self, numbers: npt.NDArray[np.int64]) -> None:
        """Add the sample numbers of the next batch."""
        self._crcs.append(zlib.crc32(numbers.data if _LITTLE else numbers.astype("<i8").data))
        size = len(numbers)
        if not self._sizes or self._sizes[-1][0] != size:
            self._sizes.append([size, 0])
        self._sizes[-1][1] += 1

    def end(self) -> OrderPart:
        """Return the contribution of the batches since the last call, and reset."""
        crcs = np.frombuffer(self._crcs, np.uint32) if self._crcs else np.zeros(0, np.uint32)
        crc, first, following = 0, 0, sum(size * count for size, count in self._sizes)
        for size, count in self._sizes:
            following -= size * count
            behind = size * (self._world_size - 1 - self._rank) + following * self._world_size
            chosen = crcs[first : first + count]
            crc ^= _contribution(chosen, size * self._world_size * _ITEM_BYTES, behind * _ITEM_BYTES)
            first += count
        part = OrderPart(crc, len(crcs), zlib.crc32(np.array(self._sizes, "<i8").tobytes()))
        self._begin()
        return part


def whole(parts: Sequence[OrderPart | None]) -> int | None:
    """Combine the contributions of all ranks to the checksum of an epoch.

    Returns:
        ``None`` if a contribution is unknown, if there are no batches, or if batches of a step differ in size.
    """
    crc, first = 0, parts[0] if parts else None
    for part in parts:
        if part is None or first is None or (part.steps, part.sizes) != (first.steps, first.sizes):
            return None
        crc ^= part.crc
    return crc if first is not None and first.steps else None


_LITTLE = sys.byteorder == "little"


def _contribution(crcs: _Vector, step: int, behind: int) -> int:
    """Xor of the CRCs of batches, each extended by ``step`` bytes for each batch after it, and ``behind`` more."""
    over = _zeros(step)
    while len(crcs) > 1:
        if len(crcs) % 2:  # an empty text before the first contributes nothing
            crcs = np.concatenate([np.zeros(1, np.uint32), crcs])
        crcs = _carry(over, crcs[0::2]) ^ crcs[1::2]
        over = _carry(over, over)
    return int(_carry(_zeros(behind), crcs)[0]) if len(crcs) else 0


def _carry(operator: _Vector, crcs: _Vector) -> _Vector:
    """Apply a linear map, given by its images of the 32 bits, to each CRC."""
    result = np.zeros(len(crcs), np.uint32)
    for bit in range(32):
        result ^= np.where(crcs >> np.uint32(bit) & np.uint32(1), operator[bit], np.uint32(0))
    return result


def _zeros(count: int) -> _Vector:
    """Linear map from the CRC of a text to the CRC of the text with ``count`` zero bytes appended."""
    result: _Vector = np.left_shift(np.uint32(1), np.arange(32, dtype=np.uint32)).astype(np.uint32)
    # One zero bit shifts the register; a bit that is shifted out comes back as the polynomial.
    power = np.concatenate([[_POLYNOMIAL], result[:-1]]).astype(np.uint32)
    for _ in range(3):
        power = _carry(power, power)  # a byte
    while count:
        if count & 1:
            result = _carry(power, result)
        power = _carry(power, power)
        count >>= 1
    return result
