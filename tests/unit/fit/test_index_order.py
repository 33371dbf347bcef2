"""Orders and divisions of the indices that samplers gave."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
import pytest
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, SequentialSampler

from dlio_torch.fit.index_order import order_of, rank_shares, whole_indices

SAMPLES = range(120)


def table(ranks: Sequence[Sequence[Iterable[Sequence[object]]]]) -> pd.DataFrame:
    """Indices by rank, epoch, batch and position."""
    rows = [
        (rank, epoch, batch, position, index)
        for rank, epochs in enumerate(ranks)
        for epoch, batches in enumerate(epochs)
        for batch, indices in enumerate(batches)
        for position, index in enumerate(indices)
    ]
    return pd.DataFrame(rows, columns=["rank", "epoch", "batch", "position", "index"])


def batches(indices: Iterable[int], size: int = 8) -> list[list[int]]:
    listed = list(map(int, indices))
    return [listed[first : first + size] for first in range(0, len(listed), size)]


def blocks(seed: int) -> list[list[int]]:
    """Consecutive samples from random starts."""
    return [list(range(first, first + 8)) for first in np.random.default_rng(seed).integers(0, 112, 15)]


@pytest.mark.parametrize(
    ("epochs", "order", "stride"),
    [
        ([BatchSampler(SequentialSampler(SAMPLES), 8, drop_last=False)] * 2, "sequential", 1),
        ([BatchSampler(RandomSampler(SAMPLES), 8, drop_last=False)] * 2, "shuffled", 1),
        ([batches([*range(0, 120, 4), *range(1, 120, 4)])], "strided", 4),
        ([blocks(1), blocks(2)], "random_blocks", 1),
        ([batches(np.random.default_rng(0).permutation(120))], "shuffled", 1),
    ],
)
def test_the_order_follows_from_the_indices(epochs: list[Iterable[list[int]]], order: str, stride: int) -> None:
    judged = order_of(whole_indices(table([epochs])))
    assert judged is not None
    assert (judged.order, judged.stride) == (order, stride)
    assert judged.share > 0.9
    assert f"{judged.share:.0%} of {judged.count} indices" in judged.text


def test_repeated_and_unchanged_orders_are_seen() -> None:
    drawn = batches(np.random.default_rng(0).integers(0, 120, 120))
    judged = order_of(whole_indices(table([[drawn, drawn]])))
    assert judged is not None
    assert judged.repeated == pytest.approx(1 - len({index for batch in drawn for index in batch}) / 120)
    assert judged.is_fixed


@pytest.mark.parametrize("indices", [[], [[["a", "b"]]], [[[3]]]])
def test_no_order_without_two_whole_indices(indices: list[list[list[object]]]) -> None:
    assert order_of(whole_indices(table([indices]))) is None


def dealt(rank: int, *, shuffle: bool) -> list[list[list[int]]]:
    """Batches of two epochs of torch's distributed sampler."""
    sampler = DistributedSampler(SAMPLES, num_replicas=2, rank=rank, shuffle=shuffle)  # type: ignore[arg-type]
    epochs = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        epochs.append(batches(sampler))
    return epochs


@pytest.mark.parametrize(
    ("ranks", "files", "partition", "same_order"),
    [
        ([dealt(0, shuffle=True), dealt(1, shuffle=True)], "ab", "batches", False),
        ([dealt(0, shuffle=False), dealt(1, shuffle=False)], "ab", "batches", False),
        ([[batches(range(60))], [batches(range(60, 120))]], "ab", "files", False),
        ([[batches(range(60))], [batches(range(60, 120))]], "aa", "slices", False),
        ([[batches(range(120))], [batches(range(120))]], "aa", "none", True),
        ([[batches(range(120))], [batches(range(119, -1, -1))]], "aa", "none", False),
    ],
)
def test_the_division_among_ranks_follows_from_their_indices(
    ranks: list[list[list[list[int]]]], files: str, partition: str, same_order: bool
) -> None:
    shares = rank_shares(whole_indices(table(ranks)), [frozenset(name) for name in files])
    assert shares is not None
    assert (shares.partition, shares.same_order) == (partition, same_order)


def test_a_single_rank_divides_nothing() -> None:
    assert rank_shares(whole_indices(table([[batches(range(60))]])), []) is None
