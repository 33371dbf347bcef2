"""Limits of a node: samples and bytes that readers count, refused limits with a reason, nothing left behind."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest
import torch

import dlio_torch
from dlio_torch import native
from dlio_torch.config.schema import Config
from dlio_torch.data.dataset.manifest import data_folder
from dlio_torch.data.engines.registry import format_of
from dlio_torch.environment.mounts import describe_mount
from dlio_torch.errors import ConfigError, PreconditionError, RunFailed
from dlio_torch.formats.core.batch import Batch
from dlio_torch.node.limits import copy_limits
from dlio_torch.node.limits.accelerator_limits import allreduce_limit, compute_limit
from dlio_torch.node.limits.copy_limits import copy_tasks
from dlio_torch.node.limits.decode_limit import decode_tasks
from dlio_torch.node.limits.measured_recipe import MeasuredRecipe, open_recipe
from dlio_torch.node.limits.measurement import measure_limits, measure_together
from dlio_torch.node.limits.node_limit import NodeLimit
from dlio_torch.node.limits.parallel_tasks import Amount, Rate, TaskProgress
from dlio_torch.node.limits.recipe_reads import RecipeReads
from dlio_torch.node.limits.storage_limits import evict_files, require_from_device, with_bytes
from dlio_torch.storage.local.eviction import evict
from dlio_torch.storage.local.page_cache import cached_share

SMALL = ("scale=paper", "dataset.num_files=6", "dataset.samples_per_file=8", "train.batch_size=4")
SAMPLES, SAMPLE_BYTES = 48, 64 * 64 * 4
NAMES = [
    *("storage_large", "storage_recipe", "page_cache", "decode", "worker_transfer"),
    *("copy_pageable", "copy_pinned", "compute", "allreduce"),
]
SHARED_MEMORY = Path("/dev/shm")


def config(folder: Path, *options: str) -> Config:
    """An experiment whose data set exists."""
    given = dict(option.split("=", 1) for option in (*SMALL, f"dataset.root={folder}", *options))
    composed = dlio_torch.compose("minimal", [f"{key}={value}" for key, value in given.items()])
    dlio_torch.dataset(composed)
    return composed


def recipe(folder: Path, *options: str, accelerators: int = 1) -> MeasuredRecipe:
    return open_recipe(config(folder, *options), folder, 0.05, accelerators)


def work(reads: RecipeReads) -> list[tuple[int, float]]:
    """Samples and bytes that each reader counts."""
    amounts = [list(task()) for task in reads.tasks(0)]
    assert all(each[0].samples == 0 for each in amounts)  # it is ready
    return [(sum(amount.samples for amount in each), sum(amount.bytes for amount in each)) for each in amounts]


def total(reads: RecipeReads) -> tuple[int, float]:
    samples, sizes = zip(*work(reads), strict=True)
    return sum(samples), sum(sizes)


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of its own for limits of storages that vanish with the test, with the compiled libraries."""
    libraries, folder = native.cache_dir() / "native", tmp_path / "cache"
    if libraries.is_dir():
        shutil.copytree(libraries, folder / "dlio_torch" / "native")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Folder of the temporary files of all processes that a test starts; a socket's path takes 107 characters."""
    with TemporaryDirectory(prefix="node-") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


@pytest.fixture
def shared_memory() -> Iterator[Path]:
    """A folder whose files exist only in the page cache."""
    folder = SHARED_MEMORY / f"dlio_torch-node-{os.getpid()}"
    if not os.access(SHARED_MEMORY, os.W_OK) or describe_mount("", SHARED_MEMORY, {})["file_system"] != "tmpfs":
        pytest.skip("no tmpfs here")
    folder.mkdir()
    yield folder
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()


def can_be_cold(folder: Path) -> bool:
    """Whether files in a folder can be evicted, and the system counts what its device delivers."""
    path = folder / "trial"
    path.write_bytes(os.urandom(1 << 20))
    evict(path)
    before = psutil.Process().io_counters().read_bytes
    is_cold = cached_share(path) == 0.0
    path.read_bytes()
    path.unlink()
    return is_cold and psutil.Process().io_counters().read_bytes > before


def check_measured(limit: NodeLimit) -> None:
    assert limit.why == ""
    assert limit.samples_per_s is not None
    assert limit.bytes_per_s is not None
    assert limit.samples_per_s > 0
    assert limit.method


def bytes_of_sample(limit: NodeLimit) -> float:
    check_measured(limit)
    assert limit.bytes_per_s is not None
    assert limit.samples_per_s is not None
    return limit.bytes_per_s / limit.samples_per_s


def check_refused(limit: NodeLimit, why: str) -> None:
    assert (limit.samples_per_s, limit.bytes_per_s, limit.seconds) == (None, None, 0.0)
    assert why in limit.why


# --- in processes ---


def test_every_limit_is_measured_alone_and_nothing_stays(tmp_path: Path, temporary: Path) -> None:
    experiment = config(tmp_path, "dataset.format=npz", "train.allreduce_bytes=4096", "compute.step_s=2ms")
    folder = data_folder(experiment, format_of(experiment))
    files, running, lines = sorted(folder.rglob("*")), children(), list[str]()
    limits = measure_limits(experiment, folder=folder, seconds=0.05, note=lines.append, accelerators=2)
    assert (sorted(folder.rglob("*")), children(), list(temporary.iterdir())) == (files, running, [])
    assert [limit.name for limit in limits] == NAMES
    assert all(limit.alone for limit in limits)
    assert [line.split()[-1] for line in lines] == [name for name in NAMES if name != "compute"]
    by_name = {limit.name: limit for limit in limits}
    for name in ("page_cache", "decode", "worker_transfer"):
        assert bytes_of_sample(by_name[name]) == pytest.approx(SAMPLE_BYTES), name
    assert by_name["compute"].samples_per_s == pytest.approx(4 * 2 / 2e-3)
    assert bytes_of_sample(by_name["compute"]) == SAMPLE_BYTES
    assert bytes_of_sample(by_name["allreduce"]) == pytest.approx(4096 / 4)
    for name in ("copy_pageable", "copy_pinned"):
        if torch.cuda.is_available():
            assert bytes_of_sample(by_name[name]) == pytest.approx(SAMPLE_BYTES)
        else:
            check_refused(by_name[name], "torch finds no GPU")
    if can_be_cold(tmp_path):
        assert bytes_of_sample(by_name["storage_recipe"]) == pytest.approx(SAMPLE_BYTES)
        assert bytes_of_sample(by_name["storage_large"]) == pytest.approx(SAMPLE_BYTES)


def test_the_data_path_is_measured_at_the_same_time(tmp_path: Path, temporary: Path) -> None:
    experiment = config(tmp_path)
    folder = data_folder(experiment, format_of(experiment))
    running = children()
    limits = measure_together(experiment, folder=folder, seconds=0.05, note=lambda line: None)
    assert (children(), list(temporary.iterdir())) == (running, [])
    assert not any(limit.alone for limit in limits)
    by_name = {limit.name: limit for limit in limits}
    assert sorted(by_name) == sorted(["storage_recipe", "decode", "worker_transfer", "copy_pageable", "copy_pinned"])
    assert bytes_of_sample(by_name["decode"]) == pytest.approx(SAMPLE_BYTES)
    assert bytes_of_sample(by_name["worker_transfer"]) == pytest.approx(SAMPLE_BYTES)
    if can_be_cold(tmp_path):
        assert bytes_of_sample(by_name["storage_recipe"]) == pytest.approx(SAMPLE_BYTES)


def test_a_damaged_file_is_the_reason_that_there_is_no_figure(shared_memory: Path) -> None:
    """Files in memory cannot be read cold either, which is said and not called cold."""
    experiment = config(shared_memory)
    folder = data_folder(experiment, format_of(experiment))
    damaged = next(folder.rglob("train_0000003*"))
    damaged.write_bytes(damaged.read_bytes()[:1000])
    limits = {
        limit.name: limit for limit in measure_limits(experiment, folder=folder, seconds=0.05, note=lambda line: None)
    }
    check_refused(limits["storage_large"], "tmpfs keeps its files in memory")
    check_refused(limits["storage_recipe"], "the data cannot be read cold: ")
    for name in ("page_cache", "decode", "worker_transfer"):
        check_refused(limits[name], damaged.name)
    check_measured(limits["compute"])


# --- readers, in this process ---


@pytest.mark.parametrize("engine", ["dataloader", "decoupled"])
@pytest.mark.parametrize("name", ["npz", "hdf5"])
def test_extents_are_read_once_without_decoding(name: str, engine: str, tmp_path: Path) -> None:
    opened = recipe(tmp_path, f"dataset.format={name}", f"loader.engine={engine}", "access=shuffled")
    reads = RecipeReads.of(opened, 1e12)
    assert reads.kind == "extents"
    assert total(reads) == (SAMPLES, SAMPLES * SAMPLE_BYTES)
    assert len(work(reads)) == reads.readers > 1
    assert len(reads.files(0)) == 6


def test_stored_bytes_of_compressed_chunks_count_and_not_the_decoded_ones(tmp_path: Path) -> None:
    options = ("dataset.hdf5.compression=gzip", "dataset.hdf5.chunk_bytes=16KiB", "access=sequential")
    opened = recipe(tmp_path, "dataset.format=hdf5", *options)
    reads = RecipeReads.of(opened, 1e12)
    samples, size = total(reads)
    assert (reads.kind, samples) == ("extents", SAMPLES)
    assert 0 < size < SAMPLES * SAMPLE_BYTES
    assert size <= opened.stored_bytes


def test_formats_without_extents_are_read_by_their_library(tmp_path: Path) -> None:
    opened = recipe(tmp_path, "dataset.format=csv", "dataset.fields.0.shape=[8]", "access=sequential")
    reads = RecipeReads.of(opened, 1e12)
    samples, size = total(reads)
    assert (reads.kind, samples) == ("library", SAMPLES)
    assert size >= opened.stored_bytes
    assert "decoding included" in str(reads)


def test_a_file_of_one_image_is_read_whole(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    options = ("dataset.format=imagefolder", "dataset.fields=[]", "dataset.samples_per_file=1", "dataset.num_files=12")
    opened = recipe(
        tmp_path,
        *options,
        "dataset.image.transform=random_resized_crop",
        "dataset.image.size=16",
        "dataset.image.classes=false",
    )
    reads = RecipeReads.of(opened, 1e12)
    assert reads.kind == "files"
    assert total(reads) == (12, opened.stored_bytes)


def test_only_as_many_bytes_are_read_as_are_wanted(tmp_path: Path) -> None:
    opened = recipe(tmp_path, "train.batch_size=1")
    reads = RecipeReads.of(opened, 20 * opened.stored_sample_bytes)
    assert total(reads) == (20, 20 * SAMPLE_BYTES)


def test_readers_of_a_stream_share_its_files(tmp_path: Path) -> None:
    options = ("access.pattern=stream", "access.partition=none", "access.repeat=true", "train.steps=50")
    opened = recipe(tmp_path, "dataset.format=npz", "access=sequential", *options, "train.batch_size=3")
    reads = RecipeReads.of(opened, 1e12)
    assert reads.readers == 3  # of four, two would have twice as many files as the others
    each = [task for task, _ in work(reads)]
    assert all(samples % 3 == 0 for samples in each)
    assert SAMPLES - 3 * reads.readers < sum(each) <= SAMPLES


def test_random_blocks_are_read_once(tmp_path: Path) -> None:
    opened = recipe(tmp_path, "access.order=random_blocks")
    reads = RecipeReads.of(opened, 1e12)
    samples, size = total(reads)
    assert 0 < samples < SAMPLES
    assert size == samples * SAMPLE_BYTES
    half = total(reads.second_half())
    assert 0 < half[0] < samples


def test_lanes_are_read_as_whole_samples_and_counted_as_pieces(tmp_path: Path) -> None:
    lanes = ("access.pattern=lanes", "access.partition=none", "access.lane_rows=4", "train.steps=3")
    field = ("dataset.fields.0.shape=[8]", "dataset.fields.0.length_mean=16")
    opened = recipe(tmp_path, "dataset.format=npz", *lanes, *field)
    assert opened.sample_bytes == 4 * 8 * 4
    assert opened.pieces == pytest.approx(opened.format.sample_bytes() / opened.sample_bytes)
    samples, size = total(RecipeReads.of(opened, 1e12))
    assert samples == SAMPLES
    assert size == pytest.approx(SAMPLES * opened.pieces * opened.sample_bytes, rel=0.3)


def test_decoding_goes_on_until_its_time_is_over(tmp_path: Path) -> None:
    amounts = decode_tasks(recipe(tmp_path, "access=shuffled"))[0]()
    assert next(amounts).samples == 0
    taken = [next(amounts) for _ in range(30)]  # two and a half epochs
    assert {(amount.samples, amount.bytes) for amount in taken} == {(4, 4 * SAMPLE_BYTES)}
    amounts.close()  # type: ignore[attr-defined]


class StandInEvent:
    """CUDA event of a machine without a GPU: two of them are 2 ms apart."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, end: StandInEvent) -> float:
        return 2.0


class StandInCopies:
    """Copies that count batches and the GPU that they go to."""

    def __init__(self, device: torch.device) -> None:
        COPIED.append(device)

    def start(self, batch: Batch) -> None:
        COPIED.append(batch["data"].shape[0])

    def finish(self) -> None: ...


COPIED: list[object] = []


def test_copies_are_timed_by_events_on_each_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", StandInEvent)
    monkeypatch.setattr(copy_limits, "DeviceCopies", StandInCopies)
    monkeypatch.setattr(copy_limits, "use_gpu", lambda number: torch.device("cuda", number))
    for number, task in enumerate(copy_tasks(recipe(tmp_path), "copy_pageable", 2)):
        COPIED.clear()
        amounts = task()
        next(amounts)  # it is ready: torch's allocator has its memory
        assert [next(amounts) for _ in range(5)] == [Amount(4, 4 * SAMPLE_BYTES, 2e-3)] * 5
        assert [torch.device("cuda", number), *[4] * (3 + 5)] == COPIED


# --- cold and warm ---


def test_memory_file_systems_are_not_read_cold(shared_memory: Path) -> None:
    reads = RecipeReads.of(recipe(shared_memory), 1e12)
    with pytest.raises(PreconditionError, match=r"cannot be read cold: .*tmpfs"):
        evict_files(reads, 0)


def test_evicted_files_are_cold(tmp_path: Path) -> None:
    if not can_be_cold(tmp_path):
        pytest.skip("files cannot be evicted here")
    reads = RecipeReads.of(recipe(tmp_path), 1e12)
    assert total(reads)[0] == SAMPLES
    assert any((cached_share(path) or 0.0) > 0.9 for path in reads.files(0))
    assert evict_files(reads, 0) < 0.03
    assert all((cached_share(path) or 0.0) < 0.03 for path in reads.files(0))


def test_a_rate_from_the_page_cache_is_not_called_cold(tmp_path: Path) -> None:
    opened = recipe(tmp_path)
    require_from_device(Rate(10, 1000.0, 500, 1.0, 100.0, 10.0), opened)
    with pytest.raises(PreconditionError, match=r"only 20\.0 % of the bytes came from the device"):
        require_from_device(Rate(10, 1000.0, 200, 1.0, 100.0, 10.0), opened)


def test_bytes_of_mapped_files_are_estimated(tmp_path: Path) -> None:
    opened = recipe(tmp_path)
    rate = with_bytes(Rate(10, 4.0, 0, 5.0, 2.0, 2.0), opened)
    assert rate.bytes_per_s / rate.samples_per_s == pytest.approx(opened.stored_bytes / SAMPLES)
    called = Rate(10, 10 * opened.stored_sample_bytes, 0, 5.0, 5.0, 2.0)
    assert with_bytes(called, opened) == called


# --- arithmetic and reasons ---


def test_the_rate_of_limited_work_is_that_until_the_slowest_process_is_done() -> None:
    quick, slow = TaskProgress(10, 100.0, 1.0, True, 30), TaskProgress(10, 100.0, 4.0, True, 50)
    assert Rate.of([quick, slow]) == Rate(20, 200.0, 80, 5.0, 50.0, 4.0)
    endless = [replace(each, is_done=False) for each in (quick, slow)]
    assert Rate.of(endless) == Rate(20, 200.0, 80, 12.5, 125.0, 4.0)
    assert Rate.in_sequence([Rate.of([quick]), Rate.of([slow])]) == Rate(20, 200.0, 80, 4.0, 40.0, 5.0)
    with pytest.raises(RunFailed, match="no batch was completed"):
        Rate.of([TaskProgress(0, 0.0, 1.0, False)])


def test_compute_counts_the_batches_of_all_accelerators(tmp_path: Path) -> None:
    compute = ("compute.step_s=10ms", "access.hold_steps=2")
    assert compute_limit(recipe(tmp_path, *compute, accelerators=8)).samples_per_s == pytest.approx(4 * 8 / 20e-3)
    shared = recipe(tmp_path, *compute, "train.batch_scope=global", "train.batch_size=8", accelerators=8)
    assert compute_limit(shared).samples_per_s == pytest.approx(8 / 20e-3)
    check_refused(compute_limit(recipe(tmp_path, "compute.mode=none")), "the recipe emulates no compute")


def test_nothing_to_exchange_is_a_reason(tmp_path: Path) -> None:
    check_refused(allreduce_limit(recipe(tmp_path, accelerators=8)), "train.allreduce_bytes=0")
    check_refused(allreduce_limit(recipe(tmp_path, "train.allreduce_bytes=4096")), "one accelerator")


def test_data_that_do_not_exist_or_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PreconditionError, match="files are missing"):
        open_recipe(dlio_torch.compose("minimal", [*SMALL, f"dataset.root={tmp_path}"]), tmp_path, 0.05, 1)
    opened = recipe(tmp_path)
    large = replace(opened, reading=replace(opened.reading, train=replace(opened.reading.train, batch_size=100)))
    with pytest.raises(ConfigError, match=r"train\.batch_size=100 is larger than the data set"):
        RecipeReads.of(large, 1e12)
