"""Streams by the decoupled engine: the batches of the faithful path, read in the order of files."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_files import config_of, make, numbers
from decoupled_data import FIXED, LABELLED, LISTS, VARIABLE, NotedMover, as_bytes, assembled

from dlio_torch.config.compose import compose
from dlio_torch.config.schema import Config, LoaderConfig
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.engines.decoupled.batch_groups import DecoupledSource
from dlio_torch.data.engines.decoupled.buffer_pool import BufferPool
from dlio_torch.data.engines.decoupled.engine import DecoupledEngine
from dlio_torch.data.engines.decoupled.streams import PlannedBatches
from dlio_torch.data.order.specification import StreamSpec
from dlio_torch.data.order.stream_plan import StreamPlan
from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import Batch
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.tfrecord.options import TfrecordConfig
from dlio_torch.iotrace.recorder.spans import NULL

SAMPLE = 5 * 6 * 4 + 2  # bytes

DATA: dict[str, dict[str, Any]] = {
    "npy": {"format": "npy", "fields": FIXED},
    "npz": {"format": "npz", "fields": VARIABLE},
    "hdf5": {"format": "hdf5", "fields": VARIABLE},
    "tfrecord": {"format": "tfrecord", "fields": LABELLED},
    "tfrecord, variable": {"format": "tfrecord", "fields": LISTS, "tfrecord": TfrecordConfig(float_lists=["f"])},
}
PATTERNS: dict[str, dict[str, Any]] = {
    "in order": {},
    "shuffled files": {"order": "shuffled"},
    "dealt again": {"order": "shuffled", "shard": "after_shuffle"},
    "everything": {"order": "shuffled", "partition": "none"},
    "interleaved": {"interleave": 2},
    "pool": {"shuffle_pool": 5},
    "all of it": {"order": "shuffled", "interleave": 3, "shuffle_pool": 11},
    "pool of everything": {"shuffle_pool": 1000},
    "whole files": {"unit": "file"},
    "whole files, permuted": {"unit": "file", "order": "shuffled"},
    "whole files, permuted, interleaved": {"unit": "file", "order": "shuffled", "interleave": 2},
    "padded": {"tail": "pad", "order": "shuffled", "shuffle_pool": 4},
    "kept": {"tail": "keep", "interleave": 2},
    "kept, pool": {"tail": "keep", "order": "shuffled", "shuffle_pool": 4},
    "repeated": {"repeat": True, "order": "shuffled", "interleave": 2},
    "repeated, pool": {"repeat": True, "order": "shuffled", "shuffle_pool": 30},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Config, Format, Manifest]]:
    found = {}
    for name, dataset in DATA.items():
        config = config_of(tmp_path_factory.mktemp("data"), num_files=4, samples_per_file=7, **dataset)
        fmt, manifests = make(config)
        found[name] = config, fmt, manifests["train"]
    return found


Made = dict[str, tuple[Config, Format, Manifest]]


def epochs(data: tuple[Config, Format, Manifest], access: dict[str, Any], rank: int, **loader: Any) -> list[Batch]:
    """Three epochs of a rank of two."""
    access = {"pattern": "stream", "partition": "files", **access}
    return assembled(data, access, {"batch_size": 3, "steps": 5 if access.get("repeat") else 0}, rank, **loader)


@pytest.mark.parametrize(
    ("name", "pattern"),
    [(n, p) for n, p in itertools.product(DATA, PATTERNS) if n in ("npy", "tfrecord, variable") or "p" in p[:4]],
)
def test_gives_the_batches_of_the_faithful_path(name: str, pattern: str, made: Made) -> None:
    access = PATTERNS[pattern]
    options: list[dict[str, Any]] = [{}, {"prefetch_bytes": 1, "read_threads": 3, "transfer_size": 100}]
    for rank, loader in enumerate(options):
        want = as_bytes(epochs(made[name], access, rank))
        assert as_bytes(epochs(made[name], access, rank, engine="decoupled", **loader)) == want


@pytest.mark.parametrize(
    "pattern", ["in order", "all of it", "whole files, permuted", "repeated, pool", "padded", "kept, pool"]
)
def test_resumes_where_it_was(pattern: str, made: Made) -> None:
    config, fmt, manifest = made["npy"]
    access = PATTERNS[pattern]
    plan = StreamPlan(
        manifest.counts(),
        StreamSpec(
            batch_size=3,
            steps=6 if access.get("repeat") else 0,
            seed=config.seed,
            order=access.get("order", "sequential"),
            whole=access.get("unit") == "file",
            pool=access.get("shuffle_pool", 0),
            interleave=access.get("interleave", 1),
            repeat=access.get("repeat", False),
            tail=access.get("tail", "drop"),
        ),
    )
    engine = DecoupledEngine(LoaderConfig(engine="decoupled"), DecoupledSource(fmt, manifest, NULL, verify=True), plan)
    for epoch, step in ((0, 0), (1, 0), (1, 3), (2, 5)):
        items = engine.start(epoch, step)
        got = [next(items) for _ in range(len(plan) - step)]
        assert numbers(got) == list(plan.batches(epoch, step))
    engine.close()


@pytest.mark.parametrize("pattern", [{"pool": 40}, {"whole": True, "order": "shuffled"}])
def test_files_are_read_from_start_to_end_whatever_the_shuffle(pattern: dict[str, Any], tmp_path: Path) -> None:
    fmt, manifests = make(config_of(tmp_path, num_files=2, samples_per_file=60, format="npz", fields=[FIXED[0]]))
    manifest, mover = manifests["train"], NotedMover()
    plan = StreamPlan(manifest.counts(), StreamSpec(batch_size=4, **pattern))
    config = LoaderConfig(engine="decoupled", read_threads=1, prefetch_bytes=8 * SAMPLE)
    engine = DecoupledEngine(config, DecoupledSource(fmt, manifest, NULL, verify=True), plan, mover)
    got = numbers(engine.start(0, 0))
    engine.close()
    assert got == list(plan.batches(0))
    assert got != sorted(got)
    assert len(mover.seen) == 2
    for extents in mover.seen.values():  # one after another, without a gap and each once
        assert len(extents) == 60
        assert all(at + length == following for (at, length), (following, _) in itertools.pairwise(extents))
    assert mover.reads <= 30


def test_pool_is_read_no_further_than_it_reaches(tmp_path: Path) -> None:
    fmt, manifests = make(config_of(tmp_path, num_files=1, samples_per_file=90, format="npy", fields=FIXED))
    manifest, mover = manifests["train"], NotedMover()
    plan = StreamPlan(manifest.counts(), StreamSpec(batch_size=2, pool=20))
    config = LoaderConfig(engine="decoupled", read_threads=1, prefetch_bytes=1)
    engine = DecoupledEngine(config, DecoupledSource(fmt, manifest, NULL), plan, mover)
    items = engine.start(0, 0)
    next(items)
    engine.close()
    # Two batches at most are made or under way; the pool refills behind each sample that leaves.
    assert mover.read_bytes <= (20 + 2 * 2 + 1) * SAMPLE


@pytest.mark.parametrize("pattern", ["in order", "pool", "whole files, permuted"])
def test_a_damaged_file_is_an_error_that_names_it(pattern: str, made: Made, tmp_path: Path) -> None:
    config, _, _ = made["npz"]
    fmt, manifests = make(replace(config, dataset=replace(config.dataset, root=str(tmp_path))))
    manifest = manifests["train"]
    manifest.path(0).write_bytes(b"no archive")
    with pytest.raises(DataError, match=manifest.path(0).name):
        epochs((config, fmt, manifest), PATTERNS[pattern], 0, engine="decoupled")


def test_planned_batches_are_known_again_for_a_while() -> None:
    batches = PlannedBatches(([step, step + 1] for step in itertools.count(5)), 5, 3)
    assert [batches(step).tolist() for step in (7, 5, 7, 8, 6)] == [[7, 8], [5, 6], [7, 8], [8, 9], [6, 7]]
    with pytest.raises(KeyError):
        batches(5)


def test_buffers_of_samples_are_used_again() -> None:
    buffers = BufferPool()
    sizes = np.array([40, 1000, 41, 0, 70000])
    first = buffers.take(sizes)
    assert len(set(first.tolist())) == 5
    buffers.give(first, sizes)
    again = buffers.take(sizes)
    assert set(again.tolist()) == set(first.tolist())
    more = buffers.take(np.full(3000, 1000))
    every = np.sort(np.concatenate([more, again[1:2]]))
    assert (np.diff(every) >= 1000).all()


def test_a_stream_is_taken(tmp_path: Path) -> None:
    options = ["recipe=minimal", "loader=decoupled", "access.pattern=stream", "access.partition=files"]
    assert compose(options, cwd=tmp_path).config.access.pattern == "stream"


def test_nothing_is_left_of_an_epoch(made: Made) -> None:
    before = set(threading.enumerate())
    epochs(made["npy"], PATTERNS["pool"], 0, engine="decoupled")
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("pattern", ["in order", "pool"])
def test_a_batch_serves_several_steps(pattern: str, made: Made) -> None:
    access = {**PATTERNS[pattern], "hold_steps": 2}
    assert as_bytes(epochs(made["npz"], access, 0, engine="decoupled")) == as_bytes(epochs(made["npz"], access, 0))
