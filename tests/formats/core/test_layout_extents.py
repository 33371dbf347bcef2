"""Layout of files: the same bytes as the format's own library reads, one line for every damage."""

from __future__ import annotations

import itertools
import math
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from decoupled_data import LAYOUTS, assert_same, data_of, decoupled, faithful, outcome
from hypothesis import given, settings
from hypothesis import strategies as st
from rings import needs_uring
from straced import needs_strace, straced

from dlio_torch.config.schema import DatasetConfig, FieldConfig, LoaderConfig
from dlio_torch.data.dataset.file_counts import FileCounts
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.engines.batch_loader import BatchLoader
from dlio_torch.data.engines.decoupled.batch_groups import DecoupledSource
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import SamplerSpec
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core import registry
from dlio_torch.formats.core.codecs import decoded, fletcher32
from dlio_torch.formats.core.layout_chunks import runs_of
from dlio_torch.iotrace.recorder.spans import NULL
from dlio_torch.native.extents import ExtentError, Mover, NativeMover, PythonMover, open_mover
from dlio_torch.native.uring import UringMover

ORDERS = ["sequential", "shuffled", "random_blocks", "strided"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gives_the_bytes_of_the_library(layout: str, tmp_path: Path) -> None:
    fmt, manifest = data_of(tmp_path, layout)
    for order, (rank, world), options in itertools.product(
        ORDERS, [(0, 1), (1, 2)], [{}, {"transfer_size": 100, "prefetch_bytes": 1}]
    ):
        sampler = BatchSampler(
            SamplerSpec(batch_size=4, order=order, seed=3, stride=5, rank=rank, world_size=world),
            num_samples=manifest.num_samples,
        )
        got = decoupled(fmt, manifest, sampler, **options)
        for epoch in range(2):
            want = list(faithful(fmt, manifest, sampler).epoch(epoch))
            batches = list(got.epoch(epoch))
            assert len(batches) == len(want)
            for one, other in zip(want, batches, strict=True):
                assert_same(one, other)
        got.close()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_runs_put_every_byte_at_its_address(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 5), max_size=4))
    chunk = [data.draw(st.integers(1, length)) for length in shape]
    itemsize = data.draw(st.sampled_from([1, 4, 8]))
    select = sorted(data.draw(st.sets(st.integers(0, shape[0] - 1)))) if shape else []
    content = np.random.default_rng(1).integers(0, 256, (*shape, itemsize), np.uint8)
    grid = [-(-a // b) for a, b in zip(shape, chunk, strict=True)]
    chunks = []
    for where in itertools.product(*map(range, grid)):
        part = np.zeros((*chunk, itemsize), np.uint8)
        inside = content[tuple(slice(w * c, w * c + c) for w, c in zip(where, chunk, strict=True))]
        part[tuple(slice(0, n) for n in inside.shape[:-1])] = inside
        chunks.append(part.tobytes())
    want = (content[select] if select else content).tobytes()
    got, seen = bytearray(len(want)), 0
    runs = runs_of(shape, chunk, itemsize, select)
    for number, source, length, to in zip(
        runs.chunk.tolist(), runs.source.tolist(), runs.lengths.tolist(), runs.to.tolist(), strict=True
    ):
        assert source + length <= math.prod(chunk) * itemsize
        got[to : to + length] = chunks[number][source : source + length]
        seen += length
    assert seen == len(want)
    assert bytes(got) == want


FILTERS = [
    ("shuffle",),
    ("gzip",),
    ("shuffle", "gzip"),
    ("gzip", "gzip"),
    ("fletcher32",),
    ("shuffle", "gzip", "fletcher32"),
]


@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("dtype", ["<i2", "<f8", "u1"])
def test_filters_are_undone(filters: tuple[str, ...], dtype: str) -> None:
    content = np.arange(300).astype(dtype)
    pipeline = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    pipeline.set_chunk((300,))
    for name in filters:
        {"shuffle": pipeline.set_shuffle, "fletcher32": pipeline.set_fletcher32}.get(
            name, lambda: pipeline.set_deflate(4)
        )()
    with h5py.File("filters", "w", driver="core", backing_store=False) as file:
        space = h5py.h5s.create_simple((300,))
        array = h5py.h5d.create(file.id, b"x", h5py.h5t.py_create(content.dtype), space, pipeline)
        array.write(h5py.h5s.ALL, h5py.h5s.ALL, content)
        mask, stored = array.read_direct_chunk((0,))
    got = decoded(memoryview(stored), filters, mask, content.nbytes, content.itemsize, "here")
    assert got.tobytes() == content.tobytes()
    with pytest.raises(DataError, match="here"):
        decoded(memoryview(stored)[:-9], filters, mask, content.nbytes, content.itemsize, "here")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_truncated_file_is_an_error_in_the_place_of_its_batch(layout: str, tmp_path: Path) -> None:
    fmt, manifest = data_of(tmp_path, layout)
    assert outcome(fmt, manifest) == []
    victim = manifest.path(0)
    part = victim if victim.is_file() else max(fmt.files(victim), key=lambda file: file.stat().st_size)
    padding = 10240 if fmt.suffix == ".tar" and "gzip" not in layout else 0  # zeros that end an archive
    os.truncate(part, part.stat().st_size - 70 - padding)
    found = outcome(fmt, manifest)
    assert len(found) == 1  # the batch of that file alone
    assert victim.name in found[0]
    assert "\n" not in found[0]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_damage_is_told_in_one_line(layout: str, tmp_path: Path) -> None:
    fmt, manifest = data_of(tmp_path, layout)
    rng = random.Random(4)
    told = 0
    of_suffix: Counter[str] = Counter()
    for path in fmt.files(manifest.path(0)):
        sound = path.read_bytes()
        of_suffix[path.suffix] += 1
        for _ in range(25 if of_suffix[path.suffix] <= 2 else 5):  # chunks, and images of a folder, are alike
            bad = bytearray(sound)
            at = rng.randrange(min(len(bad), 3000))
            bad[at] ^= 1 << rng.randrange(8)
            path.write_bytes(bad)
            found = outcome(fmt, manifest)
            assert all("\n" not in line for line in found)
            told += bool(found)
        path.write_bytes(sound)
    assert told


def test_a_format_without_a_layout_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.BUILTIN, "raw", "data_files:RawFormat")
    config = DatasetConfig(format="raw")
    with pytest.raises(ConfigError, match=r"loader\.engine=decoupled.*npy"):
        registry.create(config, 1, layout=True)
    with pytest.raises(ConfigError, match="provides no extents"):
        registry.create(config, 1).layout(Path("nothing"))


# HDF5 files that only the library reads: how the array is made, and a word of the message.
OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "lzf": ({"chunks": (2, 5), "compression": "lzf"}, "filter 32000"),
    "no fill value": ({"chunks": (2, 5), "fill_time": "never"}, "unwritten chunks"),
    "contiguous, no fill value": ({"fill_time": "never"}, "unwritten chunks"),
    "external": ({"external": [("beside", 0, 80)]}, "lie in the external file 'beside'"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_hdf5_that_only_the_library_reads_is_refused(case: str, tmp_path: Path) -> None:
    options, word = OTHERS[case]
    with h5py.File(tmp_path / "x.h5", "w") as file:
        array = file.create_dataset("data", (4, 5), "f4", **options)
        if case == "lzf":
            array[:] = 1
    layout = registry.create(DatasetConfig(format="hdf5", fields=[FieldConfig(shape=[5])]), 1).layout
    rows = np.arange(4)
    with pytest.raises(DataError, match=word):
        layout(tmp_path / "x.h5").arrays["data"].plan(rows, rows * 20)


@pytest.mark.parametrize("case", ["compact", "contiguous, never written", "chunks, some never written"])
def test_hdf5_arrays_without_an_extent_of_their_own(case: str, tmp_path: Path) -> None:
    """What lies in the file's tables, and fill values."""
    space, how = h5py.h5s.create_simple((21, 5)), h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    how.set_fill_value(np.array(2.5, "f4"))
    how.set_fill_time(h5py.h5d.FILL_TIME_IFSET)
    if case == "compact":
        how.set_layout(h5py.h5d.COMPACT)
    elif "chunks" in case:
        how.set_chunk((2, 3))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        array = h5py.Dataset(h5py.h5d.create(file.id, b"data", h5py.h5t.IEEE_F32LE, space, how))
        if "contiguous" not in case:
            array[3:8, 1:2] = np.arange(5)[:, None]
        want = array[:]
    assert (want == 2.5).sum() >= 100
    fmt = registry.create(DatasetConfig(format="hdf5", fields=[FieldConfig(shape=[5])]), 1)
    manifest = Manifest("train", 0, FileCounts([21]), tmp_path, ["x.h5"], ".h5")
    loader = BatchLoader(
        LoaderConfig(engine="decoupled"),
        DecoupledSource(fmt, manifest, NULL),
        BatchSampler(SamplerSpec(batch_size=7), num_samples=21),
    )
    assert np.concatenate([batch["data"].numpy() for batch in loader.epoch(0)]).tobytes() == want.tobytes()
    loader.close()


def test_checksums_of_chunks_are_compared(tmp_path: Path) -> None:
    content = np.random.default_rng(1).random((21, 5, 301), np.float32)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        array = file.create_dataset("data", data=content, chunks=(2, 3, 301), fletcher32=True, shuffle=True)
        at = array.id.get_chunk_info(0).byte_offset
    fmt = registry.create(DatasetConfig(format="hdf5", fields=[FieldConfig(shape=[5, 301])]), 1)
    manifest = Manifest("train", 0, FileCounts([21]), tmp_path, ["x.h5"], ".h5")
    sampler = BatchSampler(SamplerSpec(batch_size=7), num_samples=21)
    loader = BatchLoader(LoaderConfig(engine="decoupled"), DecoupledSource(fmt, manifest, NULL), sampler)
    assert np.concatenate([batch["data"].numpy() for batch in loader.epoch(0)]).tobytes() == content.tobytes()
    loader.close()
    with (tmp_path / "x.h5").open("r+b") as stored:
        stored.seek(at + 1000)
        byte = stored.read(1)[0]
        stored.seek(at + 1000)
        stored.write(bytes([byte ^ 4]))
    loader = BatchLoader(LoaderConfig(engine="decoupled"), DecoupledSource(fmt, manifest, NULL), sampler)
    with pytest.raises(DataError, match="checksum"):
        next(loader.epoch(0))
    loader.close()


@given(st.binary(max_size=600), st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_fletcher_sums_as_the_library_does(data: bytes, times: int) -> None:
    data *= times**4
    first = second = 0
    for low in range(0, len(data) - 1, 2):
        first = (first + (data[low] << 8) + data[low + 1]) % 65535
        second = (second + first) % 65535
    if len(data) % 2:
        first = (first + (data[-1] << 8)) % 65535
        second = (second + first) % 65535
    assert fletcher32(memoryview(data)) == (first, second)


def test_a_user_block_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w", userblock_size=512) as file:
        file["data"] = np.ones((4, 5), "f4")
    with pytest.raises(DataError, match="user block"):
        registry.create(DatasetConfig(format="hdf5", fields=[FieldConfig(shape=[5])]), 1).layout(tmp_path / "x.h5")


# --- moving bytes ---------------------------------------------------------------------------------


MOVERS: dict[str, Any] = {
    "native": NativeMover,
    "python": lambda: PythonMover("a test"),
    "io_uring": lambda: UringMover(4),
}
NAMES = [pytest.param(name, marks=needs_uring) if name == "io_uring" else name for name in MOVERS]


@pytest.fixture(params=NAMES)
def mover(request: pytest.FixtureRequest) -> Mover:
    made: Mover = MOVERS[request.param]()
    return made


@settings(max_examples=40, deadline=None)
@given(
    extents=st.lists(st.tuples(st.integers(0, 90), st.integers(0, 30)), max_size=12),
    together=st.booleans(),
    request_bytes=st.integers(1, 50),
)
@pytest.mark.parametrize("name", NAMES)
def test_movers_read_what_lies_there(
    name: str, extents: list[tuple[int, int]], together: bool, request_bytes: int, tmp_path_factory: Any
) -> None:
    content = bytes(range(120))
    path = tmp_path_factory.getbasetemp() / "extents"
    path.write_bytes(content)
    offsets, lengths = (np.array([p[i] for p in extents], np.int64) for i in (0, 1))
    if together:  # neighbours in the file, not in memory
        lengths = lengths // 4
        offsets = np.cumsum(lengths) - lengths
    memory = np.zeros(int(lengths.sum()) + 1, np.uint8)
    to = (np.cumsum(lengths[::-1]) - lengths[::-1])[::-1] + memory.__array_interface__["data"][0]
    with path.open("rb") as file:
        which = np.full(len(offsets), file.fileno(), np.int32)
        MOVERS[name]().read(which, offsets, lengths, np.ascontiguousarray(to), request_bytes)
    want = b"".join(content[o : o + n] for o, n in zip(offsets[::-1], lengths[::-1], strict=True))
    assert memory[:-1].tobytes() == want
    assert memory[-1] == 0


def test_movers_tell_which_piece_failed(mover: Mover, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(10))
    memory = np.zeros(40, np.uint8)
    to = memory.__array_interface__["data"][0] + np.array([0, 10, 20], np.int64)
    offsets, lengths = np.array([0, 6, 20], np.int64), np.array([3, 8, 4], np.int64)
    with (tmp_path / "x").open("rb") as file:
        which = np.full(3, file.fileno(), np.int32)
        with pytest.raises(ExtentError) as caught:
            mover.read(which, offsets, lengths, to, 1000)
        assert (caught.value.extent, caught.value.got, caught.value.errno) == (1, 4, None)
        which[0] = 1 << 20
        with pytest.raises(ExtentError) as caught:
            mover.read(which, offsets, lengths, to, 1000)
        assert (caught.value.extent, caught.value.errno) == (0, 9)


def test_movers_copy(mover: Mover) -> None:
    source, memory = np.arange(20, dtype=np.uint8), np.zeros(20, np.uint8)
    base, to = (array.__array_interface__["data"][0] for array in (source, memory))
    mover.copy(base + np.array([5, 0]), np.array([3, 2]), to + np.array([0, 10]))
    assert memory[:3].tolist() == [5, 6, 7]
    assert memory[10:12].tolist() == [0, 1]
    assert int(memory.sum()) == 19


def test_this_machine_has_the_native_one() -> None:
    assert open_mover().implementation.startswith("read_extents.c")


PROGRAM = """
import sys
import numpy as np
from dlio_torch.native.extents import NativeMover, PythonMover
mover = NativeMover() if sys.argv[1] == "native" else PythonMover("a test")
memory = np.zeros(10000, np.uint8)
base = memory.__array_interface__["data"][0]
with open("x", "rb", buffering=0) as file:
    offsets = np.array([0, 1000, 2000, 5000, 6000], np.int64)
    to = base + np.array([3000, 1000, 2000, 0, 7000], np.int64)
    mover.read(np.full(5, file.fileno(), np.int32), offsets, np.full(5, 1000, np.int64), to, 2500)
"""


@needs_strace
@pytest.mark.parametrize("name", ["native", "python"])
def test_neighbours_become_one_request_up_to_the_transfer_size(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "x").write_bytes(bytes(8000))
    calls = [call for call in straced(PROGRAM, folder, name)["x"] if call[0].startswith("p")]
    assert [result for _, _, result in calls] == [2500, 500, 2000]
    positions = [int(text.split(", ")[-2 if call == "preadv2" else -1]) for call, text, _ in calls]
    assert positions == [0, 2500, 5000]
