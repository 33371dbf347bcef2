"""Reads to a GPU's memory: here to the CPU's by files that a test opens, and to a real GPU where there is one."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from decoupled_data import LAYOUTS, assert_same, data_of, decoupled

from dlio_torch import cli
from dlio_torch.config.compose import compose
from dlio_torch.config.schema import Config
from dlio_torch.data.engines.decoupled import device_files, engine
from dlio_torch.data.engines.decoupled.block_arrays import in_host_memory
from dlio_torch.data.engines.decoupled.device_files import KvikioFile, TorchGdsFile, device_file_opener
from dlio_torch.data.engines.decoupled.device_reading import unplain
from dlio_torch.data.engines.decoupled.group_plan import Planner
from dlio_torch.data.engines.decoupled.open_files import Files
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import SamplerSpec
from dlio_torch.errors import ConfigError, DataError, PreconditionError
from dlio_torch.execution import training
from dlio_torch.formats.core.batch import Batch
from dlio_torch.formats.core.registry import facts
from dlio_torch.iotrace.recorder.spans import NULL
from dlio_torch.preflight import device_reads
from dlio_torch.train import to_device

PLAIN = (
    "npy", "npy, one a file, not small", "npz", "npz, not small", "npy, not small", "binary", "binary, rows",
    "binary, no index", "binary, documents", "hdf5", "safetensors", "safetensors, one a file",
    "hdf5, select, contiguous", "extents", "extents, same bytes",
)  # fmt: skip


class PositionedFile:
    """Reads as cuFile does, but to the CPU's memory.

    Attributes:
        reads: file name, first byte and bytes of each request, of all files.
        opened: how many were opened.
        refused: error number of the system for each file that is opened; 0: none.
        shorter: bytes that each read gives less.
        fails: every read does.
    """

    reads: list[tuple[str, int, int]]
    opened = 0
    refused = 0
    shorter = 0
    fails = False

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY)
        if self.refused:
            raise OSError(self.refused, os.strerror(self.refused))
        self._name = path.name
        type(self).opened += 1

    def read(self, memory: torch.Tensor, offset: int) -> int:
        if self.fails:
            raise RuntimeError("cuFileRead failed: driver error\nmore lines")
        self.reads.append((self._name, offset, len(memory)))
        return os.preadv(self._descriptor, [memory.numpy()], offset) - self.shorter

    def __del__(self) -> None:
        os.close(self._descriptor)


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> type[PositionedFile]:
    """A machine with cuFile, as far as the engine sees it."""
    opened = type("Files", (PositionedFile,), {"reads": []})
    monkeypatch.setattr(engine, "current_gpu", lambda: torch.device("cpu"))
    monkeypatch.setattr(engine, "device_file_opener", lambda: opened)
    return opened


def batches(folder: Path, layout: str, **options: Any) -> list[Batch]:
    """All batches of two epochs of shuffled samples, in the host's memory."""
    fmt, manifest = data_of(folder, layout)
    sampler = BatchSampler(SamplerSpec(batch_size=4, order="shuffled"), num_samples=manifest.num_samples)
    loader = decoupled(fmt, manifest, sampler, **options)
    try:
        return [in_host_memory(batch) for epoch in range(2) for batch in loader.epoch(epoch)]
    finally:
        loader.close()


@pytest.mark.parametrize("layout", PLAIN)
def test_batches_are_the_same_as_those_in_main_memory(tmp_path: Path, files: type[PositionedFile], layout: str) -> None:
    expected = batches(tmp_path, layout)
    assert not files.reads
    for got, want in zip(batches(tmp_path, layout, read_to="device"), expected, strict=True):
        assert_same(want, got)
    assert files.reads


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_format_says_that_its_samples_are_stored_as_they_are_used_only_if_they_are(
    tmp_path: Path, layout: str
) -> None:
    fmt, manifest = data_of(tmp_path, layout)
    plan = Planner(fmt.specs(), manifest, Files(fmt, manifest, NULL, 2))([np.arange(3)])
    says = facts(fmt.name).plain_ranges(Config(dataset=fmt.config))
    assert says == (layout in PLAIN)
    if says:
        assert unplain(plan) is None


def test_neighbours_are_read_together_up_to_the_largest_request(tmp_path: Path, files: type[PositionedFile]) -> None:
    fmt, manifest = data_of(tmp_path, "npy, not small")  # samples of 12,000 bytes, seven a file
    sampler = BatchSampler(SamplerSpec(batch_size=7), num_samples=manifest.num_samples)
    loader = decoupled(fmt, manifest, sampler, read_to="device", transfer_size=50_000, read_threads=1)
    assert len(list(loader.epoch(0))) == 3
    loader.close()
    assert sorted({name: 0 for name, _, _ in files.reads}) == sorted(manifest.path(n).name for n in range(3))
    assert sorted(size for _, _, size in files.reads) == [34_000] * 3 + [50_000] * 3


def test_no_more_files_stay_open_than_permitted(tmp_path: Path, files: type[PositionedFile]) -> None:
    batches(tmp_path, "npy, one a file, not small", read_to="device", max_open_files=1, read_threads=1)
    few = files.opened
    files.opened = 0
    batches(tmp_path, "npy, one a file, not small", read_to="device", read_threads=1)
    assert files.opened == 21 < few


@pytest.mark.parametrize("layout", ["hdf5, gzip", "tfrecord", "npz, deflated", "webdataset"])
def test_samples_that_the_cpu_must_decode_are_refused_in_one_line(
    tmp_path: Path, files: type[PositionedFile], layout: str
) -> None:
    with pytest.raises(DataError, match=r"so they cannot be read to a GPU; set loader\.read_to=host$"):
        batches(tmp_path, layout, read_to="device")


def test_a_file_that_ends_early_is_named_before_the_library_is_asked(
    tmp_path: Path, files: type[PositionedFile]
) -> None:
    fmt, manifest = data_of(tmp_path, "binary, no index")
    files.reads.clear()
    loader = decoupled(fmt, manifest, BatchSampler(SamplerSpec(batch_size=7), num_samples=21), read_to="device")
    batch = next(loader.epoch(0))  # the files are open
    assert len(batch["a"]) == 7
    loader.close()
    files.shorter = 1
    with pytest.raises(DataError, match=r"ends at byte \d+, but \d+ bytes from byte \d+ on were requested"):
        batches(tmp_path, "binary, no index", read_to="device")


def test_an_error_of_the_library_is_one_line_with_the_file(tmp_path: Path, files: type[PositionedFile]) -> None:
    files.fails = True
    with pytest.raises(DataError, match=r"cannot be read to the GPU: cuFileRead failed: driver error; set loader"):
        batches(tmp_path, "npy", read_to="device")


@pytest.mark.parametrize(
    ("number", "message"),
    [(errno.EINVAL, r"does not permit direct reads \(O_DIRECT\), which cuFile makes"), (errno.EACCES, "denied")],
)
def test_a_file_that_cannot_be_opened_is_one_line(
    tmp_path: Path, files: type[PositionedFile], number: int, message: str
) -> None:
    files.refused = number
    with pytest.raises(DataError, match=message):
        batches(tmp_path, "npy", read_to="device")


# --- the libraries ------------------------------------------------------------------------------------


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_machine_without_cufile_says_so() -> None:
    with pytest.raises(PreconditionError, match=r"^loader\.read_to=device needs cuFile.*set loader\.read_to=host"):
        device_file_opener()


def test_torch_reads_to_the_place_in_the_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(bytes(range(100)))

    class GdsFile:
        def __init__(self, name: str, flags: int) -> None:
            assert not flags & os.O_WRONLY
            self._content = Path(name).read_bytes()

        def load_storage(self, storage: torch.UntypedStorage, offset: int) -> None:
            for place in range(storage.nbytes()):
                storage[place] = self._content[offset + place]

    monkeypatch.setattr(torch.cuda.gds, "GdsFile", GdsFile)
    block = torch.zeros(10, dtype=torch.uint8)
    assert TorchGdsFile(tmp_path / "file").read(block[2:5], 40) == 3
    assert block.tolist() == [0, 0, 40, 41, 42, 0, 0, 0, 0, 0]


def test_kvikio_is_preferred_where_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(bytes(range(100)))

    class CuFile:
        def __init__(self, path: Path, flags: str) -> None:
            assert flags == "r"
            self._descriptor = path.open("rb")

        def read(self, buf: torch.Tensor, size: int, file_offset: int) -> int:
            with self._descriptor as file:
                file.seek(file_offset)
                return file.readinto(buf.numpy()[:size])

    monkeypatch.setitem(sys.modules, "kvikio", SimpleNamespace(CuFile=CuFile))
    monkeypatch.setattr(device_files.importlib.util, "find_spec", lambda name: name == "kvikio" or None)
    assert device_file_opener() is KvikioFile
    block = torch.zeros(10, dtype=torch.uint8)
    assert KvikioFile(tmp_path / "file").read(block[2:5], 98) == 2
    assert block.tolist() == [0, 0, 98, 99, 0, 0, 0, 0, 0, 0]


# --- runs ---------------------------------------------------------------------------------------------


DEVICE = ("loader.engine=decoupled", "loader.read_to=device", "train.device=cuda")
SMALL = ("recipe=minimal", "dataset=npy", "dataset.num_files=3", "dataset.samples_per_file=4", "train.batch_size=2")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("train.device=cpu",), r"loader\.read_to=device.*train\.device=cpu.*set train\.device=cuda"),
        (("loader.num_workers=2",), r"loader\.num_workers=2.*worker processes cannot read"),
        (("loader.style=pipe",), r"loader\.style=pipe.*main memory"),
        (("loader.pin_memory=true",), r"loader\.pin_memory=true.*past main memory"),
        (("loader.prefetch_to_device=2",), r"loader\.prefetch_to_device=2"),
        (("loader.replay=batches",), r"loader\.replay=batches"),
        (("access.pattern=stream", "access.partition=files"), r"access\.pattern=stream"),
        (("loader.engine=dataloader",), r"only loader\.engine=decoupled has this option"),
        (("dataset=hdf5", "dataset.hdf5.chunk_bytes=64KiB"), r"dataset\.format=hdf5.*not stored as they are used"),
        (("dataset=tfrecord",), r"dataset\.format=tfrecord.*not stored as they are used"),
    ],
)
def test_options_that_need_main_memory_are_refused(options: tuple[str, ...], message: str) -> None:
    given = {word.partition("=")[0] for word in options}
    rest = [word for word in (*SMALL, *DEVICE) if word.partition("=")[0] not in given]
    with pytest.raises(ConfigError, match=message):
        compose([*rest, *options], environ={})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*SMALL, *DEVICE, f"dataset.root={tmp_path}/data", f"output.dir={tmp_path}/run"]
    assert cli.main(words) == 3
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("dlio_torch: error: train.device=cuda needs a GPU")
    assert "loader.read_to=device out" in last
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("layout", "problem"), [("hdf5, gzip", "lie in chunks"), ("tokens", "records"), ("npy", None)])
def test_existing_files_are_checked_before_a_run(tmp_path: Path, layout: str, problem: str | None) -> None:
    fmt, manifest = data_of(tmp_path, layout)
    if problem is None:
        device_reads.check_plain_files(fmt, manifest)
        return
    with pytest.raises(PreconditionError, match=rf"{problem}.*cannot be read to a GPU; set loader\.read_to=host"):
        device_reads.check_plain_files(fmt, manifest)


class HandOver:
    """Takes batches that are there already."""

    name = "a GPU"
    batches: list[str]

    def __init__(self, device: object) -> None:
        type(self).batches = []

    def start(self, batch: Batch) -> None:
        self.batches.append(batch["data"].device.type)

    def finish(self) -> None:
        pass


def test_a_run_hands_over_what_was_read_and_counts_no_copy(
    tmp_path: Path, files: type[PositionedFile], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in (to_device, training):
        monkeypatch.setattr(module, "needs_gpu", lambda config: True)
    monkeypatch.setattr(training, "use_gpu", lambda local_rank: "a device")
    monkeypatch.setattr(training, "BatchesOnDevice", HandOver)
    monkeypatch.setattr(device_reads, "device_file_opener", lambda: files)
    monkeypatch.setattr(device_reads, "may_pass_through_host", lambda: True)
    words = [*SMALL, *DEVICE, "verify=true", f"dataset.root={tmp_path}/data", f"output.dir={tmp_path}/run"]
    assert cli.main(words) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert len(HandOver.batches) == summary["train"]["steps"] + summary["warmup"]["steps"]
    assert (summary["copies"], summary["copies_ahead"], summary["reads"]["bytes_per_sample"]) == (None, None, None)
    assert summary["verified_samples"] == sum(summary[phase]["samples"] for phase in ("train", "warmup"))
    assert sum(size for _, _, size in files.reads) == summary["train"]["bytes"] + summary["warmup"]["bytes"]
    assert "nvidia-fs is not loaded" in capsys.readouterr().err


def need_cufile() -> None:
    try:
        device_file_opener()
    except PreconditionError as error:
        pytest.skip(f"needs cuFile: {error.message}")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("layout", PLAIN)
def test_batches_reach_a_real_gpu_as_they_are_in_main_memory(tmp_path: Path, layout: str) -> None:
    need_cufile()
    expected = batches(tmp_path, layout)
    for got, want in zip(batches(tmp_path, layout, read_to="device"), expected, strict=True):
        assert_same(want, got)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_run_reads_to_a_real_gpu(tmp_path: Path) -> None:
    need_cufile()
    words = [*SMALL, *DEVICE, "verify=true", "train.epochs=2", f"dataset.root={tmp_path}/data"]
    assert cli.main([*words, "compute.mode=cuda", f"output.dir={tmp_path}/run"]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["gpu"] == torch.cuda.get_device_name(0)
    assert (summary["copies"], summary["reads"]["bytes_per_sample"]) == (None, None)
    assert summary["verified_samples"] == 24
