"""Epochs on the read core: how far it reads ahead, what it costs the trainer's thread, whose memory it uses, faults."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from data_files import epoch_of, numbers
from decoupled_data import LAYOUTS, data_of, decoupled, faithful, good_and_bad
from faults import build
from ranks import clean_environ

from dlio_torch.config.schema import LoaderConfig
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.engines.decoupled.batch_groups import DecoupledSource
from dlio_torch.data.engines.decoupled.engine import DecoupledEngine
from dlio_torch.data.engines.decoupled.shared_block_pool import SharedBlocks
from dlio_torch.data.engines.decoupled.shared_memory import SharedMemory
from dlio_torch.data.engines.decoupled.worker_messages import tail_bytes
from dlio_torch.data.order.orders import BatchProducer
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import SamplerSpec
from dlio_torch.errors import DataError
from dlio_torch.formats.core.format import Format
from dlio_torch.iotrace.recorder.spans import NULL
from dlio_torch.native import NativeUnavailable
from dlio_torch.native.read_core import ReadCore

SAMPLE = 5 * 6 * 4 + 2  # bytes
BY_PYTHON = (
    # Only Python takes their records apart.
    "tokens", "tokens, every token", "webdataset, images", "jpeg, labels", "imagefolder, any size",
    # Files are read, and decoded, when they are opened.
    "npy, one a file", "npz, one a file", "npz, deflated", "npz, deflated, one a file", "npz, last axis", "csv",
    "csv, wide", "arrow, truth values", "arrow, zstd", "png", "jpeg, stored", "imagefolder",
    "imagefolder, masks, any size", "tfrecord, gzip", "webdataset, gzip",
)  # fmt: skip
"""Layouts that Python's threads read."""
SLICE_S = 0.1  # of a wait
SUPPORT = Path(__file__).parents[4] / "support"


@pytest.fixture(scope="module", autouse=True)
def native() -> None:
    try:
        ReadCore(1, 4096).close()
    except NativeUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Format, Manifest]:
    return data_of(tmp_path_factory.mktemp("data"), "npy")


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[ReadCore]:
    """The cores that were used, once for each job."""
    used: list[ReadCore] = []
    submit = ReadCore.submit

    def noted(core: ReadCore, *arguments: Any, **options: Any) -> int:
        used.append(core)
        return submit(core, *arguments, **options)

    monkeypatch.setattr(ReadCore, "submit", noted)
    return used


def sampler_of(batch_size: int = 2, samples: int = 21) -> BatchSampler:
    return BatchSampler(SamplerSpec(batch_size=batch_size, order="shuffled", seed=3), num_samples=samples)


def engine_of(made: tuple[Format, Manifest], sampler: BatchSampler, **options: Any) -> DecoupledEngine:
    config = LoaderConfig(**{"engine": "decoupled", "timeout_s": 60.0, **options})
    return DecoupledEngine(config, DecoupledSource(*made, NULL), sampler)


@pytest.mark.parametrize("batches", [1, 2, 5])
def test_reads_no_further_ahead_than_allowed(batches: int, made: tuple[Format, Manifest], jobs: list[ReadCore]) -> None:
    engine = engine_of(made, sampler_of(), prefetch_bytes=batches * 2 * SAMPLE, read_threads=3)
    items = engine.start(0, 0)
    assert len(jobs) == min(batches, 2), "the first batch comes early"
    for taken in range(1, 4):
        next(items)
        assert len(jobs) == taken + batches
    engine.close()


def test_the_trainer_gives_up_the_interpreter_lock_at_most_once_a_group(
    made: tuple[Format, Manifest], jobs: list[ReadCore]
) -> None:
    engine = engine_of(made, sampler_of(), prefetch_bytes=4 * SAMPLE)
    began = time.monotonic()
    for epoch in range(3):
        assert len(list(engine.start(epoch, 0))) == 10
    slices = (time.monotonic() - began) / SLICE_S  # a longer wait is several calls
    assert len(jobs) == 30
    assert jobs[0].calls <= 30 + slices
    engine.close()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_python_reads_what_is_only_bytes(layout: str, tmp_path: Path, jobs: list[ReadCore]) -> None:
    fmt, manifest = data_of(tmp_path, layout)
    sampler = sampler_of()
    loader = decoupled(fmt, manifest, sampler)
    want, got = (epoch_of(source, 1) for source in (faithful(fmt, manifest, sampler), loader))
    for ours, other in zip(got, want, strict=True):
        assert all(torch.equal(ours[name], other[name]) for name in other)
    loader.close()
    assert bool(jobs) == (layout not in BY_PYTHON)


def test_an_epoch_that_was_replaced_leaves_the_next_one_alone(made: tuple[Format, Manifest]) -> None:
    engine = engine_of(made, sampler_of(), prefetch_bytes=4 * SAMPLE)
    first, second = engine.start(0, 0), engine.start(1, 0)
    assert list(first) == []
    assert len(list(second)) == 10
    engine.close()


@pytest.mark.parametrize("in_worker", [False, True])
def test_a_group_gets_its_block_when_a_thread_begins_it(
    in_worker: bool, made: tuple[Format, Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []  # addresses of memory at the time when a group is planned; 0: none yet
    submit = ReadCore.submit

    def noted(core: ReadCore, rows: int, count: int, base: int, *arguments: Any, **options: Any) -> int:
        given.append(base)
        return submit(core, rows, count, base, *arguments, **options)

    monkeypatch.setattr(ReadCore, "submit", noted)
    shared = SharedMemory(1)
    options: dict[str, Any] = {}
    if in_worker:
        options = {"blocks": SharedBlocks(shared.region(0), 1, 8192), "tail": tail_bytes}
    config = LoaderConfig(engine="decoupled", timeout_s=60.0, prefetch_bytes=4 * SAMPLE)
    engine = DecoupledEngine(config, DecoupledSource(*made, NULL), sampler_of(), **options)
    for epoch in range(2):
        assert len(list(engine.start(epoch, 0))) == 10
    engine.close()
    shared.close()
    assert given == [0] * 20


def test_blocks_are_used_again(made: tuple[Format, Manifest]) -> None:
    engine = engine_of(made, sampler_of(), prefetch_bytes=4 * SAMPLE)
    for epoch in range(20):
        for batch in engine.start(epoch, 0):
            del batch
    # Two batches ahead, one with the trainer, and at the border of two epochs one that is just being dropped.
    assert engine.blocks.allocated <= 4
    engine.close()


def test_batches_that_are_kept_stay_as_they_are(made: tuple[Format, Manifest]) -> None:
    engine = engine_of(made, sampler_of(), prefetch_bytes=1)
    kept = [item.opened() for item in engine.start(0, 0)]
    copies = [{name: tensor.clone() for name, tensor in batch.items()} for batch in kept]
    for epoch in range(3):
        list(engine.start(epoch, 0))
    for batch, other in zip(kept, copies, strict=True):
        assert all(torch.equal(batch[name], other[name]) for name in batch)
    engine.close()
    for batch, other in zip(kept, copies, strict=True):
        assert all(torch.equal(batch[name], other[name]) for name in batch)
    del kept, batch
    gc.collect()


def test_the_switch_interval_is_restored(made: tuple[Format, Manifest]) -> None:
    before = sys.getswitchinterval()
    first, second = engine_of(made, sampler_of()), engine_of(made, sampler_of())
    items = first.start(0, 0)
    assert sys.getswitchinterval() < before
    list(second.start(0, 0))
    assert sys.getswitchinterval() < before
    next(items)
    first.close()
    assert sys.getswitchinterval() == pytest.approx(before)
    second.start(1, 0)
    second.close()
    assert sys.getswitchinterval() == pytest.approx(before)


def test_the_switch_interval_is_short_from_the_first_plan_on(made: tuple[Format, Manifest]) -> None:
    """NumPy's sorts give up the lock: beside a thread that computes, each would cost the usual interval of 5 ms."""
    seen: list[float] = []

    class Noting(BatchSampler):
        def batch_producer(self, epoch: int) -> BatchProducer:
            seen.append(sys.getswitchinterval())
            return super().batch_producer(epoch)

    before = sys.getswitchinterval()
    engine = engine_of(made, Noting(SamplerSpec(batch_size=3, order="shuffled", seed=1), num_samples=21))
    list(engine.start(0, 0))
    engine.close()
    assert seen
    assert max(seen) < before
    assert sys.getswitchinterval() == pytest.approx(before)


def test_groups_of_one_batch_and_of_several_fail_alike(tmp_path: Path) -> None:
    """A cut file: the batches that need the missing bytes are errors of one line, the others come."""
    fmt, manifest = data_of(tmp_path, "npy, not small")
    loader = decoupled(fmt, manifest, sampler_of(1))
    epoch_of(loader, 0)  # all files are open
    path = next(iter(fmt.files(manifest.path(1))))
    os.truncate(path, path.stat().st_size - 100)
    assert good_and_bad(loader)[0] == 20
    loader.close()
    for prefetch in (1, 16 << 20):
        loader = decoupled(fmt, manifest, sampler_of(3), prefetch_bytes=prefetch)
        good, bad = good_and_bad(loader)
        assert good + 3 * len(bad) == 21
        assert all(str(path) in line and "\n" not in line for line in bad)
        loader.close()


def test_a_flipped_bit_costs_its_batch(tmp_path: Path) -> None:
    fmt, manifest = data_of(tmp_path, "tfrecord")
    path = next(iter(fmt.files(manifest.path(1))))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    loader = decoupled(fmt, manifest, BatchSampler(SamplerSpec(batch_size=1), num_samples=21))
    good, (line,) = good_and_bad(loader)
    assert good == 20
    assert str(path) in line
    assert "record 3" in line
    loader.close()


def test_an_epoch_after_a_fork_in_between(made: tuple[Format, Manifest]) -> None:
    loader = decoupled(*made, sampler_of())
    batches = loader.epoch(0)
    first = next(batches)
    pid = os.fork()
    if pid == 0:
        del first
        gc.collect()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    rest = [first, *batches]
    assert numbers(rest) == list(sampler_of())
    loader.close()


PROGRAM = """
import ctypes, os, sys
from pathlib import Path
from decoupled_data import data_of, decoupled
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import SamplerSpec
from dlio_torch.errors import DlioError

faults = ctypes.CDLL(sys.argv[1])
fmt, manifest = data_of(Path(sys.argv[2]), "npy")
path = str(manifest.path(1))

def outcomes(loader, epoch):
    batches, found = loader.epoch(epoch), []
    while True:
        try:
            found.append(next(batches)["index"].tolist())
        except StopIteration:
            return found
        except DlioError as error:
            found.append(str(error))
            if "reader threads" in found[-1]:
                return found

loader = decoupled(fmt, manifest, BatchSampler(SamplerSpec(batch_size=7), num_samples=21), timeout_s=60.0)
print(len(outcomes(loader, 0)))
faults.faults_set(f"read,preadv2|{path}|1|5".encode())
print(*outcomes(loader, 1), sep="\\n")
faults.faults_set(b"")
loader.close()

loader = decoupled(fmt, manifest, BatchSampler(SamplerSpec(batch_size=7), num_samples=21), timeout_s=1.0)
outcomes(loader, 0)
faults.faults_set(f"read,preadv2|{path}|1|hang".encode())
print(outcomes(loader, 1)[-1])
loader.close()
faults.faults_set(b"")

kept = []  # until modules are gone
for workers in (0, 1):
    loader = decoupled(
        fmt, manifest, BatchSampler(SamplerSpec(batch_size=7), num_samples=21), num_workers=workers
    )
    kept += loader.epoch(0)
    loader.close()
print(len(kept))
"""


def test_a_device_that_fails_a_read_that_hangs_and_batches_at_the_end_of_the_process(tmp_path: Path) -> None:
    library = build(tmp_path)
    environment = {**clean_environ(), "LD_PRELOAD": str(library), "FAULTS_FIFO": str(tmp_path / "never")}
    environment["PYTHONPATH"] = os.pathsep.join([str(SUPPORT), *sys.path])
    os.mkfifo(tmp_path / "never")
    (tmp_path / "data").mkdir()
    command = [sys.executable, "-c", PROGRAM, str(library), str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, ""), done
    whole, first, failed, last, hung, kept = done.stdout.splitlines()
    assert (whole, kept) == ("3", "6")
    assert (first, last) == (str(list(range(7))), str(list(range(14, 21))))
    assert "Input/output error" in failed
    assert "no batch came from the reader threads for 1 s" in hung


def test_a_missing_file_is_the_error_of_its_batches(tmp_path: Path) -> None:
    fmt, manifest = data_of(tmp_path, "npy")
    next(iter(fmt.files(manifest.path(0)))).unlink()
    loader = decoupled(fmt, manifest, BatchSampler(SamplerSpec(batch_size=7), num_samples=21))
    batches = loader.epoch(0)
    with pytest.raises(DataError, match=manifest.path(0).name):
        next(batches)
    assert next(batches)["index"].tolist() == list(range(7, 14))
    loader.close()
