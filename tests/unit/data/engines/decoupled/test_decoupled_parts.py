"""Plans in parts by the decoupled engine: each worker process makes its part, and batches come as from torch's."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from data_files import config_of, make
from decoupled_data import VARIABLE, as_bytes, assembled, feed_of
from hypothesis import given, settings
from hypothesis import strategies as st
from worker_checks import none_left

from dlio_torch.config.compose import compose
from dlio_torch.config.schema import Config, LoaderConfig
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.engines.decoupled.batch_groups import DecoupledSource
from dlio_torch.data.engines.decoupled.engine import DecoupledEngine
from dlio_torch.data.order.pipe_plan import round_robin
from dlio_torch.data.order.specification import StreamSpec, Tail
from dlio_torch.data.order.stream_plan import StreamPlan
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core.format import Format
from dlio_torch.iotrace.recorder.spans import NULL

pytestmark = pytest.mark.filterwarnings(
    "ignore:This DataLoader will create"
)  # more workers than this machine has cores

Data = tuple[Config, Format, Manifest]

FORK: dict[str, Any] = {"multiprocessing_context": "fork", "read_threads": 2, "engine": "decoupled"}
STAY = {**FORK, "persistent_workers": True}
STREAM: dict[str, Any] = {"pattern": "stream", "partition": "files"}
PATTERNS: dict[str, dict[str, Any]] = {
    "stream": STREAM,
    "pool": {**STREAM, "order": "shuffled", "interleave": 2, "shuffle_pool": 5},
    "whole files": {**STREAM, "order": "shuffled", "unit": "file"},
    "padded": {**STREAM, "tail": "pad", "shuffle_pool": 3},
    "kept": {**STREAM, "tail": "keep", "shuffle_pool": 3},
    "repeated": {**STREAM, "repeat": True, "order": "shuffled", "shuffle_pool": 6},
    "lanes": {"pattern": "lanes", "partition": "none", "order": "shuffled", "lane_rows": 2},
}


@pytest.fixture(autouse=True)
def no_leftovers() -> Iterator[None]:
    with none_left():
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Data:
    config = config_of(tmp_path_factory.mktemp("data"), 7, 7, format="npz", fields=VARIABLE)
    fmt, manifests = make(config)
    return config, fmt, manifests["train"]


def train_of(pattern: str) -> dict[str, Any]:
    return {"batch_size": 2, "steps": 7 if pattern in ("repeated", "lanes") else 0}


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_gives_the_batches_of_torchs_workers(pattern: str, workers: int, made: Data) -> None:
    access, train = PATTERNS[pattern], train_of(pattern)
    faithful = {"num_workers": workers, "multiprocessing_context": "fork"}
    want = as_bytes(assembled(made, access, train, 1, **faithful))
    assert as_bytes(assembled(made, access, train, 1, **{**STAY, "num_workers": workers})) == want


@pytest.mark.parametrize("pattern", ["pool", "lanes"])
@pytest.mark.parametrize("options", [FORK, {**STAY, "prefetch_bytes": 1}], ids=["of one epoch", "one batch ahead"])
def test_begins_anywhere(pattern: str, options: dict[str, Any], made: Data) -> None:
    access, train = PATTERNS[pattern], train_of(pattern)
    every = as_bytes(assembled(made, access, train, 0, num_workers=2, multiprocessing_context="fork"))
    got = as_bytes(assembled(made, access, train, 0, (1, 3), num_workers=2, **options))
    assert got == every[len(every) // 3 + 3 :]


def test_any_order_brings_every_batch_once(made: Data) -> None:
    access, train = PATTERNS["pool"], train_of("pool")
    want = as_bytes(assembled(made, access, train, 0, num_workers=2, multiprocessing_context="fork"))
    got = as_bytes(assembled(made, access, train, 0, num_workers=2, in_order=False, **STAY))
    assert sorted(map(str, got)) == sorted(map(str, want))


@pytest.mark.ranks
def test_workers_that_begin_anew_receive_the_plan(made: Data) -> None:
    access, train = PATTERNS["lanes"], train_of("lanes")
    options = {**STAY, "multiprocessing_context": "spawn"}
    want = as_bytes(assembled(made, access, train, 0, num_workers=1, multiprocessing_context="fork"))
    assert as_bytes(assembled(made, access, train, 0, num_workers=1, **options)) == want


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=7),
    st.integers(1, 3),
    st.integers(1, 2),
    st.sampled_from(["drop", "pad", "keep"]),
    st.booleans(),
    st.integers(0, 2),
    st.integers(0, 5),
)
def test_what_workers_have_left_is_all_there_is(
    counts: list[int], parts: int, batch_size: int, tail: Tail, repeat: bool, epoch: int, step: int
) -> None:
    """Batches of each worker's part, taken in turn, are those of the plan."""
    try:
        spec = StreamSpec(
            batch_size=batch_size, order="shuffled", parts=parts, tail=tail, repeat=repeat,
            steps=9 if repeat else 0,
        )  # fmt: skip
        plan = StreamPlan(counts, spec)
    except ConfigError:  # a part without a batch
        return
    step = min(step, len(plan))
    left, positions = plan.left(epoch, step), plan.positions(epoch, step)
    own = [plan.part_batches(epoch, part) for part, _ in positions]
    for batches, (_, done) in zip(own, positions, strict=True):
        for _ in range(done):
            next(batches)
    assert [next(own[worker]) for worker in islice(round_robin(left), 99)] == list(islice(plan.onward(epoch, step), 99))


@pytest.mark.parametrize("pattern", ["stream", "lanes"])
def test_a_damaged_file_is_an_error_that_names_it(pattern: str, tmp_path: Path) -> None:
    config = config_of(tmp_path, 4, 7, format="npz", fields=VARIABLE)
    fmt, manifests = make(config)
    manifest = manifests["train"]
    for file in range(4):
        manifest.path(file).write_bytes(b"no archive")
    feed = feed_of((config, fmt, manifest), PATTERNS[pattern], train_of(pattern), 0, num_workers=2, **FORK)
    with pytest.raises(DataError, match=r"train_\d+\.npz"):
        next(feed.epoch(0))
    feed.close()


def test_an_engine_makes_one_part(made: Data) -> None:
    plan = StreamPlan(made[2].counts(), StreamSpec(batch_size=2, parts=2))
    source = DecoupledSource(*made[1:], NULL)
    with pytest.raises(ValueError, match="the plan has 2 parts, but 1 workers share the batches"):
        DecoupledEngine(LoaderConfig(engine="decoupled"), source, plan)


def test_recipes_with_workers_are_taken(tmp_path: Path) -> None:
    for recipe, pattern in (("mlperf_cosmoflow", "stream"), ("frnn", "lanes")):
        for style in ("map", "pipe"):  # which is the affair of batches of sample numbers
            options = ["loader=decoupled", "loader.num_workers=2", f"loader.style={style}"]
            config = compose([f"recipe={recipe}", *options], cwd=tmp_path).config
            assert (config.access.pattern, config.loader.num_workers) == (pattern, 2)
