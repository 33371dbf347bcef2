"""Transfer sizes: bytes that each read and each write moved.

Counted are reads and writes that did not fail, those of zero bytes (the end of a file) included::

    mean         sum of the bytes / count
    median, pN   linear interpolation between the two nearest of the sorted sizes
    Darshan's classes   0-100, 100-1K, 1K-10K, 10K-100K, 100K-1M, 1M-4M, 4M-10M, 10M-100M, 100M-1G, 1G+;
                 an upper bound belongs to its class, K = 1024 (DARSHAN_BUCKET_INC in Darshan's darshan-common.h)
    log2 classes class 0 holds the size 0, class k the sizes from 2^(k-1) to 2^k - 1
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dlio_torch.iotrace.events.call_names import CLASSES, READ, WRITE, class_codes

DARSHAN_LABELS = ("0-100", "100-1K", "1K-10K", "10K-100K", "100K-1M", "1M-4M", "4M-10M", "10M-100M", "100M-1G", "1G+")
PERCENTILES = (5, 10, 25, 75, 90, 95, 99)

_K = 1024
_DARSHAN_LAST = np.array((100, _K, 10 * _K, 100 * _K, _K**2, 4 * _K**2, 10 * _K**2, 100 * _K**2, _K**3), dtype=np.int64)
_COMMON = 10


@dataclass(frozen=True)
class Sizes:
    """Distribution of transfer sizes, in bytes.

    Args:
        count: transfers.
        bytes: their sum.
        min: the smallest, None without transfers; likewise the others.
        max: the largest.
        mean: mean.
        median: median.
        percentiles: ``p5`` to ``p99``; empty without transfers.
        darshan: counts in the classes :data:`DARSHAN_LABELS`.
        log2: counts in the classes of powers of two, up to the last one that is not empty.
        common: the ten most frequent sizes with their counts, the most frequent first.
    """

    count: int
    bytes: int
    min: int | None
    max: int | None
    mean: float | None
    median: float | None
    percentiles: dict[str, float]
    darshan: tuple[int, ...]
    log2: tuple[int, ...]
    common: tuple[tuple[int, int], ...]

    def as_dict(self) -> dict[str, Any]:
        """The distribution as plain values for JSON."""
        return asdict(self)


def transfer_sizes(frame: pd.DataFrame) -> Sizes:
    """Transfer sizes of all reads and writes of an event table; failed calls and other calls are ignored."""
    return _sizes(frame["bytes"].to_numpy()[_moves(frame, (READ, WRITE))])


def sizes_by_class(frame: pd.DataFrame) -> dict[str, Sizes]:
    """Transfer sizes of the reads, of the writes, and of both (``all``)."""
    size = frame["bytes"].to_numpy()
    return {
        READ: _sizes(size[_moves(frame, (READ,))]),
        WRITE: _sizes(size[_moves(frame, (WRITE,))]),
        "all": transfer_sizes(frame),
    }


def _moves(frame: pd.DataFrame, classes: tuple[str, ...]) -> NDArray[np.bool_]:
    codes = class_codes(frame)
    wanted = np.zeros(len(frame), bool)
    for name in classes:
        wanted |= codes == CLASSES.index(name)
    wanted &= frame["bytes"].to_numpy() >= 0
    return wanted


def _sizes(values: NDArray[np.int64]) -> Sizes:
    """Distribution of the sizes in an array, which is sorted in place."""
    values.sort()
    count, total = int(values.size), int(values.sum())
    edges = np.concatenate(([0], 1 << np.arange(62, dtype=np.int64)))  # the least size of each class
    log2 = np.trim_zeros(np.diff(np.append(np.searchsorted(values, edges), count)), "b")
    darshan = np.diff(np.concatenate(([0], np.searchsorted(values, _DARSHAN_LAST, side="right"), [count])))
    some = count > 0
    return Sizes(
        count=count,
        bytes=total,
        min=int(values[0]) if some else None,
        max=int(values[-1]) if some else None,
        mean=total / count if some else None,
        median=_quantile(values, 50) if some else None,
        percentiles={f"p{percent}": _quantile(values, percent) for percent in PERCENTILES} if some else {},
        darshan=tuple(darshan.tolist()),
        log2=tuple(log2.tolist()),
        common=_most_common(values),
    )


def _quantile(ordered: NDArray[np.int64], percent: int) -> float:
    whole, rest = divmod(percent * (ordered.size - 1), 100)
    low, high = int(ordered[whole]), int(ordered[min(whole + 1, ordered.size - 1)])
    return low + (high - low) * rest / 100


def _most_common(ordered: NDArray[np.int64]) -> tuple[tuple[int, int], ...]:
    if not ordered.size:
        return ()
    first = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    counts = np.diff(np.append(first, ordered.size))
    best = np.argsort(-counts, kind="stable")[:_COMMON]
    return tuple(zip(ordered[first[best]].tolist(), counts[best].tolist(), strict=True))
