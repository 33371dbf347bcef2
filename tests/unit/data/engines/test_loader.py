"""The loader: the same batches in the same order from every engine, one line for every failure, no leftovers."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from data_files import config_of, epoch_of, loader_of, make, make_raw, numbers
from torch.utils.data._utils import signal_handling
from worker_checks import none_left, worker_pids

from dlio_torch.config.schema import LoaderConfig
from dlio_torch.data.dataset.in_memory_dataset import InMemoryDataset
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.dataset.map_dataset import CatchingDataset, SampleDataset
from dlio_torch.data.engines.batch_loader import BatchLoader
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import SamplerSpec, Tail
from dlio_torch.errors import ConfigError, DataError, PreconditionError, RunFailed
from dlio_torch.formats.core.batch import Batch, samples_of
from dlio_torch.formats.core.format import Format
from dlio_torch.iotrace.recorder.spans import NULL

FORK = {"multiprocessing_context": "fork"}

# Every value of every option, and each engine with each way of reading ahead.
OPTIONS: dict[str, dict[str, Any]] = {
    "map": {},
    "map, thread": {"read_threads": 1},
    "map, threads": {"read_threads": 2, "prefetch_batches": 3},
    "map, threads one ahead": {"read_threads": 2, "prefetch_batches": 1},
    "map, worker": {"num_workers": 1, **FORK},
    "map, workers": {"num_workers": 2, "prefetch_factor": 1, **FORK},
    "map, persistent workers": {"num_workers": 2, "persistent_workers": True, "prefetch_factor": 3, **FORK},
    "map, forkserver": {"num_workers": 1, "multiprocessing_context": "forkserver", "persistent_workers": True},
    "pipe, spawn": {"style": "pipe", "num_workers": 1, "multiprocessing_context": "spawn", "persistent_workers": True},
    "pipe": {"style": "pipe"},
    "pipe, threads": {"style": "pipe", "read_threads": 2, "prefetch_batches": 3},
    "pipe, workers": {"style": "pipe", "num_workers": 2, **FORK},
    "pipe, persistent workers": {"style": "pipe", "num_workers": 2, "persistent_workers": True, **FORK},
    "stateful": {"engine": "stateful"},
    "stateful, threads": {"engine": "stateful", "read_threads": 2, "prefetch_batches": 3},
    "stateful, workers": {"engine": "stateful", "num_workers": 2, **FORK},
    "stateful, persistent workers": {"engine": "stateful", "num_workers": 2, "persistent_workers": True, **FORK},
    "stateful, pipe": {"engine": "stateful", "style": "pipe"},
    "stateful, pipe, workers": {"engine": "stateful", "style": "pipe", "num_workers": 2, **FORK},
    "nodes": {"engine": "nodes"},
    "nodes, thread": {"engine": "nodes", "read_threads": 1},
    "nodes, threads": {"engine": "nodes", "read_threads": 2, "prefetch_batches": 3},
    "nodes, worker": {"engine": "nodes", "num_workers": 1, "prefetch_factor": 1, **FORK},
    "nodes, workers": {"engine": "nodes", "num_workers": 2, "prefetch_factor": 3, **FORK},
    "nodes, forkserver": {"engine": "nodes", "num_workers": 1, "multiprocessing_context": "forkserver"},
}
DAMAGE = ["corrupt", "replaced"]
HANGS = ["map, workers", "stateful, workers", "nodes, workers", "map, thread", "nodes, threads"]
SLOW = {name for name, options in OPTIONS.items() if options.get("multiprocessing_context") in ("spawn", "forkserver")}
QUICK = [name for name in OPTIONS if name not in SLOW]
ALL = [pytest.param(name, marks=pytest.mark.ranks) if name in SLOW else name for name in OPTIONS]
AHEAD = [name for name in QUICK if name not in ("map", "pipe", "stateful", "stateful, pipe", "nodes")]
WITH_WORKERS = [name for name in QUICK if "worker" in name]
WITH_THREADS = [name for name in QUICK if "thread" in name]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Format, Manifest]:
    fmt, manifests = make(config_of(tmp_path_factory.mktemp("data")))
    return fmt, manifests["train"]


@pytest.fixture(autouse=True)
def no_leftovers() -> Iterator[None]:
    with none_left():
        yield


def shuffled(num_samples: int = 21, tail: Tail = "drop") -> BatchSampler:
    return BatchSampler(SamplerSpec(batch_size=2, order="shuffled", seed=3, tail=tail), num_samples=num_samples)


def expected(epoch: int, first: int = 0, tail: Tail = "drop") -> list[list[int]]:
    sampler = shuffled(tail=tail)
    sampler.set_epoch(epoch)
    return list(sampler)[first:]


def check(fmt: Format, batches: list[Batch]) -> None:
    for batch in batches:
        for index, sample in samples_of(batch, fmt.specs()):
            assert fmt.differences(index, sample) is None


# --- what comes, and in which order ---------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_every_engine_gives_the_same_batches_in_the_same_order(made: tuple[Format, Manifest], name: str) -> None:
    fmt, manifest = made
    loader = loader_of(fmt, manifest, shuffled(tail="keep"), **OPTIONS[name])
    assert len(loader) == 11
    for epoch in range(3 if name in QUICK else 2):
        got = epoch_of(loader, epoch, read_on=epoch != 1)
        assert numbers(got) == expected(epoch, tail="keep")
        assert len(got[-1]["index"]) == 1
        assert [sorted(batch) for batch in got] == [["data", "index", "v/rows", "v/rows:lengths"]] * 11
        check(fmt, got)
    loader.close()


@pytest.mark.parametrize("name", ["map", "map, threads", "pipe, workers", "stateful, workers", "nodes, workers"])
def test_samples_in_memory_come_in_the_same_order(made: tuple[Format, Manifest], name: str) -> None:
    fmt, manifest = made
    memory = InMemoryDataset(SampleDataset(fmt, manifest, NULL), range(21))
    loader = BatchLoader(LoaderConfig(**OPTIONS[name]), CatchingDataset(memory), shuffled())
    for epoch in range(2):
        got = epoch_of(loader, epoch)
        assert numbers(got) == expected(epoch)
        check(fmt, got)
    loader.close()


def test_orders_really_differ(made: tuple[Format, Manifest]) -> None:
    sequential = loader_of(*made)
    assert numbers(epoch_of(sequential)) == numbers(epoch_of(sequential, 1)) == [[i, i + 1] for i in range(0, 20, 2)]
    loader = loader_of(*made, shuffled())
    first, second = numbers(epoch_of(loader)), numbers(epoch_of(loader, 1))
    assert len({str(order) for order in (first, second, numbers(epoch_of(sequential)))}) == 3
    assert numbers(epoch_of(loader)) == first  # the epoch's number decides, not how often one was read


@pytest.mark.parametrize(
    "name", ["map, workers", "pipe, workers", "stateful, workers", "nodes, workers", "nodes, threads"]
)
def test_out_of_order_each_batch_still_comes_once(tmp_path: Path, name: str) -> None:
    fmt, manifest = make_raw(tmp_path)
    fmt.waits = {0: 0.3}
    loader = loader_of(fmt, manifest, in_order=False, **OPTIONS[name])
    for epoch in range(2):
        got = epoch_of(loader, epoch)
        assert sorted(numbers(got)) == [[i, i + 1] for i in range(0, 20, 2)]
        assert numbers(got)[0] != [0, 1]
        check(fmt, got)
    loader.close()


@pytest.mark.parametrize("name", AHEAD)
def test_what_is_read_ahead_is_what_the_options_say(tmp_path: Path, name: str) -> None:
    options = OPTIONS[name]
    per_worker = options.get("prefetch_factor") or 2
    ahead = options.get("num_workers", 0) * per_worker or options.get("prefetch_batches", 1)
    fmt, manifest = make_raw(tmp_path, num_files=20, samples_per_file=2)
    fmt.log = tmp_path / "reads"
    taken = 2
    loader = loader_of(fmt, manifest, **options)
    batches = loader.epoch(0)
    for _ in range(taken):
        next(batches)
        batches.read_on()
    end = time.monotonic() + 30
    while fmt.log.stat().st_size < 2 * (taken + ahead):  # a batch is two samples
        assert time.monotonic() < end
        time.sleep(0.01)
    time.sleep(0.2)  # what is not to be read ahead had its chance
    for file in range(20):
        manifest.path(file).unlink()  # missing to those who open it from now on: what was read ahead is whole
    got = 0
    with pytest.raises(DataError, match="does not exist"):  # noqa: PT012 - the number of the batch is what counts
        for _ in batches:
            got += 1
    assert got == ahead
    loader.close()


# --- resuming -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "epoch"),
    [("map", 0), ("map, threads", 0), ("map, workers", 0)]
    + [(name, 2) for name in ("map", "pipe, threads", *WITH_WORKERS)],
)
def test_resuming_goes_on_with_the_batch_that_the_trainer_has_not_taken(
    made: tuple[Format, Manifest], name: str, epoch: int
) -> None:
    loader = loader_of(*made, shuffled(), **OPTIONS[name])
    batches = loader.epoch(epoch)
    for _ in range(4):
        next(batches)
        batches.read_on()
    state = json.loads(json.dumps(loader.state_dict()))  # plain values, as a checkpoint holds them
    loader.close()
    again = loader_of(*made, shuffled(), **OPTIONS[name])
    again.load_state_dict(state)
    assert numbers(epoch_of(again, epoch)) == expected(epoch, 4)
    assert again.state_dict() == {**state, "step": 10}
    assert numbers(epoch_of(again, epoch)) == expected(epoch)  # the position is used up
    assert numbers(epoch_of(again, epoch + 1)) == expected(epoch + 1)
    again.close()


def test_a_position_of_another_epoch_is_not_used(made: tuple[Format, Manifest]) -> None:
    loader = loader_of(*made, shuffled())
    loader.load_state_dict({**loader.state_dict(), "epoch": 1, "step": 7})
    assert numbers(epoch_of(loader)) == expected(0)
    assert numbers(epoch_of(loader, 1)) == expected(1)


def test_a_position_at_the_end_leaves_nothing_of_its_epoch(made: tuple[Format, Manifest]) -> None:
    loader = loader_of(*made, shuffled())
    epoch_of(loader)
    again = loader_of(*made, shuffled(), read_threads=1)
    again.load_state_dict(loader.state_dict())
    assert epoch_of(again) == []
    again.close()


def test_a_position_of_another_order_is_refused(made: tuple[Format, Manifest]) -> None:
    state = loader_of(*made, shuffled()).state_dict()
    loader = loader_of(*made)
    with pytest.raises(ConfigError, match="saved position"):
        loader.load_state_dict(state)
    assert numbers(epoch_of(loader))[0] == [0, 1]


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "damage"),
    [(name, "missing") for name in QUICK]
    + [(name, damage) for name in ("map", "map, workers", "pipe, threads", "nodes, threads") for damage in DAMAGE],
)
def test_a_damaged_file_is_one_line_in_its_place(tmp_path: Path, name: str, damage: str) -> None:
    fmt, manifest = make_raw(tmp_path)
    path = manifest.path(1)
    if damage == "missing":
        path.unlink()
    else:
        os.truncate(path, 33 if damage == "corrupt" else 32)
    loader = loader_of(fmt, manifest, **OPTIONS[name])
    batches = loader.epoch(0)
    got = []
    with pytest.raises(DataError, match=r"train_0000001\.raw") as caught:  # noqa: PT012
        for batch in batches:
            got.append(batch["index"].tolist())
            batches.read_on()
    assert got == [[0, 1], [2, 3], [4, 5]]
    assert "\n" not in str(caught.value)
    assert "Traceback" not in str(caught.value)
    loader.close()


@pytest.mark.parametrize("name", ["map, worker", "stateful, workers", "pipe, persistent workers", "nodes, workers"])
@pytest.mark.parametrize("busy", [False, True], ids=["while waiting", "while computing"])
def test_a_worker_that_is_killed_is_named_within_seconds(tmp_path: Path, name: str, busy: bool) -> None:
    fmt, manifest = make_raw(tmp_path)
    fmt.waits = dict.fromkeys(range(6, 21), 600.0)
    loader = loader_of(fmt, manifest, **OPTIONS[name])
    batches = loader.epoch(0)
    next(batches)
    victims = worker_pids()
    began = time.monotonic()

    def kill() -> None:
        for victim in victims:
            os.kill(victim, signal.SIGKILL)

    timer = threading.Timer(0.0 if busy else 0.3, kill)
    with pytest.raises(RunFailed, match="a loader worker died") as caught:  # noqa: PT012
        timer.start()
        if busy:
            time.sleep(0.5)  # where torch's handler of the signal may raise, too
        for _ in batches:
            pass
    timer.join()
    assert time.monotonic() - began < 20
    assert any(str(victim) in str(caught.value) for victim in victims)
    assert "\n" not in str(caught.value)
    loader.close()


def test_a_worker_that_is_killed_with_a_lock_does_not_keep_the_others(tmp_path: Path) -> None:
    fmt, manifest = make_raw(tmp_path)
    loader = loader_of(fmt, manifest, **OPTIONS["pipe, persistent workers"])
    batches = loader.epoch(0)
    next(batches)
    (iterator,) = loader._engine._running  # type: ignore[attr-defined]
    iterator._workers_done_event._cond.acquire()  # as a worker may have that is killed: nobody releases it
    signal_handling._remove_worker_pids(id(iterator))  # torch does not raise here what the loader says elsewhere
    iterator._worker_pids_set = False
    for worker in iterator._workers:
        worker.kill()
        worker.join(20)
    closing = threading.Thread(target=loader.close)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()


@pytest.mark.parametrize(
    "name", ["map, workers", "stateful, workers", "nodes, workers", "map, threads", "nodes, threads"]
)
def test_a_read_that_hangs_fails_after_the_timeout(tmp_path: Path, name: str) -> None:
    fmt, manifest = make_raw(tmp_path)
    wait = 600.0 if name in WITH_WORKERS else 4.0  # a thread cannot be killed
    fmt.waits = {2: wait, 4: wait}
    loader = loader_of(fmt, manifest, **{**OPTIONS[name], "timeout_s": 0.5})
    with pytest.raises(RunFailed, match=r"no batch came from the (loader workers|reader threads) for 0\.5 s") as caught:
        epoch_of(loader)
    assert "\n" not in str(caught.value)
    began = time.monotonic()
    loader.close()
    assert time.monotonic() - began < 6  # both workers hang; torch alone would wait five seconds for each


@pytest.mark.parametrize("name", ["map, workers", "map, threads", "nodes, workers", "nodes, threads"])
def test_a_slow_trainer_is_no_hanging_read(tmp_path: Path, name: str) -> None:
    fmt, manifest = make_raw(tmp_path)
    loader = loader_of(fmt, manifest, **{**OPTIONS[name], "timeout_s": 0.4})
    batches = loader.epoch(0)
    for number, _ in enumerate(batches):
        batches.read_on()
        if number == 1:
            time.sleep(0.8)
    loader.close()


@pytest.mark.parametrize("name", ["map, threads", "map, workers", "nodes, workers", "nodes, threads"])
def test_without_a_timeout_a_slow_read_is_waited_for(tmp_path: Path, name: str) -> None:
    fmt, manifest = make_raw(tmp_path)
    fmt.waits = {2: 0.7}
    loader = loader_of(fmt, manifest, **{**OPTIONS[name], "timeout_s": 0.0})
    assert len(epoch_of(loader)) == 10
    loader.close()


def test_pinned_memory_needs_a_gpu(made: tuple[Format, Manifest], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(PreconditionError, match=r"loader\.pin_memory=true.*set loader\.pin_memory=false"):
        loader_of(*made, pin_memory=True)


# --- ending ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", QUICK)
def test_an_epoch_that_is_left_half_way_leaves_nothing_behind(made: tuple[Format, Manifest], name: str) -> None:
    loader = loader_of(*made, shuffled(), **OPTIONS[name])
    for epoch in (0, 1, 2):
        batches = loader.epoch(epoch)
        for want in expected(epoch)[:3]:
            assert next(batches)["index"].tolist() == want
            batches.read_on()
    loader.close()
    loader.close()
    assert batches is not None  # still held, as a traceback would hold it; no_leftovers looks for the rest


@pytest.mark.parametrize("name", QUICK)
def test_a_loader_that_never_ran_can_be_closed(made: tuple[Format, Manifest], name: str) -> None:
    loader_of(*made, **OPTIONS[name]).close()


@pytest.mark.parametrize("name", ["map, threads", "map, workers", "nodes, workers", "nodes, threads"])
def test_an_interrupted_trainer_can_close(tmp_path: Path, name: str) -> None:
    fmt, manifest = make_raw(tmp_path)
    fmt.waits = dict.fromkeys(range(4, 21), 0.5)
    loader = loader_of(fmt, manifest, **OPTIONS[name])
    batches = loader.epoch(0)
    next(batches)
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        timer.start()
        for _ in batches:
            batches.read_on()
    timer.join()
    loader.close()
