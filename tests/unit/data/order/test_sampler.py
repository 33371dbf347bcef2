"""The sampler: partitions are exact, order depends on seed and epoch alone, every rank has the same steps."""

from __future__ import annotations

import json
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler as TorchBatchSampler
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torchdata.nodes import SamplerWrapper
from torchdata.stateful_dataloader import StatefulDataLoader

from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import SamplerSpec
from dlio_torch.errors import ConfigError

ORDERS = ["sequential", "shuffled", "random_blocks", "strided"]
ONCE = ["sequential", "shuffled", "strided"]
PARTITIONS = ["batches", "slices", "files", "none"]


def sampler_of(**options: Any) -> BatchSampler:
    data = {name: options.pop(name) for name in ("num_samples", "file_counts") if name in options}
    return BatchSampler(SamplerSpec(**options), **data)


def ranks_of(world: int, **options: Any) -> list[BatchSampler]:
    return [sampler_of(rank=rank, world_size=world, **options) for rank in range(world)]


def epoch_of(sampler: BatchSampler, epoch: int = 0) -> list[list[int]]:
    sampler.set_epoch(epoch)
    return list(sampler)


@st.composite
def patterns(draw: st.DrawFn, orders: list[str] = ORDERS) -> dict[str, Any]:
    options: dict[str, Any] = {
        "order": draw(st.sampled_from(orders)),
        "partition": draw(st.sampled_from(PARTITIONS)),
        "tail": draw(st.sampled_from(["drop", "pad", "keep"])),
        "stride": draw(st.integers(1, 40)),
        "batch_size": draw(st.integers(1, 9)),
        "seed": draw(st.integers(0, 5)),
        "world": draw(st.integers(1, 9)),
    }
    if options["partition"] == "files":
        options["file_counts"] = draw(st.lists(st.integers(1, 6), min_size=options["world"], max_size=30))
    else:
        options["num_samples"] = draw(st.integers(options["world"], 200))
    return options


def build(options: dict[str, Any]) -> list[BatchSampler]:
    """Samplers of all ranks; patterns that the data cannot give are not what a property is about."""
    try:
        return ranks_of(**options)
    except ConfigError as error:
        assume("larger than" not in str(error))
        raise


@given(patterns(), st.integers(0, 3))
def test_every_rank_has_the_same_batches_and_all_but_the_last_are_full(options: dict[str, Any], epoch: int) -> None:
    samplers = build(options)
    sizes = [len(batch) for batch in epoch_of(samplers[0], epoch)]
    assert {*sizes[:-1], options["batch_size"]} == {options["batch_size"]}
    assert 0 < sizes[-1] <= options["batch_size"]
    for sampler in samplers:
        batches = epoch_of(sampler, epoch)
        assert len(batches) == len(sampler) == len(samplers[0]) > 0
        assert [len(batch) for batch in batches] == sizes
        assert sampler.epoch_samples == sum(sizes)
        if options["tail"] != "keep" or options["order"] == "random_blocks":
            assert sizes[-1] == options["batch_size"]
        assert all(index in sampler.share for batch in batches for index in batch)


@given(patterns(), st.integers(0, 3))
def test_expected_counts_are_what_is_read(options: dict[str, Any], epoch: int) -> None:
    for sampler in build(options):
        read = np.bincount(np.concatenate(epoch_of(sampler, epoch)), minlength=sampler.num_samples)
        np.testing.assert_array_equal(np.bincount(sampler.expected(epoch), minlength=sampler.num_samples), read)


@given(patterns(ONCE))
def test_shares_are_disjoint_and_complete(options: dict[str, Any]) -> None:
    samplers = build(options)
    counts = [np.bincount(sampler.expected(0), minlength=sampler.num_samples) for sampler in samplers]
    total = samplers[0].num_samples
    batch, world = options["batch_size"], options["world"]
    if options["partition"] == "none":
        assert all((one == counts[0]).all() for one in counts)
        counts = counts[:1]
        world = 1
    union = np.sum(counts, axis=0)
    shares = [len(sampler.share) for sampler in samplers]
    if options["partition"] in ("slices", "files"):
        assert [i for sampler in samplers for i in sampler.share] == list(range(total))
        steps = min(shares) // batch if options["tail"] == "drop" else -(-max(shares) // batch)
        kept = max(shares)
    else:
        span = batch * world
        steps = total // span if options["tail"] == "drop" else -(-total // span)
        kept = -(-total // world)
    assert len(samplers[0]) == steps
    assert union.sum() == (kept if options["tail"] == "keep" else steps * batch) * world
    if options["tail"] == "drop":
        assert union.max() == 1
        return
    assert union.min() >= 1
    for sampler, one in zip(samplers, counts, strict=False):
        # What is added to fill batches is spread over the share: no sample twice more than another.
        mine = one if options["partition"] != "batches" else union
        inside = mine[sampler.share.start : sampler.share.stop]
        assert inside.max() - inside.min() <= 1


@given(patterns(), st.integers(0, 3))
def test_order_depends_on_seed_and_epoch_alone(options: dict[str, Any], epoch: int) -> None:
    torch.manual_seed(1)
    np.random.seed(1)
    first = [epoch_of(sampler, epoch) for sampler in build(options)]
    torch.manual_seed(2)
    np.random.seed(2)
    for sampler, batches in zip(build(options), first, strict=True):
        epoch_of(sampler, epoch + 1)
        assert epoch_of(sampler, epoch) == batches
        assert [sampler.batch(epoch, step).tolist() for step in range(len(sampler))] == batches


@given(patterns(), st.data())
def test_a_saved_position_resumes_with_the_next_batch(options: dict[str, Any], data: st.DataObject) -> None:
    samplers = build(options)
    epoch = data.draw(st.integers(0, 3))
    done = data.draw(st.integers(0, len(samplers[0])))
    for sampler, fresh in zip(samplers, build(options), strict=True):
        sampler.set_epoch(epoch)
        iterator = iter(sampler)
        for _ in range(done):
            next(iterator)
        state = json.loads(json.dumps(sampler.state_dict()))
        fresh.load_state_dict(state)
        fresh.set_epoch(epoch)
        assert list(fresh) == epoch_of(sampler, epoch)[done:]
        assert list(fresh) == epoch_of(sampler, epoch)  # only the interrupted epoch is shortened


@settings(max_examples=30)
@given(
    st.sampled_from([13, 24, 25, 145]),
    st.integers(1, 9),
    st.integers(1, 40),
    st.sampled_from(["drop", "pad", "keep"]),
    st.sampled_from(ONCE),
)
def test_files_that_do_not_divide(files: int, world: int, batch: int, tail: str, order: str) -> None:
    options: dict[str, Any] = {"order": order, "tail": tail, "batch_size": batch, "stride": 3}
    counts = [1 + i % 3 for i in range(files)]
    smallest = min(sum(counts[r.start : r.stop]) for r in runs(files, world))
    if tail == "drop" and batch > smallest:
        with pytest.raises(
            ConfigError, match=f"train.batch_size={batch} is larger than the smallest share .* {smallest} "
        ):
            ranks_of(world, file_counts=counts, partition="files", **options)
        return
    samplers = ranks_of(world, file_counts=counts, partition="files", **options)
    for epoch in range(3):
        assert len({len(epoch_of(sampler, epoch)) for sampler in samplers}) == 1
    borders = [0, *np.cumsum(counts).tolist()]
    assert all(s.share.start in borders and s.share.stop in borders for s in samplers)


def runs(things: int, parts: int) -> list[range]:
    ends = np.cumsum([len(part) for part in np.array_split(np.arange(things), parts)]).tolist()
    return [range(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]


def test_orders_really_differ() -> None:
    """The peer gives the same order whatever the shuffle option says."""
    seen = {}
    for order in ORDERS:
        for seed in (1, 2):
            sampler = BatchSampler(SamplerSpec(order=order, stride=7, batch_size=4, seed=seed), num_samples=400)
            for epoch in (0, 1):
                seen[order, seed, epoch] = str(epoch_of(sampler, epoch))
    for order in ORDERS:
        different = len({seen[order, seed, epoch] for seed in (1, 2) for epoch in (0, 1)})
        assert different == (4 if order in ("shuffled", "random_blocks") else 1), order
    assert len({seen[order, 1, 0] for order in ORDERS}) == len(ORDERS)


def test_sequential_batches_of_two_ranks() -> None:
    first, second = ranks_of(2, num_samples=10, batch_size=2, tail="pad")
    assert list(first) == [[0, 1], [4, 5], [8, 9]]
    assert list(second) == [[2, 3], [6, 7], [0, 1]]


def test_slices_of_two_ranks() -> None:
    first, second = ranks_of(2, num_samples=7, batch_size=2, partition="slices")
    assert list(first) == [[0, 1]]
    assert list(second) == [[4, 5]]
    first, second = ranks_of(2, num_samples=7, batch_size=2, partition="slices", tail="pad")
    assert list(first) == [[0, 1], [2, 3]]
    assert list(second) == [[4, 5], [6, 4]]


@given(st.integers(1, 60), st.integers(1, 9), st.integers(1, 5), st.sampled_from(["sequential", "shuffled"]))
def test_kept_tails_have_the_sizes_of_torchs_distributed_sampler(
    samples: int, size: int, world: int, order: str
) -> None:
    data = cast("Dataset[int]", range(samples))
    for rank, sampler in enumerate(ranks_of(world, num_samples=samples, batch_size=size, tail="keep", order=order)):
        distributed = DistributedSampler(data, world, rank, shuffle=order == "shuffled")
        loader = DataLoader(data, size, sampler=distributed, drop_last=False)
        assert [len(batch) for batch in sampler] == [len(batch) for batch in loader]


@pytest.mark.parametrize("order", ["sequential", "strided"])
def test_a_kept_tail_is_that_of_a_loader_that_drops_nothing(order: str) -> None:
    sampler = sampler_of(num_samples=10, batch_size=4, tail="keep", order=order, stride=3)
    numbers = list(range(10)) if order == "sequential" else [0, 3, 6, 9, 1, 4, 7, 2, 5, 8]
    assert list(sampler) == list(TorchBatchSampler(numbers, 4, drop_last=False))


def test_ranks_complete_a_kept_tail_to_batches_of_the_same_size() -> None:
    first, second = ranks_of(2, num_samples=9, batch_size=3, tail="keep")
    assert list(first) == [[0, 1, 2], [6, 7]]
    assert list(second) == [[3, 4, 5], [8, 0]]
    first, second = ranks_of(2, num_samples=9, batch_size=3, tail="keep", partition="slices")
    assert list(first) == [[0, 1, 2], [3, 4]]
    assert list(second) == [[5, 6, 7], [8, 5]]


def test_a_batch_of_all_samples_is_kept() -> None:
    assert list(sampler_of(num_samples=3, batch_size=8, tail="keep")) == [[0, 1, 2]]


@given(st.integers(1, 300), st.integers(1, 320))
def test_strided_is_every_sth_then_the_next_start(samples: int, stride: int) -> None:
    read = [i for [i] in BatchSampler(SamplerSpec(order="strided", stride=stride, batch_size=1), num_samples=samples)]
    assert read == [i for start in range(min(stride, samples)) for i in range(start, samples, stride)]


def test_shuffled_batches_cut_one_permutation() -> None:
    samplers = ranks_of(4, num_samples=96, order="shuffled", batch_size=3)
    together = [i for parts in zip(*samplers, strict=True) for part in parts for i in part]
    alone = BatchSampler(SamplerSpec(order="shuffled", batch_size=96), num_samples=96)
    assert together == next(iter(alone))
    assert sorted(together) == list(range(96))
    assert together != list(range(96))


@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 5))
def test_random_blocks_scatter_one_global_block(world: int, batch: int, epoch: int) -> None:
    """As Cosmic Tagger reads: one start per global minibatch, rank r has the r-th consecutive part."""
    samplers = ranks_of(world, num_samples=60, order="random_blocks", batch_size=batch)
    assert len(samplers[0]) == 60 // (world * batch)
    for sampler in samplers:
        sampler.set_epoch(epoch)
    for parts in zip(*samplers, strict=True):
        block = [i for part in parts for i in part]
        assert block == list(range(block[0], block[0] + world * batch))
        assert block[-1] < 60


def test_random_starts_are_uniform_over_the_starts_that_fit() -> None:
    sampler = BatchSampler(SamplerSpec(order="random_blocks", batch_size=4, steps=7000), num_samples=10)
    starts = np.bincount([batch[0] for batch in sampler], minlength=7)
    assert len(starts) == 7
    # Binomial with mean 1000 and deviation 29; the seed is fixed, so this does not flicker.
    assert starts.min() > 850
    assert starts.max() < 1150


def test_ranks_with_their_own_slices_shuffle_independently() -> None:
    first, second = ranks_of(2, num_samples=200, order="shuffled", partition="slices", batch_size=100)
    a, b = next(iter(first)), next(iter(second))
    assert sorted(a) == list(range(100))
    assert sorted(b) == list(range(100, 200))
    assert [i + 100 for i in a] != b


def test_global_batch_is_divided() -> None:
    for world, each in ((1, 12), (2, 6), (3, 4), (4, 3)):
        samplers = ranks_of(world, num_samples=48, batch_size=12, batch_scope="global")
        assert [len(next(iter(sampler))) for sampler in samplers] == [each] * world
        assert len(samplers[0]) == 4
    with pytest.raises(ConfigError, match=r"train\.batch_size=12 .* 5 ranks; set .*=10 or 15"):
        BatchSampler(SamplerSpec(batch_size=12, batch_scope="global", world_size=5), num_samples=48)
    with pytest.raises(ConfigError, match=r"is not divisible by 5 ranks; set .*=5, or"):
        BatchSampler(SamplerSpec(batch_size=3, batch_scope="global", world_size=5), num_samples=48)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_samples": 10, "batch_size": 0}, r"train\.batch_size=0"),
        (
            {"num_samples": 10, "batch_size": 11},
            r"train\.batch_size=11 is larger than the data set, which has 10 sample",
        ),
        ({"num_samples": 10, "batch_size": 6, "world_size": 2}, r"train\.batch_size=6 \(12 on 2 ranks\).* 10 sample"),
        (
            {"num_samples": 10, "batch_size": 6, "world_size": 2, "partition": "slices"},
            r"smallest share .*, which has 5 sample",
        ),
        ({"num_samples": 10, "batch_size": 11, "tail": "pad", "order": "random_blocks"}, r"batch_size=11 is larger"),
        ({"num_samples": 10, "batch_size": 2, "steps": 6}, r"train\.steps=6, but the data suffice only for 5 step"),
        (
            {"num_samples": 10, "batch_size": 3, "steps": 5, "tail": "pad"},
            r"train\.steps=5, but the data suffice only for 4 step",
        ),
        ({"num_samples": 0, "batch_size": 1}, r"no samples"),
        ({"num_samples": 2, "batch_size": 1, "stride": 0}, r"access\.stride=0"),
        ({"num_samples": 2, "batch_size": 1, "partition": "slices", "world_size": 3}, r"rank 2 of 3 without a sample"),
        ({"file_counts": [4, 4], "batch_size": 1, "partition": "files", "world_size": 3}, r"2 files for 3 ranks"),
        ({"file_counts": [4, 0], "batch_size": 1, "partition": "files", "world_size": 2}, r"rank 1 of 2 without"),
        (
            {"num_samples": 4, "batch_size": 5, "batch_key": "train.eval_batch_size"},
            r"train\.eval_batch_size=5 is larger .* use a smaller train\.eval_batch_size",
        ),
    ],
)
def test_what_the_data_cannot_give_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        sampler_of(**options)
    assert "\n" not in str(caught.value)


def test_steps_limit_an_epoch_and_repeat_random_blocks() -> None:
    assert len(list(BatchSampler(SamplerSpec(batch_size=2, steps=7), num_samples=100))) == 7
    assert len(list(BatchSampler(SamplerSpec(batch_size=2, steps=150, order="random_blocks"), num_samples=100))) == 150


def test_padding_may_repeat_a_small_share() -> None:
    assert list(BatchSampler(SamplerSpec(batch_size=5, tail="pad"), num_samples=2)) == [[0, 1, 0, 1, 0]]


def test_a_position_of_another_pattern_is_refused() -> None:
    state = BatchSampler(SamplerSpec(batch_size=2), num_samples=10).state_dict()
    with pytest.raises(ConfigError, match=r"world size 1.*world size 2"):
        BatchSampler(SamplerSpec(batch_size=2, world_size=2), num_samples=10).load_state_dict(state)


def test_another_epoch_forgets_the_position() -> None:
    sampler = BatchSampler(SamplerSpec(batch_size=2), num_samples=10)
    next(iter(sampler))
    fresh = BatchSampler(SamplerSpec(batch_size=2), num_samples=10)
    fresh.load_state_dict(sampler.state_dict())
    fresh.set_epoch(1)
    assert len(list(fresh)) == 5


def test_a_million_samples_take_no_memory() -> None:
    import tracemalloc

    def take(num_samples: int) -> None:
        for order in ("sequential", "strided", "random_blocks"):
            sampler = BatchSampler(
                SamplerSpec(order=order, stride=64, batch_size=32, steps=100), num_samples=num_samples
            )
            assert sum(len(batch) for batch in sampler) == 3200

    take(10**4)  # what is imported at the first use is not the sampler's
    tracemalloc.start()
    try:
        take(10**6)
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


class Numbers(Dataset[int]):
    def __getitem__(self, index: int) -> int:
        return index

    def __len__(self) -> int:
        return 40


def test_dataloader_reads_in_this_order() -> None:
    sampler = BatchSampler(SamplerSpec(order="shuffled", batch_size=4), num_samples=40)
    assert [batch.tolist() for batch in DataLoader(Numbers(), batch_sampler=sampler)] == list(sampler)


# What StatefulDataLoader of torchdata 0.11 calls in a newer torch.
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("workers", [0, 2])
def test_stateful_dataloader_resumes(workers: int) -> None:
    def loader() -> Any:
        sampler = BatchSampler(SamplerSpec(order="shuffled", batch_size=4), num_samples=40)
        sampler.set_epoch(2)
        return StatefulDataLoader(
            Numbers(), batch_sampler=sampler, num_workers=workers, multiprocessing_context="fork" if workers else None
        )

    expected = epoch_of(BatchSampler(SamplerSpec(order="shuffled", batch_size=4), num_samples=40), 2)
    first = loader()
    iterator = iter(first)
    begin = [next(iterator).tolist() for _ in range(3)]
    state = first.state_dict()
    second = loader()
    second.load_state_dict(state)
    rest = [batch.tolist() for batch in second]
    assert begin + rest == expected
    assert [batch.tolist() for batch in second] == expected
    del iterator, first, second


def test_torchdata_nodes_resume() -> None:
    def node() -> Any:
        return SamplerWrapper(
            BatchSampler(SamplerSpec(order="shuffled", batch_size=4), num_samples=40), initial_epoch=2
        )

    expected = epoch_of(BatchSampler(SamplerSpec(order="shuffled", batch_size=4), num_samples=40), 2)
    first = node()
    first.reset()
    begin = [next(first) for _ in range(3)]
    second = node()
    second.reset(first.state_dict())
    assert begin + list(second) == expected
