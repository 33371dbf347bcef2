"""What a rank keeps of samples and files that it does not read: the same bytes however many there are."""

from __future__ import annotations

import hashlib
import pickle
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.own.index import memory
from dlio_torch.config.compose import compose
from dlio_torch.data.dataset.file_counts import FileCounts
from dlio_torch.data.dataset.file_names import Names
from dlio_torch.data.dataset.manifest import Manifest, generated_manifests
from dlio_torch.data.order import orders
from dlio_torch.data.order.lanes_plan import LanesPlan
from dlio_torch.data.order.permutation import Permutation
from dlio_torch.data.order.pipe_plan import PipePlan
from dlio_torch.data.order.planning import train_sampler
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import LanesSpec, SamplerSpec
from dlio_torch.formats.core import registry

STREAM = "access=stream access.order=shuffled access.partition=files"
ORDERS = {
    "access=shuffled access.partition=batches": "54f24507e9af815c",
    "access=shuffled access.partition=none train.steps=3": "ce29f0a4fbac1faa",
    "access=shuffled access.partition=none access.tail=pad train.batch_size=9": "5f9845fccae4121e",
    "access=shuffled access.partition=slices": "740b0734cda4c320",
    "access=files": "84f240efe714b9ff",
    "access=strided access.partition=slices": "8863c6827139533f",
    "access=random_blocks": "6fa513174991e918",
    f"{STREAM} loader.num_workers=2": "a0dcaa4ba09a3a7d",
    f"{STREAM} access.shard=after_shuffle": "f9210ee57382942f",
    "access=stream access.order=shuffled access.partition=none access.shuffle_pool=20 access.repeat=true "
    "train.steps=9": "c7fcc99ad8d93aef",
    f"{STREAM} access.tail=pad loader.num_workers=3": "1f442510b1627ac4",
    "access=stream access.order=sequential access.partition=files": "13e60eb00484f715",
    "access=whole_files access.partition=files": "b287e1d3206416d4",
}
"""Digests of the orders as they were before files and samples were counted without a list of them."""


def plan_of(options: str, rank: int, world_size: int, files: int, per_file: int) -> BatchSampler | PipePlan:
    words = ["recipe=minimal", "scale=paper", f"dataset.num_files={files}", f"dataset.samples_per_file={per_file}"]
    words += ["train.batch_size=4", "train.batch_scope=rank", "seed=7", *options.split()]
    config = compose(words, environ={}).config
    manifest = generated_manifests(config, registry.create(config.dataset, config.seed))["train"]
    plan = train_sampler(config, manifest, rank, world_size)
    assert isinstance(plan, BatchSampler | PipePlan)
    return plan


@pytest.mark.parametrize("options", ORDERS)
def test_the_orders_of_seeds_stay(options: str) -> None:
    found = hashlib.sha256()
    for rank in range(3):
        plan = plan_of(options, rank, 3, files=11, per_file=13)
        for epoch in (0, 2):
            for step in range(len(plan)):
                found.update(plan.batch(epoch, step).astype("<i8").tobytes())
    assert found.hexdigest()[:16] == ORDERS[options]


@pytest.mark.parametrize("rank", [0, 1])
def test_lanes_keep_their_order(rank: int) -> None:
    plan = LanesPlan(20_000, LanesSpec(rows=1, batch_size=1, steps=1, seed=7, rank=rank, world_size=2))
    samples = plan.samples(0)
    for number in range(2):
        expected = np.random.default_rng([7, rank, 0, number]).permutation(20_000)
        assert [next(samples) for _ in range(20_000)] == expected.tolist()


# --- the index of a share -------------------------------------------------------------------------


def begun(options: str, ranks: int) -> object:
    """Of the last rank, whose share is 512 samples in 64 files, after its first batch."""
    plan = plan_of(options, ranks - 1, ranks, files=64 * ranks, per_file=8)
    order = plan.part_batches(0, 0) if isinstance(plan, PipePlan) else iter(plan)
    next(order)
    return plan, order


@pytest.mark.parametrize(
    ("options", "grows"),
    [
        ("access=shuffled access.partition=slices", 0),
        ("access=files", 0),
        ("access=random_blocks train.steps=128", 0),
        (f"{STREAM} loader.num_workers=2", 0),
        # Four bytes for each file or sample, for a moment: a shuffle of all of them.
        (f"{STREAM} access.shard=after_shuffle", 4 * 64),
        ("access=shuffled access.partition=batches", 4 * 512),
    ],
)
def test_an_index_does_not_grow_with_ranks_and_what_they_read(options: str, grows: int) -> None:
    begun(options, 2)  # what is imported or made once is not counted
    few, many = 8, 8192
    (kept, peak), (kept_of_many, peak_of_many) = (memory(partial(begun, options, ranks)) for ranks in (few, many))
    assert kept_of_many <= kept + 2000
    assert peak_of_many <= peak + 4000 + grows * (many - few)


def test_shares_of_files_that_differ_are_reckoned_as_one_by_one() -> None:
    counts = [(7 * number) % 5 + 1 for number in range(23)]
    one = BatchSampler(SamplerSpec(partition="files", batch_size=2, rank=2, world_size=4), file_counts=counts)
    before = sum(counts[:12])
    assert one.share == range(before, before + sum(counts[12:18]))


# --- more samples than are permuted whole ---------------------------------------------------------


@given(st.integers(1, 700), st.integers(0, 9))
def test_a_computed_permutation_holds_everything_once(count: int, key: int) -> None:
    assert sorted(Permutation([key], count)(np.arange(count)).tolist()) == list(range(count))


def test_a_computed_permutation_looks_drawn() -> None:
    count, drawn = 1 << 28, 1 << 16
    order = Permutation([1, 2, 3], count)(np.arange(drawn))
    again = Permutation([1, 3, 3], count)(np.arange(drawn))
    assert len(np.intersect1d(order, again)) < 100  # 16 are to be expected of two random draws
    for values in (order, np.abs(np.diff(order)), (order - again) % count):
        assert len(np.unique(values)) > 0.999 * drawn
    hits = np.bincount(order * 64 // count, minlength=64)
    assert ((hits - drawn / 64) ** 2).sum() / (drawn / 64) < 120  # chi-squared with 63 degrees: 63 +- 11
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.02


@settings(max_examples=30)
@given(st.data())
def test_ranks_share_a_computed_permutation(data: st.DataObject) -> None:
    world, size, steps = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9))
    count = world * size * steps + data.draw(st.integers(0, 20))
    seen: list[int] = []
    for rank in range(world):
        positions = orders.Positions(size, count, ranks=world, rank=rank)
        make = orders.Computed([5], 1000, positions, steps)
        batches = [make(step).tolist() for step in range(steps)]
        assert [orders.Computed([5], 1000, positions, steps)(step).tolist() for step in range(steps)] == batches
        seen += [sample for batch in batches for sample in batch]
    assert len(seen) == len(set(seen)) == world * size * steps
    assert min(seen) >= 1000
    assert max(seen) < 1000 + count


def test_a_quarter_of_a_billion_samples_take_a_rank_nothing() -> None:
    def first() -> object:
        sampler = BatchSampler(
            SamplerSpec(order="shuffled", batch_size=16, rank=8191, world_size=8192), num_samples=1 << 28
        )
        batches = iter(sampler)
        return sampler, batches, next(batches)

    first()
    kept, peak = memory(first)
    assert kept < 100_000
    assert peak < 2_000_000


def test_up_to_the_limit_the_permutation_is_numpys() -> None:
    positions = orders.Positions(4, orders.LARGE)
    assert isinstance(orders.shuffled([1], 0, orders.Positions(4, orders.LARGE + 1), 1), orders.Computed)
    assert isinstance(orders.shuffled([1], 0, orders.Positions(4, 4096), 1), orders.Shuffled)
    assert positions.count == 1 << 24


def test_some_steps_of_a_permutation_do_not_keep_the_rest() -> None:
    made = orders.Shuffled([1], 0, orders.Positions(4, 1 << 16), 2)
    assert made.order.base is None
    assert made.order.nbytes == 32


# --- files ----------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12))
def test_counts_are_those_of_a_list(counts: list[int]) -> None:
    made = FileCounts(counts)
    assert made == counts
    assert made.total == sum(counts)
    assert made.largest() == max(counts)
    assert made[1:] == counts[1:]
    assert made[-1] == counts[-1]
    assert [made.before(file) for file in range(len(counts) + 1)] == [sum(counts[:n]) for n in range(len(counts) + 1)]
    numbers = np.arange(len(counts))[::-1]
    assert made.array(numbers).tolist() == counts[::-1]
    located = [(file, row) for file, count in enumerate(counts) for row in range(count)]
    if all(counts):
        assert [made.locate(sample) for sample in range(made.total)] == located
        files, rows = made.locate_all(np.arange(made.total))
        assert list(zip(files.tolist(), rows.tolist(), strict=True)) == located


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=6), min_size=1, max_size=8))
def test_names_are_those_of_a_list(names: list[str]) -> None:
    assert list(Names(names)) == names
    assert pickle.loads(pickle.dumps(Names(names)))[::2] == names[::2]


def test_a_name_costs_what_it_adds() -> None:
    names = [f"train/{number % 64:05d}/train_{number:07d}.tfrecord" for number in range(20_000)]
    assert len(pickle.dumps(Names(names))) < 30 * len(names)
    made = Manifest("train", 0, FileCounts([3] * len(names)), Path("data"), Names(names), ".tfrecord")
    assert made.path(777) == Path("data") / names[777]
    assert len(pickle.dumps(FileCounts([3] * len(names)))) < 200
