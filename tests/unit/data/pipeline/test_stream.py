"""Streams of whole files: the laws of the sequence, and that the pipes deliver exactly what the plan says."""

from __future__ import annotations

import doctest
import pickle
import random
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pattern_data import CountingFormat, NamingPreprocess, configured, flat, loaders, numbers, planned
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from dlio_torch.config.schema import AccessConfig, Config, DatasetConfig, LoaderConfig
from dlio_torch.config.validate import validate
from dlio_torch.data.engines.batch_loader import BatchLoader
from dlio_torch.data.engines.sources import Loading
from dlio_torch.data.order.access_patterns import drawn, in_batches, interleaved
from dlio_torch.data.order.specification import StreamSpec
from dlio_torch.data.order.stream_plan import StreamPlan
from dlio_torch.data.pipeline import pattern_pipes, stream
from dlio_torch.data.pipeline.round_robin import RoundRobin
from dlio_torch.data.pipeline.stream_dataset import StreamDataset
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core.batch import INDEX
from dlio_torch.iotrace.recorder.spans import NULL

ITEMS = st.lists(st.lists(st.integers(), max_size=6), max_size=9)
COUNTS = st.lists(st.integers(1, 9), min_size=1, max_size=12)


@st.composite
def plans(draw: st.DrawFn, world_size: int | None = None) -> dict[str, Any]:
    """Options of a plan that exists."""
    world = world_size or draw(st.integers(1, 3))
    order = draw(st.sampled_from(["sequential", "shuffled"]))
    partition = draw(st.sampled_from(["files", "none"]))
    redealt = partition == "files" and order == "shuffled" and draw(st.booleans())
    whole = draw(st.booleans())
    return {
        "file_counts": draw(st.lists(st.integers(1, 7), min_size=world, max_size=10)),
        "batch_size": draw(st.integers(1, 5)),
        "order": order,
        "partition": partition,
        "shard": "after_shuffle" if redealt else "before_shuffle",
        "whole": whole,
        "interleave": draw(st.integers(1, 4)),
        "pool": 0 if whole else draw(st.integers(0, 9)),
        "tail": draw(st.sampled_from(["drop", "pad", "keep"])),
        "parts": draw(st.integers(1, 3)),
        "seed": draw(st.integers(0, 9)),
        "world_size": world,
    }


def of_all_ranks(options: dict[str, Any], **more: Any) -> list[StreamPlan]:
    try:
        given = {name: value for name, value in {**options, **more}.items() if name != "file_counts"}
        specs = [StreamSpec(**given, rank=rank) for rank in range(options["world_size"])]
        return [StreamPlan(options["file_counts"], spec) for spec in specs]
    except ConfigError as error:
        assume("is larger than" not in str(error))
        raise


# --- interleave ----------------------------------------------------------------------------------


def by_brute_force(sources: list[list[int]], cycle_length: int) -> list[int]:
    """Places around a table; each holds a source that is taken from the heap when its turn finds it empty."""
    heap, table, taken, quiet, turn = [list(s) for s in sources], [[] for _ in range(cycle_length)], [], 0, 0
    seated = [False] * cycle_length
    while quiet < cycle_length:
        seat = turn % cycle_length
        turn += 1
        quiet += 1
        if seated[seat] and not table[seat]:
            seated[seat], quiet = False, 0  # found used up: the seat is free until its next turn
            continue
        while not seated[seat] and heap:
            table[seat], seated[seat], quiet = heap.pop(0), True, 0
        if table[seat]:
            taken.append(table[seat].pop(0))
            quiet = 0
        elif seated[seat]:
            seated[seat], quiet = False, 0
    return taken


@given(ITEMS, st.integers(1, 5))
def test_interleave_is_the_brute_force_model(sources: list[list[int]], cycle_length: int) -> None:
    assert list(interleaved(sources, cycle_length)) == by_brute_force(sources, cycle_length)


def test_interleave_takes_one_of_each_in_turn() -> None:
    assert "".join(interleaved(["aaa", "bbb"], 2)) == "ababab"
    assert "".join(interleaved(["aaa", "b", "cc"], 2)) == "abaacc"


@given(ITEMS, st.integers(1, 5), st.integers(0, 60))
def test_interleave_keeps_k_sources_open_and_closes_them(sources: list[list[int]], k: int, taken: int) -> None:
    open_now: set[int] = set()
    most = 0

    def source(number: int) -> Iterator[int]:
        nonlocal most
        open_now.add(number)
        most = max(most, len(open_now))
        try:
            yield from sources[number]
        finally:
            open_now.discard(number)

    stream = interleaved((source(number) for number in range(len(sources))), k)
    list(islice(stream, taken))
    assert most <= k
    stream.close()  # type: ignore[attr-defined]
    assert not open_now


# --- shuffle pool --------------------------------------------------------------------------------


@given(st.integers(0, 60), st.integers(1, 20), st.integers(0, 99))
def test_pool_is_filled_first_and_never_larger(count: int, size: int, seed: int) -> None:
    came = 0

    def source() -> Iterator[int]:
        nonlocal came
        for number in range(count):
            came += 1
            yield number

    left = []
    for number in drawn([source()], size, random.Random(seed)):
        # Full before each draw, until there is nothing to fill it with.
        assert came - len(left) == min(size, count - len(left))
        left.append(number)
    assert sorted(left) == list(range(count))
    # Item i enters the pool when i + 1 - size have left.
    assert all(place >= number - size + 1 for place, number in enumerate(left))


@given(st.integers(1, 12), st.integers(1, 30), st.integers(0, 99))
def test_pool_keeps_passes_apart_and_is_filled_across_them(count: int, size: int, seed: int) -> None:
    came = 0

    def passes() -> Iterator[Iterator[int]]:
        nonlocal came

        def one() -> Iterator[int]:
            nonlocal came
            for number in range(count):
                came += 1
                yield number

        while True:
            yield one()

    left = []
    for number in islice(drawn(passes(), size, random.Random(seed)), 5 * count):
        assert came - len(left) == size
        left.append(number)
    assert [sorted(left[at : at + count]) for at in range(0, 5 * count, count)] == [list(range(count))] * 5


def test_pool_draws_uniformly() -> None:
    rng = random.Random(3)
    first = Counter(next(drawn([range(100)], 10, rng)) for _ in range(5000))
    assert set(first) == set(range(10))
    assert all(400 < often < 600 for often in first.values())  # 500 +- 21 expected; the seed is fixed


def test_pool_of_one_keeps_the_order_and_empty_passes_end() -> None:
    assert list(drawn([range(7)], 1, random.Random(0))) == list(range(7))
    assert list(drawn(iter([[], [1]]), 3, random.Random(0))) == []


@given(st.integers(0, 20), st.integers(1, 6))
def test_batches_are_full(count: int, size: int) -> None:
    assert flat(in_batches(lambda: range(count), size, again=False)) == list(range(count // size * size))
    again = list(islice(in_batches(lambda: range(count), size, again=True), 9))
    assert flat(again) == ([number % count for number in range(9 * size)] if count else [])
    kept = list(in_batches(lambda: range(count), size, again=False, keep=True))
    assert flat(kept) == list(range(count))
    assert [len(batch) for batch in kept] == [
        len(range(first, min(count, first + size))) for first in range(0, count, size)
    ]


def test_examples_of_the_docstrings() -> None:
    for module in (pattern_pipes, stream):
        tried = doctest.testmod(module)
        assert tried.attempted
        assert not tried.failed


# --- plan ----------------------------------------------------------------------------------------


@settings(deadline=None)
@given(plans(), st.integers(0, 4))
def test_every_rank_has_all_its_steps(options: dict[str, Any], epoch: int) -> None:
    ranks = of_all_ranks(options)
    assert len({len(plan) for plan in ranks}) == 1
    for plan in ranks:
        batches = list(plan.batches(epoch))
        assert len(batches) == len(plan)
        sizes = {len(batch) for batch in batches}
        assert sizes == {options["batch_size"]} or (options["tail"] == "keep" and max(sizes) <= options["batch_size"])
        assert epoch or plan.epoch_samples == sum(map(len, batches))


@settings(deadline=None)
@given(plans(), st.integers(0, 3))
def test_each_sample_at_most_once_or_without_drop_at_least_once(options: dict[str, Any], epoch: int) -> None:
    ranks = of_all_ranks(options)
    counts = [np.bincount(plan.expected(epoch), minlength=plan.num_samples) for plan in ranks]
    for plan, own in zip(ranks, counts, strict=True):
        assert np.array_equal(own, np.bincount(flat(plan.batches(epoch)), minlength=plan.num_samples))
    if options["tail"] == "drop":
        assert all(own.max() <= 1 for own in counts)
    if options["partition"] == "files" and options["tail"] == "drop":
        assert sum(counts).max() <= 1  # type: ignore[union-attr]
    if options["tail"] != "drop" and options["shard"] == "before_shuffle":
        read = counts if options["partition"] == "none" else [sum(counts)]
        assert all(own.min() >= 1 for own in read)  # type: ignore[union-attr]


@settings(deadline=None)
@given(plans(), st.integers(0, 3))
def test_shards_are_disjoint_and_complete(options: dict[str, Any], number: int) -> None:
    ranks = of_all_ranks(options)
    files, world = len(options["file_counts"]), options["world_size"]
    of_rank = [[file for part in range(plan.parts) for file in plan.files(number, part)] for plan in ranks]
    for own in of_rank:
        assert len(set(own)) == len(own)
    dealt = [file for own in of_rank for file in own]
    if options["partition"] == "none":
        assert all(sorted(own) == list(range(files)) for own in of_rank)
    elif options["shard"] == "after_shuffle":
        assert len(set(dealt)) == len(dealt)
        assert {len(own) for own in of_rank} == {files // world}
    else:
        assert sorted(dealt) == list(range(files))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_kept_tail_is_that_of_torchs_workers(workers: int) -> None:
    """Each worker of an iterable data set ends with a smaller batch."""

    class Files(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            info = get_worker_info()
            first, step = (info.id, info.num_workers) if info is not None else (0, 1)
            for file in range(first, 7, step):
                yield from range(5 * file, 5 * file + 5)

    loader = DataLoader(Files(), 4, num_workers=workers, drop_last=False)
    plan = StreamPlan([5] * 7, StreamSpec(batch_size=4, tail="keep", parts=max(1, workers)))
    assert list(plan.batches(0)) == [batch.tolist() for batch in loader]


def test_ranks_with_fewer_samples_begin_again_behind_a_kept_tail() -> None:
    first, second = (
        StreamPlan([4, 2, 3], StreamSpec(batch_size=3, tail="keep", rank=rank, world_size=2)) for rank in range(2)
    )
    assert list(first.batches(0)) == [[0, 1, 2], [3, 6, 7], [8]]
    assert list(second.batches(0)) == [[4, 5], [4, 5], [4, 5]]
    assert (first.epoch_samples, second.epoch_samples) == (7, 6)


def test_files_are_dealt_once_or_anew_in_each_epoch() -> None:
    def dealt(shard: str) -> list[set[int]]:
        options: dict[str, Any] = {"order": "shuffled", "shard": shard, "world_size": 4, "batch_size": 1}
        return [set(StreamPlan([1] * 64, StreamSpec(**options)).files(number, 0)) for number in range(3)]

    once, anew = dealt("before_shuffle"), dealt("after_shuffle")
    assert once[0] == once[1] == once[2] == set(range(0, 64, 4))
    assert len({frozenset(files) for files in anew}) == 3


@settings(deadline=None)
@given(plans(), st.integers(0, 3))
def test_order_depends_on_seed_and_epoch_alone(options: dict[str, Any], epoch: int) -> None:
    for plan, again in zip(of_all_ranks(options), of_all_ranks(options), strict=True):
        list(plan.batches(epoch + 1))
        assert list(plan.batches(epoch)) == list(again.batches(epoch))


@pytest.mark.parametrize("pool", [0, 20])
def test_epochs_seeds_and_ranks_differ(pool: int) -> None:
    def sequence(epoch: int = 0, **options: Any) -> list[int]:
        given = {"order": "shuffled", "partition": "none", "pool": pool, "world_size": 2, "batch_size": 4}
        return flat(StreamPlan([8] * 12, StreamSpec(**{**given, **options})).batches(epoch))

    assert len({tuple(sequence(**o)) for o in ({}, {"epoch": 1}, {"seed": 1}, {"rank": 1})}) == 4


def test_sequential_is_the_order_of_the_files() -> None:
    assert flat(StreamPlan([3, 2, 4], StreamSpec(batch_size=3)).batches(5)) == list(range(9))


@settings(deadline=None)
@given(plans(world_size=1), st.integers(1, 12), st.integers(0, 12))
def test_resuming_gives_the_rest(options: dict[str, Any], steps: int, step: int) -> None:
    (plan,) = of_all_ranks(options, steps=steps, repeat=True)
    whole = list(plan.batches(1))
    step = min(step, steps)
    assert list(plan.batches(1, step)) == whole[step:]
    # Workers that are started at this step give the batches in turn, from worker 0 on.
    positions = plan.positions(1, step)
    assert sorted(part for part, _ in positions) == list(range(plan.parts))
    running = [islice(plan.part_batches(1, part), done, None) for part, done in positions]
    live = [batches for batches, (part, _) in zip(running, positions, strict=True) if plan.part_lengths(1)[part]]
    assert [next(live[turn % len(live)]) for turn in range(steps - step)] == whole[step:]


@given(st.integers(1, 40), st.integers(1, 30), st.integers(0, 20))
def test_repeat_goes_through_whole_passes(samples: int, steps: int, pool: int) -> None:
    plan = StreamPlan([samples, 1], StreamSpec(batch_size=1, order="shuffled", pool=pool, repeat=True, steps=steps))
    sequence = flat(batch for epoch in range(4) for batch in plan.batches(epoch))
    size = samples + 1
    for at in range(0, len(sequence) - size + 1, size):
        assert sorted(sequence[at : at + size]) == list(range(size))


def test_what_is_kept_in_memory_is_known_beforehand() -> None:
    assert StreamPlan([40, 9], StreamSpec(batch_size=1, pool=7, parts=3)).held_samples == 21
    assert StreamPlan([4, 9], StreamSpec(batch_size=1, pool=7, parts=3)).held_samples == 13  # there are no more
    assert StreamPlan([4, 9, 9], StreamSpec(batch_size=1, interleave=2, whole=True)).held_samples == 18


def test_what_the_data_cannot_give_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"train\.steps=9, but the data suffice only for 2 step"):
        StreamPlan([4, 4], StreamSpec(batch_size=4, steps=9))
    with pytest.raises(
        ConfigError, match=r"access\.partition=files leaves ranks without data: there are 2 files for 3 ranks"
    ):
        StreamPlan([4, 4], StreamSpec(batch_size=1, world_size=3))
    with pytest.raises(ConfigError, match=r"train\.batch_size=9 is larger than the number of samples in the files"):
        StreamPlan([4, 4], StreamSpec(batch_size=9))
    with pytest.raises(ConfigError, match="the saved position belongs to the access pattern"):
        StreamPlan([4], StreamSpec(batch_size=1)).load_state_dict(
            StreamPlan([4], StreamSpec(batch_size=2)).state_dict()
        )


# --- pipes ---------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(plans(), st.booleans(), st.integers(0, 2))
def test_pipes_deliver_the_plan(options: dict[str, Any], repeat: bool, rank: int) -> None:
    assume(rank < options["world_size"])
    of_all_ranks({**options, "parts": 1})
    names = ("order", "partition", "shard", "interleave", "tail")
    access = {"pattern": "stream", **{name: options[name] for name in names}}
    access |= {"shuffle_pool": options["pool"], "unit": "file" if options["whole"] else "sample", "repeat": repeat}
    fmt = CountingFormat(options["file_counts"])
    train = {"batch_size": options["batch_size"], "steps": 7 if repeat else 0}
    config = configured(access, train, seed=options["seed"])
    made = loaders(config, fmt, rank, options["world_size"])
    assert [numbers(made, epoch) for epoch in range(3)] == planned(made, 3)
    assert fmt.seen.most_open <= options["interleave"]
    made.close()


LOADERS = {
    "main": {},
    "thread": {"read_threads": 1, "prefetch_batches": 2},
    "threads": {"read_threads": 3, "prefetch_batches": 4},
    "workers": {"num_workers": 2},
    "persistent": {"num_workers": 2, "persistent_workers": True},
    "stateful": {"engine": "stateful", "num_workers": 2},
}
UNEVEN = [5, 3, 7, 2, 6, 4, 9]


@pytest.mark.parametrize(("repeat", "tail"), [(False, "drop"), (True, "drop"), (False, "keep")])
@pytest.mark.parametrize("name", LOADERS)
def test_every_loader_delivers_the_plan(name: str, repeat: bool, tail: str) -> None:
    access = {"pattern": "stream", "partition": "files", "order": "shuffled", "interleave": 2, "shuffle_pool": 5}
    config = configured(
        {**access, "repeat": repeat, "tail": tail}, {"batch_size": 2, "steps": 11 if repeat else 0}, LOADERS[name]
    )
    made = loaders(config, CountingFormat(UNEVEN))
    assert [numbers(made, epoch) for epoch in range(3)] == planned(made, 3)
    # An epoch that was left half way takes nothing from what comes after it.
    numbers(made, 1, steps=4)
    assert numbers(made, 2) == planned(made, 3)[2]
    made.close()


@pytest.mark.parametrize(("repeat", "tail"), [(False, "drop"), (True, "drop"), (False, "keep")])
@pytest.mark.parametrize("name", ["main", "threads", "workers"])
@pytest.mark.parametrize("step", [0, 3, 8])
def test_resumes_where_it_was(name: str, repeat: bool, tail: str, step: int) -> None:
    access = {"pattern": "stream", "partition": "none", "order": "shuffled", "shuffle_pool": 4, "repeat": repeat}
    access["tail"] = tail
    config = configured(access, {"batch_size": 3, "steps": 9 if repeat else 0}, LOADERS[name])
    before = loaders(config, CountingFormat(UNEVEN))
    numbers(before, 0)
    numbers(before, 1, steps=step)
    state = before.train.state_dict()
    before.close()
    after = loaders(config, CountingFormat(UNEVEN))
    after.train.load_state_dict(state)
    whole = planned(after, 3)
    assert numbers(after, 1, steps=len(after.train) - step) == whole[1][step:]
    assert numbers(after, 2) == whole[2]
    after.close()


@pytest.mark.parametrize("name", ["main", "threads", "workers"])
def test_a_missing_file_is_the_error_it_is(name: str) -> None:
    access = {"pattern": "stream", "partition": "files", "interleave": 2}
    made = loaders(configured(access, {"batch_size": 2}, LOADERS[name]), CountingFormat(UNEVEN, missing=4))
    with pytest.raises(DataError, match=r"4\.none does not exist") as caught:
        numbers(made, 0)
    assert "\n" not in str(caught.value)
    made.close()


@pytest.mark.parametrize(("there", "said"), [(5, "holds 5 samples, expected 4"), (3, "holds 3 samples")])
@pytest.mark.parametrize("known", [True, False])
def test_a_file_with_other_samples_than_the_data_set_is_refused(there: int, said: str, known: bool) -> None:
    manifest, fmt = CountingFormat([4, 4]).manifest(), CountingFormat([4, there])
    fmt.counts_known = known
    config = configured({"pattern": "stream", "partition": "none"}, {"batch_size": 4})
    plan = StreamPlan([4, 4], StreamSpec(batch_size=4, partition="none"))
    loader = BatchLoader(config.loader, Loading(config, fmt, NULL).source(manifest, plan, 1), plan)
    with pytest.raises(DataError, match=said.replace("5", "5" if known else "more than 4")):
        list(loader.epoch(0))
    assert fmt.seen.open_now == 0


def test_pool_is_filled_before_the_first_step_and_no_further() -> None:
    fmt = CountingFormat([10] * 10)
    access = {"pattern": "stream", "partition": "none", "shuffle_pool": 25, "interleave": 3}
    made = loaders(configured(access, {"batch_size": 4}), fmt)
    numbers(made, 0, steps=1)
    assert len(fmt.seen.reads) == 25 + 3
    numbers(made, 0, steps=1)
    assert len(fmt.seen.reads) == 2 * (25 + 3)


@pytest.mark.parametrize("order", ["sequential", "shuffled"])
def test_whole_files_are_read_once_when_they_are_needed(order: str) -> None:
    fmt = CountingFormat([6, 4, 5])
    made = loaders(
        configured({"pattern": "stream", "partition": "files", "order": order, "unit": "file"}, {"batch_size": 3}), fmt
    )
    batches = made.train.epoch(0)
    files = made.sampler.files(0, 0)  # type: ignore[attr-defined]
    taken: list[int] = []
    for step in range(1, 6):
        taken += next(batches)[INDEX].tolist()
        needed = int(np.searchsorted(np.cumsum([fmt.counts[file] for file in files]), 3 * step)) + 1
        assert fmt.seen.reads == [(file, 0, fmt.counts[file]) for file in files[:needed]]
    at = 0
    for file in files:
        own = list(range(fmt.first[file], fmt.first[file + 1]))
        part = taken[at : at + len(own)]
        assert sorted(part) == own
        assert (part == own) == (order == "sequential") or len(own) < 3
        at += len(own)


def stream_of(threads: int, preprocess: Any) -> tuple[BatchLoader, StreamPlan]:
    fmt = CountingFormat(UNEVEN)
    config = configured(
        {"pattern": "stream", "partition": "none"},
        {"batch_size": 1},
        {"read_threads": threads, "prefetch_batches": threads},
    )
    plan = StreamPlan(UNEVEN, StreamSpec(batch_size=1, partition="none"))
    loading = Loading(config, fmt, NULL, preprocess=preprocess, verify=config.verify)
    return BatchLoader(config.loader, loading.source(fmt.manifest(), plan, 1), plan), plan


@pytest.mark.parametrize("threads", [1, 3])
def test_samples_of_a_stream_are_preprocessed_in_the_reader_threads_in_order(threads: int) -> None:
    preprocess = NamingPreprocess()
    loader, plan = stream_of(threads, preprocess)
    batches = loader.epoch(0)
    got = []
    for batch in batches:
        got.append(batch[INDEX].tolist())
        batches.read_on()
    loader.close()
    assert got == list(plan.batches(0))
    assert preprocess.names == {f"reader {number}" for number in range(threads)}


def test_samples_by_number_are_preprocessed_in_the_reader_threads_in_order() -> None:
    fmt = CountingFormat(UNEVEN)
    config = configured({}, {"batch_size": 2}, {"read_threads": 3, "prefetch_batches": 3})
    made = loaders(config, fmt)
    preprocess = NamingPreprocess()
    loading = Loading(config, fmt, NULL, preprocess=preprocess, verify=config.verify)  # type: ignore[arg-type]
    plan = made.sampler
    loader = BatchLoader(config.loader, loading.source(fmt.manifest(), plan, 1), plan)  # type: ignore[arg-type]
    assert flat([batch[INDEX].tolist() for batch in loader.epoch(0)]) == list(range(36))
    loader.close()
    made.close()
    assert preprocess.names == {"reader 0", "reader 1", "reader 2"}


def test_one_file_in_memory_is_read_once_and_whole_by_every_rank() -> None:
    for rank in range(2):
        fmt = CountingFormat([20])
        access = {"order": "shuffled", "partition": "none", "unit": "block"}
        made = loaders(configured(access, {"batch_size": 5, "epochs": 3}, {"in_memory": True}), fmt, rank, 2)
        assert fmt.seen.reads == [(0, 0, 20)]
        assert all(sorted(flat(numbers(made, epoch))) == list(range(20)) for epoch in range(3))
        assert fmt.seen.reads == [(0, 0, 20)]
        assert made.load_bytes == 20 * 8


def test_evaluation_samples_are_read_into_memory_too() -> None:
    fmt = CountingFormat([20])
    access = {"partition": "none", "unit": "block"}
    train = {"batch_size": 5, "eval_every_epochs": 1}
    made = loaders(configured(access, train, {"in_memory": True}), fmt, eval=fmt.manifest())
    assert fmt.seen.reads == [(0, 0, 20)] * 2
    assert made.load_bytes == 2 * 20 * 8
    assert made.eval is not None
    assert flat([batch[INDEX].tolist() for batch in made.eval.epoch(0)]) == list(range(20))
    assert len(fmt.seen.reads) == 2


def test_pipes_can_be_pickled() -> None:
    fmt = CountingFormat(UNEVEN)
    plan = StreamPlan(UNEVEN, StreamSpec(batch_size=2, pool=3, interleave=2, order="shuffled"))
    dataset = StreamDataset(fmt, fmt.manifest(), NULL, verify=True)
    batches = stream.RecordBatches(plan, stream.StreamStart(plan, dataset))
    again = pickle.loads(pickle.dumps(batches.assemble_batches(fmt.specs(), check=dataset.check)))
    assert [item.batch[INDEX].tolist() for item in again] == list(plan.batches(0))
    records = stream.StreamFiles(plan, 0, 0).read_records(dataset).interleave_records(2).shuffle_pool(3)
    assert len(list(pickle.loads(pickle.dumps(records)))) == sum(UNEVEN)


def test_batches_hold_what_was_read() -> None:
    made = loaders(configured({"pattern": "stream", "partition": "none"}, {"batch_size": 4}), CountingFormat([4, 4]))
    batch = list(made.train.epoch(0))[1]
    assert torch.equal(batch["x"], torch.tensor([[n, n + 0.5] for n in range(4, 8)]))


def test_turns_deal_in_order_whoever_asks_first_and_end() -> None:
    turns = RoundRobin(range(5), 3)
    asked: SimpleQueue[int] = SimpleQueue()
    thread = threading.Thread(target=lambda: [asked.put(item) for item in turns.share(1)], daemon=True)
    thread.start()
    first, third = turns.share(0), turns.share(2)
    assert asked.empty()
    assert next(first) == 0
    assert asked.get(timeout=30) == 1
    assert next(third) == 2
    assert next(first) == 3
    assert asked.get(timeout=30) == 4
    assert list(third) == []
    thread.join(30)
    assert not thread.is_alive()
    waiting = RoundRobin(range(9), 2)
    other = threading.Thread(target=lambda: list(waiting.share(1)), daemon=True)
    other.start()
    waiting.end()
    other.join(30)
    assert not other.is_alive()
    assert list(waiting.share(0)) == []


# --- configuration -------------------------------------------------------------------------------

STREAM: dict[str, Any] = {"pattern": "stream", "partition": "files"}
LANES: dict[str, Any] = {"pattern": "lanes", "partition": "none"}
REFUSED = [
    ({"interleave": 2}, {}, ["access.interleave=2 with access.pattern=samples", "set access.pattern=stream"]),
    ({"shuffle_pool": 2}, {}, ["access.shuffle_pool=2 with access.pattern=samples"]),
    ({"repeat": True}, {}, ["access.repeat=true with access.pattern=samples"]),
    ({"shard": "after_shuffle"}, {}, ["access.shard=after_shuffle with access.pattern=samples"]),
    ({"unit": "file"}, {}, ["access.unit=file with access.pattern=samples", "access.unit=block"]),
    ({**STREAM, "partition": "batches"}, {}, ["access.partition=batches", "access.partition=files or"]),
    ({**STREAM, "order": "strided"}, {}, ["access.order=strided with access.pattern=stream"]),
    ({**STREAM, "unit": "block"}, {}, ["access.unit=block with access.pattern=stream"]),
    (STREAM, {"engine": "nodes"}, ["loader.engine=nodes", "loader.engine=dataloader"]),
    (STREAM, {"in_memory": True}, ["loader.in_memory=true", "set loader.in_memory=false"]),
    ({**STREAM, "shard": "after_shuffle"}, {}, ["access.order=sequential", "set access.order=shuffled"]),
    (
        {"pattern": "stream", "order": "shuffled", "partition": "none", "shard": "after_shuffle"},
        {},
        ["access.shard=after_shuffle with access.partition=none", "set access.partition=files"],
    ),
    ({**STREAM, "unit": "file", "shuffle_pool": 9}, {}, ["access.shuffle_pool=9 with access.unit=file"]),
    ({**STREAM, "block_samples": 8}, {}, ["access.block_samples=8 with access.unit=sample", "set access.unit=block"]),
    ({"unit": "block", "block_samples": 8}, {}, ["access.block_samples=8 with access.pattern=samples"]),
    ({**LANES, "partition": "files"}, {}, ["access.partition=files with access.pattern=lanes"]),
    ({**LANES, "repeat": True}, {}, ["access.repeat=true with access.pattern=lanes"]),
    (LANES, {}, ["train.steps=0 with access.pattern=lanes", "set a number of steps, for example train.steps=100"]),
]


def experiment(access: dict[str, Any], loader: dict[str, Any]) -> Config:
    return Config(
        dataset=DatasetConfig(format="synthetic"), access=AccessConfig(**access), loader=LoaderConfig(**loader)
    )


@pytest.mark.parametrize(("access", "loader", "parts"), REFUSED)
def test_combinations_that_cannot_work_are_refused(
    access: dict[str, Any], loader: dict[str, Any], parts: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        validate(experiment(access, loader))
    assert "\n" not in str(caught.value)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("access", "loader"),
    [
        ({**STREAM, "order": "shuffled", "shard": "after_shuffle", "unit": "file"}, {}),
        ({**STREAM, "partition": "none", "interleave": 10, "shuffle_pool": 9, "repeat": True}, {}),
        ({**STREAM, "unit": "block", "block_samples": 8, "order": "shuffled"}, {}),
        ({"hold_steps": 3}, {}),
    ],
)
def test_combinations_that_work_are_taken(access: dict[str, Any], loader: dict[str, Any]) -> None:
    validate(experiment(access, loader))
