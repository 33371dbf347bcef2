"""Lanes by the decoupled engine: the batches of the faithful path, each sample read once a turn, ahead of need."""

from __future__ import annotations

import errno
import gc
import os
import threading
from collections import Counter
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from data_files import config_of, make, numbers
from decoupled_data import LAYOUTS, NotedMover, as_bytes, assembled, feed_of
from hypothesis import given, settings
from hypothesis import strategies as st

from dlio_torch.compute.emulate import Preprocess
from dlio_torch.config.compose import compose
from dlio_torch.config.schema import ComputeConfig, Config, FieldConfig, LoaderConfig
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.engines.decoupled.batch_groups import DecoupledSource
from dlio_torch.data.engines.decoupled.buffer_pool import BufferPool
from dlio_torch.data.engines.decoupled.engine import DecoupledEngine
from dlio_torch.data.engines.decoupled.incoming_samples import Incoming, SampleWindow, one_by_one
from dlio_torch.data.engines.decoupled.lane_schedule import LaneSchedule
from dlio_torch.data.order.access_patterns import filled_lanes
from dlio_torch.data.order.lanes_plan import LanesPlan, RowsOf
from dlio_torch.data.order.specification import LanesSpec
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.numpy.options import NpzConfig
from dlio_torch.iotrace.events.event_table import read_events
from dlio_torch.iotrace.recorder.spans import NULL, Recorder
from dlio_torch.native.extents import ExtentError

Data = tuple[Config, Format, Manifest]

ACCESS: dict[str, Any] = {"pattern": "lanes", "partition": "none", "order": "shuffled", "lane_rows": 3}
TRAIN: dict[str, Any] = {"batch_size": 4, "steps": 5}
SHOTS = [FieldConfig("c", shape=[3]), FieldConfig("v", "int16", shape=[5], length_mean=9, length_stdev=5)]
NAMES = [
    "npz", "npz, one a file", "npz, deflated", "npz, deflated, one a file", "npz, not small", "binary, rows",
    "tfrecord, variable", "tfrecord, gzip", "hdf5", "hdf5, chunks", "hdf5, cut", "hdf5, gzip",
]  # fmt: skip
BEHIND: list[dict[str, Any]] = [{}, {"prefetch_bytes": 1, "read_threads": 1}, {"read_threads": 3, "transfer_size": 64}]


def data_of(root: Path, each: int = 7, samples: int = 21, **dataset: Any) -> Data:
    config = config_of(root, num_files=samples // each, samples_per_file=each, **dataset)
    fmt, manifests = make(config)
    return config, fmt, manifests["train"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Data]:
    return {name: data_of(tmp_path_factory.mktemp("data"), LAYOUTS[name][0], **LAYOUTS[name][1]) for name in NAMES}


@pytest.fixture(scope="module")
def shots(tmp_path_factory: pytest.TempPathFactory) -> Data:
    """A sample a file, of many lengths."""
    return data_of(tmp_path_factory.mktemp("data"), 1, 12, format="npz", fields=SHOTS)


@pytest.mark.parametrize("name", NAMES)
def test_gives_the_batches_of_the_faithful_path(name: str, made: dict[str, Data]) -> None:
    for rank, loader in zip((0, 1, 1), BEHIND, strict=True):
        want = as_bytes(assembled(made[name], ACCESS, TRAIN, rank))
        assert as_bytes(assembled(made[name], ACCESS, TRAIN, rank, engine="decoupled", **loader)) == want


@pytest.mark.parametrize(
    "change",
    [{"order": "sequential"}, {"lane_rows": 1}, {"lane_rows": 8}, {"hold_steps": 2}, {"lane_random_steps": 3}],
    ids=["in order", "all rows", "many are too short", "held", "random begins"],
)
def test_whatever_the_pattern(change: dict[str, Any], shots: Data) -> None:
    access = {**ACCESS, **change}
    for loader in BEHIND:
        want = as_bytes(assembled(shots, access, TRAIN, 0))
        assert as_bytes(assembled(shots, access, TRAIN, 0, engine="decoupled", **loader)) == want


@pytest.mark.parametrize("name", ["npz", "npz, deflated, one a file", "hdf5"])
@pytest.mark.parametrize("first", [(0, 2), (1, 0), (2, 4)])
def test_begins_anywhere(name: str, first: tuple[int, int], made: dict[str, Data]) -> None:
    every = as_bytes(assembled(made[name], ACCESS, TRAIN, 0))
    for loader in BEHIND:
        got = as_bytes(assembled(made[name], ACCESS, TRAIN, 0, first, engine="decoupled", **loader))
        assert got == every[first[0] * 5 + first[1] :]


def planned(data: Data, **options: Any) -> LanesPlan:
    """The plan of one rank, which knows the lengths of samples."""
    config, fmt, manifest = data
    given = {"rows": 3, "batch_size": 4, "steps": 5, "seed": config.seed}
    return LanesPlan(manifest.num_samples, LanesSpec(**{**given, **options}), RowsOf(fmt, manifest.first_sample))


def engine_of(data: Data, plan: LanesPlan, **options: Any) -> tuple[DecoupledEngine, NotedMover]:
    mover, config = NotedMover(), LoaderConfig(**{"engine": "decoupled", "timeout_s": 60.0, **options})
    return DecoupledEngine(config, DecoupledSource(*data[1:], NULL), plan, mover), mover


def asked_for(plan: LanesPlan, steps: int) -> list[int]:
    """The samples that lanes ask for in so many steps."""
    asked: list[int] = []
    order = (asked.append(sample) or sample for sample in plan.samples(0))  # type: ignore[func-returns-value]
    assert plan._rows_of is not None
    list(islice(filled_lanes(order, plan.batch_size, plan.rows, plan._rows_of), steps))
    return asked


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=9),
    st.integers(1, 4),
    st.integers(1, 6),
    st.integers(0, 4),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 3),
)
def test_turns_are_the_model_whatever_the_lengths(
    lengths: list[int], lanes: int, rows: int, begin: int, each: int, window: int, ahead: int
) -> None:
    """Lanes as the faithful path fills them; each sample is read once for each time that a lane asks for it."""
    plan = LanesPlan(len(lengths), LanesSpec(rows=rows, batch_size=lanes, steps=1))
    steps = filled_lanes(plan.samples(0), lanes, rows, lengths.__getitem__, plan.patience)
    want = []
    with suppress(DataError):  # all are too short
        want = list(islice(steps, begin, begin + 8))
    reader = Lengths(lengths)
    schedule = LaneSchedule(plan, 0, begin, 8, each, reader, window, ahead)  # type: ignore[arg-type]
    got: list[Any] = []
    for number in range(-(-8 // each)):
        group = schedule(number, one_by_one)
        assert all(bool(step.lanes) == bool(want) == (step.error is None) for step in group.steps)
        got += [[(one.number, first) for one, first in step.lanes] for step in group.steps if step.lanes]
        assert all(one in reader.whole for step in group.steps for one, _ in step.lanes)
        assert not reader.given.intersection(id(one) for step in group.steps for one, _ in step.lanes)
        schedule.finish(number, group)
        assert not reader.given.intersection(map(id, schedule._current))
    assert got == want
    assert len(set(map(id, reader.whole))) == len(reader.whole)
    assert len(reader.whole) - len(reader.given) <= lanes + window * (ahead + 1)  # what lanes hold, and what comes next


class Lengths:
    """In the place of a reader: knows lengths, and reads nothing."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths
        self.whole: list[Incoming] = []  # was read
        self.given: set[int] = set()
        self._kept: list[Incoming] = []  # so that no other has the same id

    def find(self, window: SampleWindow) -> None:
        for one in window.samples:
            one.rows = self.lengths[one.number]

    def read(self, window: SampleWindow, share: Any) -> None:
        if window.whole:
            self.whole += window.samples
        window.done.set()

    def take_back(self, samples: Any) -> None:
        self._kept += samples
        assert not self.given.intersection(map(id, samples))
        self.given.update(map(id, samples))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Data:
    """A sample a file, none so small that it is read when its file is opened."""
    fields = [FieldConfig("v", shape=[700], length_mean=60, length_stdev=20)]
    return data_of(tmp_path_factory.mktemp("data"), 1, 12, format="npz", fields=fields)


def test_a_sample_is_read_once_for_each_time_that_a_lane_asks_for_it(large: Data) -> None:
    plan = planned(large, rows=20)
    engine, mover = engine_of(large, plan, read_threads=2, prefetch_bytes=1)
    items = engine.start(0, 0)
    assert numbers([next(items) for _ in range(12)]) == list(islice(plan.onward(0), 12))
    engine.close()
    inodes = [large[2].path(sample).stat().st_ino for sample in range(12)]
    assert all(len(set(extents)) == 1 for extents in mover.seen.values())  # all of a sample, in one extent
    reads = Counter({inodes.index(inode): len(extents) for inode, extents in mover.seen.items()})
    order = list(islice(plan.samples(0), reads.total()))
    assert reads == Counter(order)
    # One batch is made ahead, another one is begun, and for each thread a sample is read that comes next.
    assert len(asked_for(plan, 12)) <= len(order) <= len(asked_for(plan, 14)) + 2


def test_beginning_later_reads_no_more_than_lanes_hold_then(large: Data) -> None:
    plan = planned(large, rows=20)
    engine, mover = engine_of(large, plan, read_threads=2, prefetch_bytes=1)
    items = engine.start(3, 2)
    assert numbers([next(items)]) == list(islice(plan.onward(3, 2), 1))
    engine.close()
    asked = len(asked_for(plan, 20)) - len(asked_for(plan, 18))
    assert 4 <= sum(map(len, mover.seen.values())) <= 4 + asked + 2


def test_memory_is_used_again(large: Data) -> None:
    plan = planned(large, rows=20)
    engine, _ = engine_of(large, plan, prefetch_bytes=1)
    items = engine.start(0, 0)
    for _ in range(300):
        next(items)
    engine.close()
    assert engine.blocks.allocated <= 5  # how many of them depends on who is how fast


def test_nobody_need_collect_what_an_epoch_has_held(large: Data) -> None:
    gc.collect()
    gc.disable()
    try:
        engine, _ = engine_of(large, planned(large, rows=20))
        for epoch in range(3):
            next(engine.start(epoch, 0))
            assert sum(type(one) is BufferPool for one in gc.get_objects()) == 1
        engine.close()
        assert not any(type(one) is BufferPool for one in gc.get_objects())
    finally:
        gc.enable()


@pytest.mark.parametrize("npz", [NpzConfig(), NpzConfig(compressed=True)], ids=["stored", "deflated"])
def test_a_damaged_file_is_an_error_in_the_same_step(npz: NpzConfig, tmp_path: Path) -> None:
    fields = [FieldConfig("v", shape=[700], length_mean=60, length_stdev=20)]
    data = data_of(tmp_path, 1, 12, format="npz", fields=fields, npz=npz)
    plan = planned(data, rows=20, world_size=2)
    sample = asked_for(plan, 4)[-1]
    step = next(step for step in range(4) if sample in asked_for(plan, step + 1))
    assert step
    path = data[2].path(sample)
    content = path.read_bytes()
    # Nothing of an archive; an end that is missing; other bytes than were generated.
    for damage in (b"nothing", content[:-100], content[:3000] + bytes(1000) + content[4000:]):
        path.write_bytes(damage)
        for engine in ("dataloader", "decoupled"):
            feed = feed_of(data, {**ACCESS, "lane_rows": 20}, TRAIN, 0, engine=engine)
            batches = feed.epoch(0)
            for _ in range(step):
                next(batches)
            with pytest.raises(DataError, match=path.name):
                next(batches)
            feed.close()


def test_a_damaged_sample_costs_the_batches_that_need_it(tmp_path: Path) -> None:
    fields = [FieldConfig("v", shape=[700], length_mean=60, length_stdev=20)]
    data = data_of(tmp_path, 1, 12, format="npz", fields=fields)
    plan, path = planned(data, rows=20), data[2].path(5)
    engine = DecoupledEngine(LoaderConfig(engine="decoupled"), DecoupledSource(*data[1:], NULL), plan, Cut(path))
    items = engine.start(0, 0)
    for batch in islice(plan.onward(0), 30):
        item = next(items)
        if 5 in batch:
            assert item.batch == {}
            assert path.name in str(item.error)
        else:
            assert numbers([item]) == [batch]
    engine.close()


class Cut(NotedMover):
    """Of one file nothing can be read."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.inode = path.stat().st_ino

    def read(self, descriptors: Any, *others: Any) -> None:
        for extent, file in enumerate(descriptors.tolist()):
            if os.fstat(file).st_ino == self.inode:
                raise ExtentError(extent, 0, errno.EIO)
        super().read(descriptors, *others)


def test_samples_that_are_all_too_short_are_an_error(shots: Data) -> None:
    for engine in ("dataloader", "decoupled"):
        feed = feed_of(shots, {**ACCESS, "lane_rows": 100}, TRAIN, 0, engine=engine)
        with pytest.raises(
            DataError,
            match=r"25 consecutive samples have fewer rows than the 100 rows of a lane; lower access\.lane_rows",
        ):
            next(feed.epoch(0))
        feed.close()


def test_samples_of_one_length_are_refused(tmp_path: Path) -> None:
    data = data_of(tmp_path, format="npy", fields=[FieldConfig("a")])
    with pytest.raises(ConfigError, match="needs samples with a variable-length array"):
        feed_of(data, ACCESS, TRAIN, 0, engine="decoupled")


def test_preprocesses_each_sample_that_is_read(large: Data, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 0)
    source = DecoupledSource(*large[1:], recorder, Preprocess(ComputeConfig(preprocess_s=0.0001)))
    engine = DecoupledEngine(LoaderConfig(engine="decoupled", prefetch_bytes=1), source, planned(large, rows=20))
    items = engine.start(0, 0)
    for _ in range(6):
        next(items)
    engine.close()
    recorder.close()
    counts = read_events(tmp_path).frame["op"].value_counts()
    assert counts["preprocess"] == counts["read"] >= len(asked_for(planned(large, rows=20), 6))


def test_nothing_is_left_of_an_epoch_that_is_abandoned(large: Data) -> None:
    before = set(threading.enumerate())
    engine, mover = engine_of(large, planned(large, rows=20), read_threads=3)
    for _ in range(3):
        next(engine.start(0, 0))
    mover.gate.clear()
    timer = threading.Timer(0.05, mover.gate.set)
    timer.start()
    engine.start(1, 0)
    engine.close()
    timer.join()
    assert set(threading.enumerate()) <= before


def test_the_recipe_of_lanes_is_taken(tmp_path: Path) -> None:
    """Its shots, a tenth as long, and fewer lanes; the rest as it runs."""
    short = [f"dataset.fields.{field}.length_mean=650" for field in (2, 3)]
    options = ["recipe=frnn", "scale=tiny", "loader=decoupled", "train.batch_size=6", f"dataset.root={tmp_path}"]
    config = compose([*options, *short, "dataset.fields.2.length_stdev=200", "dataset.fields.3.length_stdev=200"],
                     cwd=tmp_path).config  # fmt: skip
    fmt, manifests = make(config)
    data, access, train = (config, fmt, manifests["train"]), vars(config.access), vars(config.train)
    want = as_bytes(assembled(data, access, train, 0))
    assert as_bytes(assembled(data, access, train, 0, **{**vars(config.loader), "timeout_s": 60.0})) == want
