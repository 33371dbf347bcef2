"""The decoupled engine past the page cache: the same batches, by whole blocks, without copies where possible."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data_files import config_of, epoch_of, make, numbers
from decoupled_data import LAYOUTS, decoupled, faithful
from rings import needs_uring

from dlio_torch import native
from dlio_torch.config.compose import compose
from dlio_torch.config.schema import FieldConfig
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.engines.decoupled.group_plan import Planner
from dlio_torch.data.engines.decoupled.open_files import Files
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import SamplerSpec
from dlio_torch.errors import DataError
from dlio_torch.formats.core import registry
from dlio_torch.formats.core.direct_file import BLOCK, open_direct
from dlio_torch.formats.core.format import Format
from dlio_torch.iotrace.recorder.spans import NULL
from dlio_torch.native.direct import DirectMover
from dlio_torch.native.extents import ExtentError, Mover, open_mover
from dlio_torch.native.uring import UringMover

SIZE = 10 * BLOCK + 77


@pytest.fixture
def content(tmp_path: Path) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
    """A file that is open for direct reads, and its bytes."""
    path = tmp_path / "file"
    made = np.random.default_rng(1).integers(0, 256, SIZE, np.uint8)
    path.write_bytes(made.tobytes())
    try:
        descriptor = open_direct(path)
    except DataError:
        pytest.skip("this file system does not permit direct reads")
    yield descriptor, made
    os.close(descriptor)


@pytest.fixture(params=["native", "python", pytest.param("io_uring", marks=needs_uring)])
def mover(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Mover:
    if request.param == "io_uring":
        return UringMover(3, BLOCK)
    if request.param == "python":

        def unavailable(name: str) -> None:
            raise native.NativeUnavailable("a test")

        monkeypatch.setattr(native, "open_library", unavailable)
    return DirectMover(open_mover(), BLOCK)


def arrays(*columns: Any) -> list[Any]:
    return [np.array(column, kind) for column, kind in zip(columns, ("i4", "i8", "i8", "i8"), strict=True)]


def filled(mover: Mover, descriptor: int, extents: list[tuple[int, int, int]], request: int) -> Any:
    """Memory with extents (offset, length, where) of the file."""
    memory = np.frombuffer(mmap.mmap(-1, 4 * SIZE), np.uint8)
    base = memory.__array_interface__["data"][0]
    offsets, lengths, to = zip(*extents, strict=True)
    mover.read(*arrays([descriptor] * len(extents), offsets, lengths, [base + one for one in to]), request)
    return memory


def test_any_extents_come_to_their_addresses(mover: Mover, content: tuple[int, Any]) -> None:
    descriptor, made = content
    rng = np.random.default_rng(2)
    for trial in range(60):
        shift = int(rng.integers(0, 2)) * int(rng.integers(0, BLOCK))  # half of them as in the file
        count = int(rng.integers(1, 8))
        cuts = np.sort(rng.integers(0, SIZE + 1, 2 * count)).reshape(count, 2)
        extents = [(int(low), int(high - low), int(low) + shift) for low, high in cuts]
        if trial % 3 == 0:  # neighbours in the file, apart in memory
            extents = [(low, length, low + shift + 13 * number) for number, (low, length, _) in enumerate(extents)]
        if trial % 4 == 0:  # one twice
            extents.append((*extents[-1][:2], 2 * SIZE))
        memory = filled(mover, descriptor, extents, int(rng.integers(1, 5 * BLOCK)))
        want = np.zeros(len(memory), np.uint8)
        for offset, length, to in extents:
            want[to : to + length] = made[offset : offset + length]
        assert np.array_equal(memory, want)


def test_the_end_of_the_file_is_found(mover: Mover, content: tuple[int, Any]) -> None:
    for offset, length in ((SIZE - 10, 20), (SIZE - 3 * BLOCK, 4 * BLOCK), (SIZE + 5, 1), (SIZE + BLOCK, 1)):
        with pytest.raises(ExtentError) as caught:
            filled(mover, content[0], [(0, 5, 0), (offset, length, 7)], BLOCK)
        assert (caught.value.extent, caught.value.errno) == (1, None)
        assert caught.value.got == max(0, SIZE - offset)


def test_what_the_system_says_is_passed_on(mover: Mover) -> None:
    with pytest.raises(ExtentError) as caught:
        filled(mover, -1, [(0, 5, 0)], BLOCK)
    assert caught.value.errno == errno.EBADF


def direct_data(root: Path, num_files: int, samples: int, **dataset: Any) -> tuple[Format, Manifest]:
    """A data set, and a format that reads it past the page cache."""
    config = config_of(root, num_files=num_files, samples_per_file=samples, **dataset)
    _, manifests = make(config)
    direct = replace(config.dataset, direct_io=True)
    return registry.create(direct, config.seed, layout=True), manifests["train"]


def device_bytes() -> int:
    """Bytes that devices have delivered to this process."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["read_bytes"])


IOS = ["threads", pytest.param("io_uring", marks=needs_uring)]


@pytest.mark.parametrize("io", IOS)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("layout", ["npy", "npz", "npy, one a file", "binary, no index"])
def test_batches_are_those_of_the_library_and_come_from_the_device(
    layout: str, workers: int, io: str, tmp_path: Path, content: tuple[int, Any]
) -> None:
    each, dataset = LAYOUTS[layout]
    fmt, manifest = direct_data(tmp_path / "data", 21 // each, each, **dataset)
    sampler = BatchSampler(SamplerSpec(batch_size=2, order="shuffled", seed=3), num_samples=21)
    options = {"multiprocessing_context": "fork", "num_workers": workers} if workers else {}
    loader = decoupled(fmt, manifest, sampler, transfer_size=BLOCK, io=io, **options)
    for epoch in range(2):
        want, before = epoch_of(faithful(fmt, manifest, sampler), epoch), device_bytes()
        got, there = epoch_of(loader, epoch), device_bytes()
        assert numbers(got) == numbers(want)
        assert all(torch.equal(one[name], other[name]) for one, other in zip(got, want, strict=True) for name in one)
        if not workers:
            assert there - before >= 10 * 2 * fmt.sample_bytes()  # however often they were read before
    loader.close()


def test_samples_of_whole_blocks_lie_in_memory_as_in_the_file(tmp_path: Path, content: tuple[int, Any]) -> None:
    fmt, manifest = direct_data(
        tmp_path / "data", 1, 8, format="npy", fields=[FieldConfig("a", shape=[2 * BLOCK // 4])]
    )
    files = Files(fmt, manifest, NULL, 1)
    plan = Planner(fmt.specs(), manifest, files, BLOCK)([np.array([3, 0, 6], np.int64)])
    assert set((plan.extents.offsets - plan.extents.to) % BLOCK) == {0}
    files.close()


def test_a_file_system_without_direct_reads_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fmt, manifest = direct_data(tmp_path, 3, 7, **LAYOUTS["npy"][1])

    opened = os.open

    def refused(path: Any, flags: int, *mode: int) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return opened(path, flags, *mode)

    monkeypatch.setattr(os, "open", refused)
    loader = decoupled(fmt, manifest, BatchSampler(SamplerSpec(batch_size=2), num_samples=21))
    with pytest.raises(DataError, match=r"does not permit direct reads.*dataset\.direct_io=false"):
        epoch_of(loader)
    loader.close()


def test_it_is_an_option_of_the_engine(tmp_path: Path) -> None:
    options = ["recipe=minimal", "loader=decoupled", "dataset.format=npy", "dataset.direct_io=true"]
    assert compose(options, cwd=tmp_path).config.dataset.direct_io
