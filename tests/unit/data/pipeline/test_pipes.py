"""The DataPipes: each batch once and in order under a DataLoader, whatever torch.distributed says."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed
from data_files import epoch_of, loader_of, make_raw, numbers
from torch.utils.data import DataLoader
from torch.utils.data.graph import traverse_dps

from dlio_torch.data.dataset.map_dataset import CatchingDataset, SampleDataset
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import SamplerSpec
from dlio_torch.data.pipeline.sample_pipes import BatchIndices, EpochBatches, SampleReader
from dlio_torch.errors import DataError
from dlio_torch.iotrace.recorder.spans import NULL


def sampler_of(rank: int = 0, world_size: int = 1) -> BatchSampler:
    return BatchSampler(
        SamplerSpec(batch_size=2, order="shuffled", seed=5, rank=rank, world_size=world_size), num_samples=42
    )


def expected(epoch: int, rank: int = 0, world_size: int = 1) -> list[list[int]]:
    sampler = sampler_of(rank, world_size)
    sampler.set_epoch(epoch)
    return list(sampler)


def pipe_of(tmp_path: Path, batches: EpochBatches) -> SampleReader:
    fmt, manifest = make_raw(tmp_path, num_files=6)
    pipe = BatchIndices(batches).read_samples(CatchingDataset(SampleDataset(fmt, manifest, NULL)))
    assert isinstance(pipe, SampleReader)
    return pipe


@pytest.fixture
def process_group(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """torch.distributed with one rank, as it is in a run whose ranks another launcher has."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # torch changes it
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
@pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker processes")
def test_each_batch_comes_once_and_in_order_for_any_number_of_workers(tmp_path: Path, workers: int) -> None:
    batches = EpochBatches(sampler_of())
    context = "fork" if workers else None
    loader = DataLoader(
        pipe_of(tmp_path, batches), batch_size=None, num_workers=workers, multiprocessing_context=context
    )
    for epoch in (0, 1):
        batches.begin(epoch)
        assert numbers(loader) == expected(epoch)


def test_workers_that_persist_learn_of_the_epoch(tmp_path: Path) -> None:
    batches = EpochBatches(sampler_of())
    loader = DataLoader(
        pipe_of(tmp_path, batches),
        batch_size=None,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    for epoch, step in ((0, 0), (3, 0), (3, 9), (1, 20)):
        batches.begin(epoch, step)
        assert numbers(loader) == expected(epoch)[step:]


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("style", ["map", "pipe"])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_share_of_a_rank_is_not_that_of_torch_distributed(tmp_path: Path, style: str, workers: int) -> None:
    fmt, manifest = make_raw(tmp_path, num_files=6)
    seen = []
    for rank in (0, 1):
        sampler = sampler_of(rank, world_size=2)
        options = {"num_workers": workers, "multiprocessing_context": "fork" if workers else None}
        loader = loader_of(fmt, manifest, sampler, style=style, **options)
        got = numbers(epoch_of(loader))
        loader.close()
        assert got == expected(0, rank, world_size=2)
        seen += [number for batch in got for number in batch]
    assert len(seen) == len(set(seen)) == 40  # 42 samples: the last step would hold two of four


@pytest.mark.usefixtures("process_group")
def test_an_epoch_makes_no_process_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # torch makes one for a DataPipe, which hangs where one rank alone evaluates.
    monkeypatch.setattr(torch.distributed, "new_group", lambda *_, **__: pytest.fail("a collective"))
    monkeypatch.setattr(torch.distributed, "broadcast", lambda *_, **__: pytest.fail("a collective"))
    fmt, manifest = make_raw(tmp_path, num_files=6)
    loader = loader_of(fmt, manifest, sampler_of(), style="pipe")
    assert numbers(epoch_of(loader)) == expected(0)
    loader.close()


@pytest.mark.parametrize("shares", [1, 2, 5])
def test_the_shares_of_reader_threads_are_all_batches_in_turn(shares: int) -> None:
    parts = [EpochBatches(sampler_of(), share, shares) for share in range(shares)]
    for part in parts:
        part.begin(2, 3)
    got = [list(part) for part in parts]
    want = expected(2)[3:]
    assert got == [want[share::shares] for share in range(shares)]


def test_beginning_again_leaves_a_running_iterator_alone() -> None:
    batches = EpochBatches(sampler_of())
    running = iter(batches)
    assert next(running) == expected(0)[0]
    batches.begin(1)
    assert list(running) == expected(0)[1:]
    assert list(batches) == expected(1)


def test_the_graph_can_be_walked_and_travels_to_a_worker(tmp_path: Path) -> None:
    batches = EpochBatches(sampler_of())
    batches.begin(4, 2)
    pipe = pipe_of(tmp_path, batches)
    ((_, (top, below)),) = traverse_dps(pipe).items()
    assert top is pipe
    assert [type(part).__name__ for part, _ in below.values()] == ["BatchIndices"]
    there = pickle.loads(pickle.dumps(pipe))
    assert numbers(there) == expected(4)[2:]


def test_a_damaged_file_comes_in_the_place_of_its_batch(tmp_path: Path) -> None:
    batches = EpochBatches(BatchSampler(SamplerSpec(batch_size=7), num_samples=42))
    pipe = pipe_of(tmp_path, batches)
    for path in tmp_path.rglob("train_0000002.raw"):
        os.truncate(path, 5)
    assert [type(item.error) for item in pipe] == [type(None)] * 2 + [DataError] + [type(None)] * 3
