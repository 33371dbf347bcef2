"""Orders of the sample indices that a sampler gave: which follow each other, and which rank gets which.

Everything here follows from the indices, not from the names of the sampler's classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

Ints = npt.NDArray[np.int64]

_MOST = 0.9
"""Share of indices that must agree with an order."""
_SHARED = 0.1
"""Share of common indices above which ranks read the same samples; samplers that deal the samples give some of them
twice to fill the last batch."""


@dataclass(frozen=True)
class IndexOrder:
    """Order of the indices of one rank.

    Attributes:
        order: value of ``access.order``.
        stride: distance from index to index of ``strided``; else 1.
        share: share of the steps from index to index that agree.
        count: number of indices that were judged.
        repeated: share of the indices that came before in the same epoch, of the epoch with most of them.
        is_fixed: whether all epochs, of several, have the same order.
    """

    order: Literal["sequential", "shuffled", "random_blocks", "strided"]
    stride: int
    share: float
    count: int
    repeated: float
    is_fixed: bool

    @property
    def text(self) -> str:
        """Evidence in one line."""
        share = f"{self.share:.0%} of {self.count} indices"
        texts = {
            "sequential": f"{share} follow the one before",
            "strided": f"{share} are {self.stride} behind the one before",
            "random_blocks": f"{share} follow the one before within their batch, and batches begin anywhere",
            "shuffled": f"{share} follow none in order",
        }
        return texts[self.order]


def whole_indices(indices: pd.DataFrame) -> pd.DataFrame:
    """Rows whose index is an integer; columns ``rank, epoch, batch, position, index``, in the order of the sampler."""
    whole = pd.to_numeric(indices["index"], errors="coerce")
    kept = indices[whole.notna()].assign(index=whole[whole.notna()].astype(np.int64))
    return kept.sort_values(["rank", "epoch", "batch", "position"], kind="stable")


def order_of(indices: pd.DataFrame) -> IndexOrder | None:
    """The order in which the first rank reads samples.

    Args:
        indices: result of :func:`whole_indices`.

    Returns:
        ``None`` without two indices of an epoch.
    """
    mine = indices[indices["rank"] == indices["rank"].min()]
    epochs = [group for _, group in mine.groupby("epoch")]
    numbers = [group["index"].to_numpy() for group in epochs]
    steps = np.concatenate([np.zeros(0, np.int64), *(np.diff(sequence) for sequence in numbers)])
    if not len(steps):
        return None
    inner = np.concatenate([np.diff(group["batch"].to_numpy()) == 0 for group in epochs])
    repeated = max(1 - len(np.unique(sequence)) / len(sequence) for sequence in numbers)
    is_fixed = len(numbers) > 1 and all(np.array_equal(first, second) for first, second in pairwise(numbers))
    order, stride, share = _judged(steps, inner)
    return IndexOrder(order, stride, share, len(mine), repeated, is_fixed)


def _judged(
    steps: Ints, inner: npt.NDArray[np.bool_]
) -> tuple[Literal["sequential", "shuffled", "random_blocks", "strided"], int, float]:
    """Order, stride and the share of steps that agree; ``inner`` marks the steps within a batch."""
    sizes, counts = np.unique(steps, return_counts=True)
    usual, share = int(sizes[counts.argmax()]), float(counts.max() / len(steps))
    if usual > 0 and share >= _MOST:
        return ("sequential", 1, share) if usual == 1 else ("strided", usual, share)
    if inner.any() and float((steps[inner] == 1).mean()) >= _MOST:
        return "random_blocks", 1, float((steps[inner] == 1).mean())
    return "shuffled", 1, float((steps != 1).mean())


@dataclass(frozen=True)
class RankShares:
    """Division of the samples among ranks.

    Attributes:
        partition: value of ``access.partition``.
        common: share of a rank's samples that another rank reads in the same epoch.
        same_order: whether all ranks read the same samples at the same time.
    """

    partition: Literal["batches", "slices", "files", "none"]
    common: float
    same_order: bool


def rank_shares(indices: pd.DataFrame, files: Sequence[frozenset[str]]) -> RankShares | None:
    """Division of the samples among ranks.

    Args:
        indices: result of :func:`whole_indices`.
        files: files that each rank read.

    Returns:
        ``None`` for a single rank.
    """
    first = indices[indices["epoch"] == indices["epoch"].min()]
    of_ranks = [group["index"].to_numpy() for _, group in first.groupby("rank")]
    if len(of_ranks) < 2:
        return None
    common = float(np.mean(list(_common(of_ranks))))
    same_order = all(np.array_equal(before, after) for before, after in pairwise(of_ranks))
    if common > _SHARED:
        return RankShares("none", common, same_order)
    all_epochs = [group["index"].to_numpy() for _, group in indices.groupby("rank")]
    return RankShares(_divided(all_epochs, files), common, same_order)


def _common(of_ranks: Sequence[Ints]) -> Iterator[float]:
    """For each rank, the share of its samples that the next one reads as well."""
    for mine, other in pairwise([*of_ranks, of_ranks[0]]):
        yield float(np.isin(mine, other).mean())


def _divided(of_ranks: Sequence[Ints], files: Sequence[frozenset[str]]) -> Literal["batches", "slices", "files"]:
    """Kind of a division in which no two ranks have the same samples."""
    ranges = sorted((int(mine.min()), int(mine.max())) for mine in of_ranks if len(mine))
    if any(before[1] >= after[0] for before, after in pairwise(ranges)):
        return "batches"
    shared = any(mine & other for number, mine in enumerate(files) for other in files[:number])
    return "slices" if shared or not all(files) else "files"
