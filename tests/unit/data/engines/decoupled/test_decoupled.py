"""The decoupled engine: what comes in which order, how far it reads ahead, whose memory it uses, how it ends."""

from __future__ import annotations

import copy
import gc
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data_files import epoch_of, numbers
from decoupled_data import data_of, decoupled, good_and_bad, watched

import dlio_torch.data.engines.decoupled.datapipe  # noqa: F401 (registers read_extents)
from dlio_torch.compute.emulate import Preprocess
from dlio_torch.config.compose import compose
from dlio_torch.config.schema import ComputeConfig, LoaderConfig
from dlio_torch.data.dataset.fetched import Fetched
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.engines.batch_loader import BatchLoader
from dlio_torch.data.engines.decoupled.batch_groups import DecoupledSource
from dlio_torch.data.engines.decoupled.block_pool import Blocks
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import SamplerSpec
from dlio_torch.data.pipeline.sample_pipes import BatchIndices, EpochBatches
from dlio_torch.errors import ConfigError, DataError, RunFailed
from dlio_torch.formats.core.format import Format
from dlio_torch.iotrace.events.event_table import read_events
from dlio_torch.iotrace.recorder.spans import NULL, Recorder
from dlio_torch.native.memory import address_of

SAMPLE = 5 * 6 * 4 + 2  # bytes


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Format, Manifest]:
    return data_of(tmp_path_factory.mktemp("data"), "npy")


@pytest.fixture(autouse=True)
def no_leftovers() -> Iterator[None]:
    """After each test no thread that was not there before."""
    threads = set(threading.enumerate())
    yield
    end = time.monotonic() + 10
    while left := [thread.name for thread in threading.enumerate() if thread not in threads]:
        assert time.monotonic() < end, left
        time.sleep(0.01)


def sampler_of(batch_size: int = 2) -> BatchSampler:
    return BatchSampler(SamplerSpec(batch_size=batch_size, order="shuffled", seed=3, tail="keep"), num_samples=21)


def expected(epoch: int, first: int = 0) -> list[list[int]]:
    sampler = sampler_of()
    sampler.set_epoch(epoch)
    return list(sampler)[first:]


OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "one thread": {"read_threads": 1},
    "many threads": {"read_threads": 5},
    "one batch ahead": {"prefetch_bytes": 1},
    "tiny requests": {"transfer_size": 7},
    "one file open": {"max_open_files": 1},
    "a DataPipe": {"style": "pipe"},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_order_is_the_samplers(options: dict[str, Any], made: tuple[Format, Manifest]) -> None:
    loader = decoupled(*made, sampler_of(), **options)
    for epoch in (0, 1, 5):
        assert numbers(epoch_of(loader, epoch)) == expected(epoch)
    loader.close()
    loader.close()


def test_any_order_brings_every_batch_once(made: tuple[Format, Manifest]) -> None:
    loader = decoupled(*made, sampler_of(), in_order=False, prefetch_bytes=8 * SAMPLE, read_threads=3)
    for epoch in range(3):
        assert sorted(numbers(epoch_of(loader, epoch))) == sorted(expected(epoch))
    loader.close()


@pytest.mark.parametrize("style", ["map", "pipe"])
def test_an_abandoned_epoch_leaves_nothing_to_the_next(style: str, made: tuple[Format, Manifest]) -> None:
    loader = decoupled(*made, sampler_of(), prefetch_bytes=1, style=style)
    for epoch in range(4):
        batches = loader.epoch(epoch)
        assert [next(batches)["index"].tolist() for _ in range(3)] == expected(epoch)[:3]
    assert numbers(epoch_of(loader, 9)) == expected(9)
    loader.close()


@pytest.mark.parametrize("style", ["map", "pipe"])
def test_resumes_where_it_was_saved(style: str, made: tuple[Format, Manifest]) -> None:
    loader = decoupled(*made, sampler_of(), style=style)
    batches = loader.epoch(2)
    for _ in range(4):
        next(batches)
    state = copy.deepcopy(loader.state_dict())
    loader.close()
    other = decoupled(*made, sampler_of(), style=style)
    other.load_state_dict(state)
    assert numbers(epoch_of(other, 2)) == expected(2, 4)
    assert numbers(epoch_of(other, 3)) == expected(3)
    other.close()


def _indices(item: Fetched) -> list[int]:
    found: list[int] = item.batch["index"].tolist()
    return found


def _without_3(indices: list[int]) -> bool:
    return 3 not in indices


def test_it_is_a_datapipe_among_others(made: tuple[Format, Manifest]) -> None:
    fmt, manifest = made
    reader = BatchIndices(EpochBatches(sampler_of())).read_extents(DecoupledSource(fmt, manifest, NULL), LoaderConfig())
    pipe = reader.map(_indices).filter(_without_3)
    for _ in range(2):
        assert list(pipe) == [indices for indices in expected(0) if 3 not in indices]
    reader.close()
    reader.close()


def settled(mover: Any) -> int:
    """Bytes read when nothing more is read for a while."""
    seen, still = -1, 0
    while still < 20:
        still = still + 1 if mover.read_bytes == seen else 0
        seen = mover.read_bytes
        time.sleep(0.005)
    return seen


@pytest.mark.parametrize("batches", [1, 2, 5])
def test_reads_no_further_ahead_than_allowed(batches: int, made: tuple[Format, Manifest]) -> None:
    engine, mover = watched(*made, sampler_of(), prefetch_bytes=batches * 2 * SAMPLE, read_threads=3)
    items = engine.start(0, 0)
    for taken in range(3):
        assert settled(mover) == (taken + batches) * 2 * SAMPLE
        next(items)
    engine.close()


def test_blocks_are_used_again(made: tuple[Format, Manifest]) -> None:
    engine, _ = watched(*made, sampler_of(), prefetch_bytes=4 * SAMPLE)
    for epoch in range(20):
        for batch in engine.start(epoch, 0):
            del batch
    # Two batches ahead, one with the trainer, and at the border of two epochs one that is just being dropped.
    assert engine.blocks.allocated <= 4
    engine.close()


def test_batches_that_are_kept_stay_as_they_are(made: tuple[Format, Manifest]) -> None:
    engine, _ = watched(*made, sampler_of(), prefetch_bytes=1)
    kept = [item.opened() for item in engine.start(0, 0)]
    copies = [{name: tensor.clone() for name, tensor in batch.items()} for batch in kept]
    for epoch in range(3):
        list(engine.start(epoch, 0))
    assert engine.blocks.allocated >= len(kept)
    for batch, other in zip(kept, copies, strict=True):
        assert all(torch.equal(batch[name], other[name]) for name in batch)
    engine.close()


def test_a_view_of_a_tensor_keeps_its_block() -> None:
    blocks = Blocks(2)
    memory = blocks.take(100)
    tensor = torch.from_numpy(memory).view(10, 10)[3:5, 1]
    del memory
    gc.collect()
    other = blocks.take(100)
    assert blocks.allocated == 2
    del tensor, other
    gc.collect()
    again = [blocks.take(100), blocks.take(50)]
    assert blocks.allocated == 2
    assert [len(memory) for memory in again] == [100, 50]


def test_a_pool_keeps_no_more_than_it_may() -> None:
    blocks = Blocks(1, 8192)
    held = [blocks.take(4096) for _ in range(5)]
    held.clear()
    gc.collect()
    held += [blocks.take(4096) for _ in range(3)]
    assert blocks.allocated == 6  # of the five that came back, two stayed


def test_more_memory_than_there_is_is_one_line() -> None:
    with pytest.raises(RunFailed, match=r"train\.batch_size"):
        Blocks(1).take(1 << 60)


def test_a_fork_that_drops_blocks_keeps_its_own_memory() -> None:
    # The addresses of what a fork does not inherit go to its own memory, which the end of the object would unmap.
    blocks = Blocks(1, direct=True)
    held = [blocks.take(4 << 20) for _ in range(4)]
    held[0][:] = 7
    child = os.fork()
    if child == 0:
        own = [np.ones(4 << 20, np.uint8) for _ in range(8)]
        wiped = not held[0].any()
        held.clear()
        del blocks
        gc.collect()
        os._exit(0 if wiped and all(array.all() for array in own) else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert held[0].all()


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="this system has none")
def test_large_blocks_may_be_of_huge_pages() -> None:
    block = Blocks(1).take(8 << 20)
    address, mapping = address_of(block), ""
    for line in Path("/proc/self/smaps").read_text(encoding="ascii").splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            low, high = (int(number, 16) for number in line.split()[0].split("-"))
            mapping = line if low <= address < high else ""
        elif mapping and line.startswith("VmFlags:"):
            assert mapping.split()[1] == "rw-p"  # most systems give shared memory none, whatever is asked for
            assert "hg" in line.split()
            return
    pytest.fail("the block lies in no mapping")


def test_a_damaged_file_costs_its_batches_alone(tmp_path: Path) -> None:
    fmt, manifest = data_of(tmp_path, "npy")
    manifest.path(1).write_bytes(b"no array")
    loader = decoupled(fmt, manifest, BatchSampler(SamplerSpec(batch_size=1), num_samples=21))
    good, bad = good_and_bad(loader)
    assert (good, len(bad)) == (14, 7)
    assert all(manifest.path(1).name in line for line in bad)
    loader.close()


def test_other_content_is_found(tmp_path: Path) -> None:
    fmt, manifest = data_of(tmp_path, "npy")
    path = manifest.path(2)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    loader = decoupled(fmt, manifest, BatchSampler(SamplerSpec(batch_size=3), num_samples=21))
    with pytest.raises(DataError, match="differs from the generated content"):
        epoch_of(loader)
    loader.close()


def test_a_read_that_hangs_ends_the_run_in_time(made: tuple[Format, Manifest]) -> None:
    engine, mover = watched(*made, sampler_of(), timeout_s=0.1)
    mover.gate.clear()
    items = engine.start(0, 0)
    with pytest.raises(RunFailed, match="no batch came from the reader threads"):
        next(items)
    mover.gate.set()
    engine.close()


def test_an_error_of_ours_reaches_the_trainer(made: tuple[Format, Manifest]) -> None:
    engine, mover = watched(*made, sampler_of())
    mover.read = None  # type: ignore[method-assign, assignment]
    with pytest.raises(TypeError):
        next(engine.start(0, 0))
    engine.close()


def test_large_batches_are_read_by_all_threads(tmp_path: Path) -> None:
    fmt, manifest = data_of(tmp_path, "large", samples=6)
    engine, mover = watched(fmt, manifest, BatchSampler(SamplerSpec(batch_size=6), num_samples=6), read_threads=3)
    (item,) = engine.start(0, 0)
    assert item.batch["a"].shape == (6, 1 << 18)
    assert mover.reads == 3
    engine.close()


@pytest.mark.parametrize("order", ["sequential", "shuffled"])
@pytest.mark.parametrize("cold", [False, True])
def test_storage_is_told_of_what_comes_where_the_cache_is_cold(
    cold: bool, order: Any, made: tuple[Format, Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda descriptor, begin, size, advice: told.append(size))
    sampler = BatchSampler(SamplerSpec(batch_size=2, order=order, seed=3), num_samples=21)
    engine, mover = watched(*made, sampler, prefetch_bytes=4 * SAMPLE, read_threads=1)
    mover.cold = cold
    assert len(list(engine.start(0, 0))) == 10
    assert mover.read_bytes == 20 * SAMPLE
    if not cold:
        assert told == []
    elif order == "shuffled":
        assert 9 * SAMPLE < sum(told) <= 18 * SAMPLE  # of the other batches what goes on nowhere, once
    else:  # where files begin; the kernel goes on from there
        assert len(told) == 2 * 2
    engine.close()


@pytest.mark.parametrize("layout", ["hdf5, gzip", "csv", "tfrecord"])
def test_storage_gets_hints_of_bytes_that_are_not_read_to_their_address(layout: str, tmp_path: Path) -> None:
    """Chunks, samples in memory and records: there may be no extent in a group."""
    engine, mover = watched(*data_of(tmp_path, layout), BatchSampler(SamplerSpec(batch_size=2), num_samples=21))
    mover.cold = True
    assert len(list(engine.start(0, 0))) == 10
    engine.close()


def test_records_what_it_does(made: tuple[Format, Manifest], tmp_path: Path) -> None:
    fmt, manifest = made
    recorder = Recorder(tmp_path, 0)
    preprocess = Preprocess(ComputeConfig(preprocess_s=0.0001))
    source = DecoupledSource(fmt, manifest, recorder, preprocess)
    loader = BatchLoader(LoaderConfig(engine="decoupled"), source, sampler_of())
    seen = set()
    for _ in loader.epoch(0):
        seen.add(loader.number)
    loader.close()
    recorder.close()
    events = read_events(tmp_path).frame
    counts = events["op"].value_counts()
    assert len(seen) == counts["batch"] == counts["preprocess"] == counts["collate"] == 11
    assert counts["open"] >= 3
    assert events.loc[events["op"] == "read", "bytes"].sum() == 21 * SAMPLE


REFUSED = {
    "loader.prefetch_batches=3": "prefetch_bytes",
    "loader.in_memory=true": "in_memory=false",
    "loader.replay=samples": "replay",
    "dataset.hdf5.driver=core": "HDF5 library",
}


@pytest.mark.parametrize("option", REFUSED)
def test_what_it_cannot_do_is_refused(option: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=REFUSED[option]) as caught:
        compose(["recipe=minimal", "loader=decoupled", "dataset.format=hdf5", option], cwd=tmp_path)
    assert option.partition("=")[0] in str(caught.value)


def test_workers_take_no_datapipe(tmp_path: Path) -> None:
    options = ["recipe=minimal", "dataset=npy", "loader=decoupled", "loader.style=pipe", "loader.num_workers=2"]
    with pytest.raises(ConfigError, match=r"loader\.style=pipe.*loader\.num_workers=2.*set loader\.style=map"):
        compose(options, cwd=tmp_path)


@pytest.mark.parametrize("option", ["loader.prefetch_bytes=1MiB", "loader.transfer_size=4KiB"])
def test_its_options_are_its_own(option: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"only loader\.engine=decoupled has this option"):
        compose(["recipe=minimal", option], cwd=tmp_path)
