"""The decoupled engine across worker processes: the same batches, in memory that all share and use again."""

from __future__ import annotations

import copy
import errno
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data_files import epoch_of, numbers
from decoupled_data import data_of, decoupled, faithful, good_and_bad
from worker_checks import none_left, worker_pids

from dlio_torch.compute.emulate import Preprocess
from dlio_torch.config.compose import compose
from dlio_torch.config.schema import ComputeConfig, LoaderConfig
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.engines.batch_loader import BatchLoader
from dlio_torch.data.engines.decoupled import worker_groups
from dlio_torch.data.engines.decoupled.batch_groups import DecoupledSource
from dlio_torch.data.engines.decoupled.pinning import Pinned
from dlio_torch.data.engines.decoupled.shared_block_pool import SharedBlocks
from dlio_torch.data.engines.decoupled.shared_memory import SharedMemory
from dlio_torch.data.engines.decoupled.warm_blocks import SharedWarmBlocks
from dlio_torch.data.engines.decoupled.worker_engine import WorkersEngine
from dlio_torch.data.engines.torch_loader.engine import DataLoaderEngine
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import SamplerSpec
from dlio_torch.errors import ConfigError, PreconditionError, RunFailed
from dlio_torch.formats.core.batch import Batch
from dlio_torch.formats.core.format import Format
from dlio_torch.iotrace.events.event_table import read_events
from dlio_torch.iotrace.recorder.spans import NULL, Recorder
from dlio_torch.native.memory import address_of

pytestmark = pytest.mark.filterwarnings(
    "ignore:This DataLoader will create"
)  # more workers than this machine has cores

FORK = {"multiprocessing_context": "fork", "read_threads": 2}
STAY = {**FORK, "persistent_workers": True}
BATCH = 2 * (5 * 6 * 4 + 2)  # bytes


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Format, Manifest]:
    return data_of(tmp_path_factory.mktemp("data"), "npy")


@pytest.fixture(autouse=True)
def no_leftovers() -> Iterator[None]:
    with none_left():
        yield


def sampler_of(batch_size: int = 2) -> BatchSampler:
    return BatchSampler(SamplerSpec(batch_size=batch_size, order="shuffled", seed=3, tail="keep"), num_samples=21)


def expected(epoch: int, first: int = 0) -> list[list[int]]:
    sampler = sampler_of()
    sampler.set_epoch(epoch)
    return list(sampler)[first:]


def engine_of(
    made: tuple[Format, Manifest], recorder: Recorder = NULL, sampler: BatchSampler | None = None, **options: Any
) -> WorkersEngine:
    config = LoaderConfig(**{"engine": "decoupled", "timeout_s": 60.0, **STAY, **options})
    return WorkersEngine(config, DecoupledSource(*made, recorder), sampler or sampler_of())


def alike(got: list[Batch], want: list[Batch]) -> bool:
    """Whether the same batches came, bit by bit."""
    assert numbers(got) == numbers(want)
    for one, other in zip(got, want, strict=True):
        assert {name: tensor.dtype for name, tensor in one.items()} == {n: t.dtype for n, t in other.items()}
        assert all(torch.equal(one[name], other[name]) for name in one)
    return True


# --- what comes -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Format, Manifest]]:
    """Data sets of fixed and variable length, of extents and of chunks."""
    return [data_of(tmp_path_factory.mktemp("data"), layout) for layout in ("npz", "hdf5, gzip", "binary, rows")]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_batches_of_the_dataloader_come_in_its_order(number: int, several: list[tuple[Format, Manifest]]) -> None:
    for fmt, manifest in several:
        loader = decoupled(fmt, manifest, sampler_of(), num_workers=number, **STAY)
        reference = faithful(fmt, manifest, sampler_of())
        for epoch in (0, 1, 4):
            assert alike(epoch_of(loader, epoch), epoch_of(reference, epoch))
        loader.close()
        loader.close()


@pytest.mark.ranks
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_that_begin_anew_receive_the_memory(method: str, made: tuple[Format, Manifest]) -> None:
    loader = decoupled(*made, sampler_of(), num_workers=1, persistent_workers=True, multiprocessing_context=method)
    for epoch in range(2):
        assert alike(epoch_of(loader, epoch), epoch_of(faithful(*made, sampler_of()), epoch))
    loader.close()


OPTIONS: dict[str, dict[str, Any]] = {
    "one thread": {"read_threads": 1},
    "one batch ahead": {"prefetch_bytes": 1},
    "workers of one epoch": {"persistent_workers": False},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_order_is_the_samplers(options: dict[str, Any], made: tuple[Format, Manifest]) -> None:
    loader = decoupled(*made, sampler_of(), num_workers=2, **{**STAY, **options})
    for epoch in (0, 1, 5):
        assert numbers(epoch_of(loader, epoch)) == expected(epoch)
    loader.close()


def test_the_trainer_waits_briefly_for_the_interpreter_lock_during_an_epoch(made: tuple[Format, Manifest]) -> None:
    before = sys.getswitchinterval()
    loader = decoupled(*made, sampler_of(), num_workers=1, **STAY)
    batches = loader.epoch(0)
    next(batches)
    assert sys.getswitchinterval() < before
    assert list(batches)
    assert sys.getswitchinterval() == pytest.approx(before)
    next(loader.epoch(1))
    loader.close()
    assert sys.getswitchinterval() == pytest.approx(before)


def test_the_interval_is_short_while_workers_are_asked_for_an_epoch(
    made: tuple[Format, Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []

    def start(self: DataLoaderEngine, epoch: int, step: int) -> Any:
        seen.append(sys.getswitchinterval())
        return usual(self, epoch, step)

    usual, before = DataLoaderEngine.start, sys.getswitchinterval()
    monkeypatch.setattr(DataLoaderEngine, "start", start)
    loader = decoupled(*made, sampler_of(), num_workers=1, **STAY)
    for epoch in range(2):
        assert list(loader.epoch(epoch))
    loader.close()
    assert len(seen) == 2
    assert max(seen) < before


def test_the_interval_is_restored_where_workers_cannot_be_started(
    made: tuple[Format, Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(self: DataLoaderEngine, epoch: int, step: int) -> Any:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    before = sys.getswitchinterval()
    monkeypatch.setattr(DataLoaderEngine, "start", start)
    loader = decoupled(*made, sampler_of(), num_workers=1, **STAY)
    with pytest.raises(PreconditionError):
        next(loader.epoch(0))
    assert sys.getswitchinterval() == pytest.approx(before)
    loader.close()


def test_any_order_brings_every_batch_once(made: tuple[Format, Manifest]) -> None:
    loader = decoupled(*made, sampler_of(), num_workers=2, in_order=False, **STAY)
    for epoch in range(3):
        assert sorted(numbers(epoch_of(loader, epoch))) == sorted(expected(epoch))
    loader.close()


@pytest.mark.parametrize("persistent", [False, True])
def test_an_abandoned_epoch_leaves_nothing_to_the_next(persistent: bool, made: tuple[Format, Manifest]) -> None:
    options = {**STAY, "persistent_workers": persistent, "prefetch_bytes": 1}
    loader = decoupled(*made, sampler_of(), num_workers=2, **options)
    for epoch in range(4):
        batches = loader.epoch(epoch)
        assert [next(batches)["index"].tolist() for _ in range(epoch)] == expected(epoch)[:epoch]
    assert numbers(epoch_of(loader, 9)) == expected(9)
    loader.close()


def test_resumes_where_it_was_saved(made: tuple[Format, Manifest]) -> None:
    loader = decoupled(*made, sampler_of(), num_workers=2, **FORK)
    batches = loader.epoch(2)
    for _ in range(4):
        next(batches)
    state = copy.deepcopy(loader.state_dict())
    loader.close()
    other = decoupled(*made, sampler_of(), num_workers=2, **STAY)
    other.load_state_dict(state)
    assert numbers(epoch_of(other, 2)) == expected(2, 4)
    assert numbers(epoch_of(other, 3)) == expected(3)
    other.close()


def test_workers_without_batches_end(made: tuple[Format, Manifest]) -> None:
    loader = decoupled(*made, sampler_of(batch_size=8), num_workers=4, **FORK)
    assert numbers(epoch_of(loader, 0)) == numbers(epoch_of(decoupled(*made, sampler_of(batch_size=8)), 0))
    loader.close()


def test_a_worker_that_cannot_begin_ends_the_run(
    made: tuple[Format, Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise RunFailed("no memory for a worker")

    monkeypatch.setattr(worker_groups, "_WorkerReaders", refuse)
    loader = decoupled(*made, sampler_of(), num_workers=2, timeout_s=0, **FORK)
    with pytest.raises(RunFailed, match="no memory for a worker"):
        next(loader.epoch(0))
    loader.close()


# --- memory ---------------------------------------------------------------------------------------


def shared_mappings() -> list[tuple[int, int]]:
    """Addresses of this process that are the shared file's."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    ranges = [line.split()[0].split("-") for line in lines if "memfd:dlio_torch" in line]
    return [(int(low, 16), int(high, 16)) for low, high in ranges]


def test_tensors_are_views_of_shared_memory(made: tuple[Format, Manifest]) -> None:
    engine = engine_of(made, num_workers=2)
    for item in engine.start(0, 0):
        batch = item.opened()
        for name in ("a", "b"):
            address = batch[name].data_ptr()
            assert any(low <= address < high for low, high in shared_mappings())
    engine.close()


@pytest.mark.parametrize("persistent", [False, True])
def test_blocks_are_used_again(persistent: bool, made: tuple[Format, Manifest]) -> None:
    engine = engine_of(made, num_workers=2, prefetch_bytes=4 * BATCH, persistent_workers=persistent)
    for epoch in range(20 if persistent else 4):
        for batch in engine.start(epoch, 0):
            del batch
    # Each worker: two batches ahead, one with the trainer, and one that is just being dropped.
    assert engine.blocks_made <= 2 * 4
    engine.close()


def test_batches_that_are_kept_stay_as_they_are(made: tuple[Format, Manifest]) -> None:
    engine = engine_of(made, num_workers=2, prefetch_bytes=1)
    kept = [item.opened() for item in engine.start(0, 0)]
    copies = [{name: tensor.clone() for name, tensor in batch.items()} for batch in kept]
    for epoch in range(3):
        list(engine.start(epoch, 0))
    assert engine.blocks_made >= len(kept)
    engine.close()
    assert alike(kept, copies)


def batches_made(folder: Path) -> int:
    """Batches that workers have finished, when no more come for a while."""
    seen, still = -1, 0
    while still < 10:
        found = int((read_events(folder).frame["op"] == "batch").sum()) if list(folder.glob("*.spans")) else 0
        still = still + 1 if found == seen and found else 0
        seen = found
        time.sleep(0.01)
    return seen


@pytest.mark.parametrize("ahead", [1, 2])
def test_reads_no_further_ahead_than_allowed(ahead: int, made: tuple[Format, Manifest], tmp_path: Path) -> None:
    engine = engine_of(made, Recorder(tmp_path, 0), num_workers=2, prefetch_bytes=ahead * 2 * BATCH)
    items = engine.start(0, 0)
    for taken in range(3):
        while batches_made(tmp_path) < taken + 2 * ahead:  # the other worker has not begun yet
            pass
        assert batches_made(tmp_path) == taken + 2 * ahead
        next(items)
    engine.close()


@pytest.fixture
def blocks() -> Iterator[SharedBlocks]:
    shared = SharedMemory(1)
    yield SharedBlocks(shared.region(0), 1, 8192)
    shared.close()


def test_a_block_comes_back_when_no_view_of_it_is_left(blocks: SharedBlocks) -> None:
    memory = blocks.take(100)
    tensor = torch.from_numpy(memory)[3:5]
    assert blocks.position_of(tensor) == (0, 3)
    assert blocks.position_of(torch.zeros(1)) is None
    del memory
    other = blocks.take(100)
    assert blocks.allocated == 2
    del tensor, other
    gc.collect()
    again = [blocks.take(100), blocks.take(50)]
    assert [len(memory) for memory in again] == [100, 50]
    assert blocks.allocated == 2


def test_a_block_that_was_sent_is_not_given_again(blocks: SharedBlocks) -> None:
    memory = blocks.take(100)
    blocks.send(0)
    del memory
    blocks.take(100)
    assert blocks.allocated == 2
    blocks.forget_sent()  # by a run that was ended
    held = [blocks.take(100), blocks.take(100)]
    assert blocks.allocated == len(held)


def test_a_pool_keeps_no_more_than_it_may(blocks: SharedBlocks) -> None:
    held = [blocks.take(4096) for _ in range(6)]
    held.clear()
    gc.collect()
    held += [blocks.take(4096) for _ in range(4)]
    assert blocks.allocated == 7  # of the six that came back, one is given again at once and two stayed


def test_larger_batches_take_the_place_of_smaller_ones(blocks: SharedBlocks) -> None:
    for size in (100, 5000, 3 << 20, 300 << 20, 100):
        memory = blocks.take(size)
        memory[0] = memory[-1] = 1
        assert len(memory) == size
        del memory
    assert blocks.allocated == 4


class Core:
    """Notes the blocks that it is given; groups take the last one."""

    def __init__(self) -> None:
        self.given: list[int] = []
        self.wanted = 0  # groups that have not begun
        self.give = self.given.append
        self.forget_blocks = self.given.clear

    def spare(self) -> int:
        return len(self.given) - self.wanted


def test_the_next_group_gets_the_block_that_the_trainer_returned_last(blocks: SharedBlocks) -> None:
    core = Core()
    warm = SharedWarmBlocks(core, blocks, 100)  # type: ignore[arg-type]
    for core.wanted in (0, 1, 2):
        warm.reserve()
    assert blocks.allocated == len(core.given) == 3  # the one of no group is not needed before a fourth
    first = core.given.pop()
    memory = warm.lend(first, 60)
    assert len(memory) == 60
    assert address_of(memory) == first
    core.wanted = 3
    del memory
    gc.collect()
    warm.reserve()
    assert core.given[-1] == first
    assert blocks.allocated == 3
    warm.take_back(core.given.pop())  # of a group that was given up
    core.wanted = 3
    warm.reserve()
    assert core.given[-1] == first
    warm.retire()
    held = [blocks.take(100) for _ in range(3)]
    assert blocks.allocated == len(held)


def test_too_many_blocks_in_use_are_one_line(blocks: SharedBlocks) -> None:
    held = [blocks.take(1) for _ in range(4096)]
    with pytest.raises(RunFailed, match="shared memory blocks at once"):
        blocks.take(1)
    held.clear()


def test_no_memory_to_share_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "memfd_create", lambda *_: os.open("/nonexistent", 0))
    with pytest.raises(RunFailed, match=r"set loader\.num_workers=0"):
        SharedMemory(1)


class Driver:
    """What is locked, as a driver of CUDA would."""

    def __init__(self) -> None:
        self.locked: dict[int, int] = {}
        self.calls = 0

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:
        self.calls += 1
        self.locked[address] = size
        return flags if size < 100 else 2

    def cudaHostUnregister(self, address: int) -> int:
        del self.locked[address]
        return 0


def test_a_block_is_pinned_once() -> None:
    driver, first, second = Driver(), np.zeros(8, np.uint8), np.zeros(16, np.uint8)
    pinned = Pinned(driver)
    for memory in (first, first, second, second):
        pinned.pin(0, memory)
    assert driver.calls == 2
    assert list(driver.locked.values()) == [16]
    with pytest.raises(RunFailed, match=r"loader\.pin_memory=false"):
        pinned.pin(1, np.zeros(200, np.uint8))
    pinned.close()


# --- failures -------------------------------------------------------------------------------------


def test_a_damaged_file_costs_its_batches_alone(tmp_path: Path) -> None:
    fmt, manifest = data_of(tmp_path, "npy")
    manifest.path(1).write_bytes(b"no array")
    loader = decoupled(fmt, manifest, BatchSampler(SamplerSpec(batch_size=1), num_samples=21), num_workers=2, **FORK)
    good, bad = good_and_bad(loader)
    assert (good, len(bad)) == (14, 7)
    assert all(manifest.path(1).name in line for line in bad)
    loader.close()


def busy(made: tuple[Format, Manifest], **options: Any) -> BatchLoader:
    """A loader whose workers take very long for every batch."""
    source = DecoupledSource(*made, NULL, Preprocess(ComputeConfig(preprocess_s=600.0)))
    config = LoaderConfig(**{"engine": "decoupled", "num_workers": 2, **FORK, **options})
    return BatchLoader(config, source, sampler_of())


def test_a_worker_that_is_killed_is_named(made: tuple[Format, Manifest]) -> None:
    loader = busy(made, timeout_s=60.0)
    batches = loader.epoch(0)
    victims = worker_pids()
    timer = threading.Timer(0.2, lambda: [os.kill(victim, signal.SIGKILL) for victim in victims])
    timer.start()
    with pytest.raises(RunFailed, match="a loader worker died") as caught:
        next(batches)
    timer.join()
    assert any(str(victim) in str(caught.value) for victim in victims)
    assert "\n" not in str(caught.value)
    loader.close()


def test_a_worker_that_hangs_fails_after_the_timeout(made: tuple[Format, Manifest]) -> None:
    loader = busy(made, timeout_s=0.3)
    with pytest.raises(RunFailed, match=r"no batch came from the loader workers for 0\.3 s"):
        next(loader.epoch(0))
    loader.close()


def test_an_interrupted_trainer_can_close(made: tuple[Format, Manifest]) -> None:
    loader = busy(made, timeout_s=60.0)
    batches = loader.epoch(0)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    timer.join()
    loader.close()


def test_workers_record_what_they_do(made: tuple[Format, Manifest], tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 0)
    source = DecoupledSource(*made, recorder, Preprocess(ComputeConfig(preprocess_s=0.0001)))
    loader = BatchLoader(LoaderConfig(engine="decoupled", num_workers=2, **FORK), source, sampler_of())
    seen = set()
    for _ in loader.epoch(0):
        seen.add(loader.number)
    loader.close()
    recorder.close()
    events = read_events(tmp_path)
    counts = events.frame["op"].value_counts()
    assert len(seen) == counts["batch"] == counts["preprocess"] == counts["collate"] == 11
    assert seen == set(events.frame.loc[events.frame["op"] == "batch", "offset"])
    assert events.frame.loc[events.frame["op"] == "read", "bytes"].sum() == 21 * BATCH // 2
    assert events.frame["pid"].nunique() == 2


def test_threads_and_workers_go_together(tmp_path: Path) -> None:
    config = compose(["recipe=minimal", "loader=decoupled", "loader.num_workers=2"], cwd=tmp_path).config
    assert (config.loader.num_workers, config.loader.read_threads) == (2, 2)
    with pytest.raises(ConfigError, match="limits its read-ahead by bytes"):
        compose(
            ["recipe=minimal", "loader=workers", "loader.engine=decoupled", "loader.prefetch_factor=3"], cwd=tmp_path
        )
