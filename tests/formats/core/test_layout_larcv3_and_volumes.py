"""Layout of larcv3 files, of volumes, and of samples without files: the bytes that the faithful reader gives."""

from __future__ import annotations

import math
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from data_files import config_of, make
from decoupled_data import faithful, good_and_bad, watched
from hypothesis import given, settings
from hypothesis import strategies as st

from dlio_torch.config.schema import DatasetConfig, FieldConfig, LoaderConfig
from dlio_torch.data.dataset.file_counts import FileCounts
from dlio_torch.data.dataset.manifest import Manifest, generated_manifests
from dlio_torch.data.engines.batch_loader import BatchLoader
from dlio_torch.data.engines.decoupled.batch_groups import DecoupledSource
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import SamplerSpec
from dlio_torch.errors import DataError
from dlio_torch.formats.core import registry
from dlio_torch.formats.core.batch import Batch
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.core.layout import Chunks, Extents
from dlio_torch.formats.hdf5_volume.layout import Patches
from dlio_torch.formats.hdf5_volume.options import VolumeArrayConfig, VolumeConfig
from dlio_torch.formats.larcv3.options import Larcv3Config, ProducerConfig
from dlio_torch.iotrace.recorder.spans import NULL

PRODUCERS = [ProducerConfig("label", "label", 2742, 175), ProducerConfig("wire", "charge", 6641, 124)]
EVENTS = Larcv3Config(producers=PRODUCERS, images=2, image_shape=[64, 40], voxels_mean=60, voxels_stdev=20)
VOLUMES = VolumeConfig(
    shape=[14, 12, 15],
    patch=[5, 6, 9],
    arrays=[
        VolumeArrayConfig("stack", "int64", [4, 7, 8], 0.1),
        VolumeArrayConfig("raw", "uint8", [14, 12, 4], 0.8),
        VolumeArrayConfig("whole", "uint16", [14, 12, 15], 0.5),
    ],
)
DATA: dict[str, dict[str, Any]] = {
    "larcv3": {"format": "larcv3", "larcv3": EVENTS},
    "larcv3, small chunks": {
        "format": "larcv3",
        "larcv3": replace(EVENTS, voxels_chunk=17, table_chunk=2, extents_chunk=3, merge_events=2, cold_events=1),
    },
    "volumes": {"format": "hdf5_volume", "volume": VOLUMES},
    "synthetic": {"format": "synthetic", "fields": [FieldConfig("a", shape=[5, 6]), FieldConfig("b", "int16")]},
}
IN_FILES = [name for name in DATA if name != "synthetic"]

Made = tuple[Format, Manifest]


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Made]:
    """Each data set, three files of seven samples."""
    made = {}
    for name, dataset in DATA.items():
        config = config_of(tmp_path_factory.mktemp("data"), **dataset)
        fmt = registry.create(config.dataset, config.seed, layout=True)
        made[name] = (fmt, make(config, fmt)[1] if fmt.needs_files else generated_manifests(config, fmt))
    return {name: (fmt, manifests["train"]) for name, (fmt, manifests) in made.items()}


def loader_of(fmt: Format, manifest: Manifest, sampler: BatchSampler, **options: Any) -> BatchLoader:
    config = LoaderConfig(**{"engine": "decoupled", "timeout_s": 60.0, **options})
    return BatchLoader(config, DecoupledSource(fmt, manifest, NULL), sampler)


def assert_same(want: list[Batch], got: list[Batch]) -> None:
    assert len(want) == len(got)
    for one, other in zip(want, got, strict=True):
        assert list(one) == list(other)
        for name, tensor in one.items():
            assert (tensor.dtype, tensor.shape) == (other[name].dtype, other[name].shape), name
            assert tensor.numpy().tobytes() == other[name].numpy().tobytes(), name


@pytest.mark.parametrize("options", [{}, {"transfer_size": 100, "prefetch_bytes": 1, "read_threads": 1}], ids=str)
@pytest.mark.parametrize("order", ["shuffled", "random_blocks"])
@pytest.mark.parametrize("name", DATA)
def test_gives_the_bytes_of_the_library(name: str, order: str, options: dict[str, Any], sets: dict[str, Made]) -> None:
    fmt, manifest = sets[name]
    sampler = BatchSampler(
        SamplerSpec(batch_size=4, order=order, seed=3, rank=1, world_size=2), num_samples=manifest.num_samples
    )
    got = loader_of(fmt, manifest, sampler, **options)
    for epoch in range(2):
        assert_same(list(faithful(fmt, manifest, sampler).epoch(epoch)), list(got.epoch(epoch)))
    got.close()


def test_worker_processes_give_them_too(sets: dict[str, Made]) -> None:
    fmt, manifest = sets["volumes"]
    sampler = BatchSampler(SamplerSpec(batch_size=3), num_samples=21)
    got = loader_of(fmt, manifest, sampler, num_workers=2, multiprocessing_context="fork")
    want = list(faithful(fmt, manifest, sampler).epoch(0))
    assert_same(want, [{key: tensor.clone() for key, tensor in batch.items()} for batch in got.epoch(0)])
    got.close()


# --- volumes -----------------------------------------------------------------------------------------


class ListedCenters:
    """Coordinates without a file."""

    path = Path("list")

    def __init__(self, centers: list[list[int]]) -> None:
        self._centers = np.array(centers, np.int64).reshape(-1, 3)

    def coordinates(self, rows: Any) -> Any:
        return self._centers[rows]


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_patches_of_any_shape_out_of_chunks_of_any_shape(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shape = data.draw(st.lists(st.integers(1, 7), min_size=3, max_size=3))
    chunk, patch = ([data.draw(st.integers(1, length)) for length in shape] for _ in range(2))
    chunked = data.draw(st.booleans())
    starts = [
        [data.draw(st.integers(0, a - b)) for a, b in zip(shape, patch, strict=True)]
        for _ in range(data.draw(st.integers(1, 3)))
    ]
    centers = ListedCenters([[s + p // 2 for s, p in zip(start, patch, strict=True)] for start in starts])
    content = np.random.default_rng(1).integers(0, 30000, shape, np.int16)
    path = tmp_path_factory.getbasetemp() / "volume.h5"
    with h5py.File(path, "w") as file:
        array = file.create_dataset("x", data=content, chunks=tuple(chunk) if chunked else None)
        layout = Patches(array, path, patch, centers)  # type: ignore[arg-type]
    rows, size = np.arange(len(starts)), math.prod(patch) * content.itemsize
    assert layout.sizes(rows).tolist() == [size] * len(starts)
    want = [content[tuple(slice(a, a + n) for a, n in zip(start, patch, strict=True))].tobytes() for start in starts]
    got = filled(path.read_bytes(), layout.plan(rows, rows * size), size * len(starts))
    assert got == b"".join(want)


def filled(file: bytes, plan: Extents | Chunks | Any, size: int) -> bytes:
    """Memory after a plan for the bytes of a file, whose chunks are stored as they are."""
    memory = bytearray(size)
    if isinstance(plan, Chunks):
        assert len(set(plan.offsets.tolist())) == len(plan.offsets)
        assert (np.diff(plan.chunk) >= 0).all()
        sources = plan.offsets[plan.chunk] + plan.source
    else:
        sources = plan.offsets
    for source, length, to in zip(sources.tolist(), plan.lengths.tolist(), plan.to.tolist(), strict=True):
        assert length > 0
        memory[to : to + length] = file[source : source + length]
    assert int(plan.lengths.sum()) == size
    return bytes(memory)


def volume_set(root: Path, samples: int, **options: Any) -> Made:
    """One list of coordinates and its volumes."""
    volume = replace(VOLUMES, **options)
    config = config_of(root, num_files=1, samples_per_file=samples, format="hdf5_volume", volume=volume)
    fmt, manifests = make(config)
    return fmt, manifests["train"]


def test_a_chunk_that_several_patches_of_a_batch_touch_is_read_once(tmp_path: Path) -> None:
    fmt, manifest = volume_set(tmp_path, 8, arrays=[VolumeArrayConfig("whole", "uint16", [14, 12, 15], 0.5)])
    with h5py.File(f"{manifest.path(0)}.whole.h5") as file:
        stored = file["whole"].id.get_storage_size()
    engine, mover = watched(
        fmt, manifest, BatchSampler(SamplerSpec(batch_size=4), num_samples=8), prefetch_bytes=1, read_threads=1
    )
    assert len(list(engine.start(0, 0))) == 2
    engine.close()
    assert (mover.reads, mover.read_bytes) == (2, 2 * stored)


@pytest.mark.parametrize("chunks", [None, (4, 5, 6)], ids=str)
def test_volumes_of_others_that_are_stored_as_they_are(chunks: tuple[int, ...] | None, tmp_path: Path) -> None:
    fmt, manifest = volume_set(tmp_path, 60)
    for array in VOLUMES.arrays:
        path = Path(f"{manifest.path(0)}.{array.name}.h5")
        with h5py.File(path) as file:
            content = file[array.name][:]
        with h5py.File(path, "w") as file:
            file.create_dataset(array.name, data=content, chunks=chunks)
    sampler = BatchSampler(SamplerSpec(batch_size=2, order="shuffled", seed=1), num_samples=60)
    got = loader_of(fmt, manifest, sampler, prefetch_bytes=1)
    for epoch in range(2):
        assert_same(list(faithful(fmt, manifest, sampler).epoch(epoch)), list(got.epoch(epoch)))
    got.close()


def test_a_patch_outside_of_the_volume_is_named(tmp_path: Path) -> None:
    fmt, manifest = volume_set(tmp_path, 4)
    larger = registry.create(replace(fmt.config, volume=replace(VOLUMES, patch=[14, 12, 15])), fmt.seed)
    loader = loader_of(larger, manifest, BatchSampler(SamplerSpec(batch_size=4), num_samples=4))
    assert "not inside the volume" in good_and_bad(loader)[1][0]
    loader.close()


def test_a_list_is_read_as_far_as_its_coordinates_are_needed(tmp_path: Path) -> None:
    fmt, manifest = volume_set(tmp_path, 4000)
    victim = manifest.path(0)
    os.truncate(victim, victim.stat().st_size - 2000)
    layout = fmt.layout(victim).arrays["center"]
    first = np.arange(4)
    assert len(layout.plan(first, first * 24).to) == 4
    with pytest.raises(DataError, match=victim.name):
        layout.plan(first + 3990, first * 24)


def test_a_list_that_is_too_short_is_named(tmp_path: Path) -> None:
    fmt, manifest = volume_set(tmp_path, 8)
    longer = Manifest("train", 0, FileCounts([12]), manifest.path(0).parent, [manifest.path(0).name], fmt.suffix)
    loader = loader_of(fmt, longer, BatchSampler(SamplerSpec(batch_size=4), num_samples=12))
    good, bad = good_and_bad(loader)
    loader.close()
    assert (good, len(bad)) == (8, 1)
    assert "holds 8 coordinates" in bad[0]


# --- larcv3 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("extents", "first", 9),
        ("extents", "N", 9999),
        ("voxel_extents", "first", 1 << 60),
        ("voxel_extents", "N", 9999),
    ],
)
def test_tables_that_point_nowhere_are_told(
    table: str, column: str, value: int, sets: dict[str, Made], tmp_path: Path
) -> None:
    fmt, manifest = sets["larcv3"]
    path = tmp_path / "x.h5"
    shutil.copy(manifest.path(0), path)
    with h5py.File(path, "r+") as file:
        rows = file[f"Data/wire_group/{table}"]
        content = rows[:]
        content[column][-1] = content["first"][-1] + value if column == "first" else value
        rows[:] = content
    alone = Manifest("train", 0, FileCounts([7]), tmp_path, ["x.h5"], ".h5")
    loader = loader_of(fmt, alone, BatchSampler(SamplerSpec(batch_size=1), num_samples=7))
    good, bad = good_and_bad(loader)
    loader.close()
    assert good == 6
    assert len(bad) == 1
    assert "wire_group" in bad[0]
    assert "\n" not in bad[0]


# --- damage ------------------------------------------------------------------------------------------


@pytest.fixture
def copied(request: pytest.FixtureRequest, sets: dict[str, Made], tmp_path: Path) -> Made:
    """A data set whose files a test may damage."""
    fmt, manifest = sets[request.param]
    shutil.copytree(manifest.path(0).parent, tmp_path / "train")
    names = [manifest.path(number).name for number in range(manifest.num_files)]
    return fmt, Manifest("train", 0, FileCounts([7], 3), tmp_path / "train", names, fmt.suffix)


def outcome(fmt: Format, manifest: Manifest) -> list[str]:
    loader = loader_of(fmt, manifest, BatchSampler(SamplerSpec(batch_size=7), num_samples=21))
    found = good_and_bad(loader)[1]
    loader.close()
    return found


@pytest.mark.parametrize("copied", IN_FILES, indirect=True)
def test_damage_is_told_in_one_line_and_costs_the_batches_of_its_file(copied: Made) -> None:
    fmt, manifest = copied
    assert outcome(fmt, manifest) == []
    rng, told = random.Random(4), 0
    for path in fmt.files(manifest.path(0)):
        sound = path.read_bytes()
        for _ in range(12):
            bad = bytearray(sound)
            bad[rng.randrange(min(len(bad), 3000))] ^= 1 << rng.randrange(8)
            path.write_bytes(bad)
            found = outcome(fmt, manifest)
            assert len(found) <= 1
            assert all("\n" not in line for line in found)
            told += bool(found)
        path.write_bytes(sound[:-70])
        found = outcome(fmt, manifest)
        assert len(found) == 1
        assert path.name in found[0]
        path.write_bytes(sound)
    assert told


def test_more_synthetic_samples_than_there_are_are_refused(tmp_path: Path) -> None:
    config = DatasetConfig(samples_per_file=7, **DATA["synthetic"])
    layout = registry.create(config, 1).layout(tmp_path / "nothing").arrays["a"]
    with pytest.raises(DataError, match="7 samples"):
        layout.plan(np.array([3, 7]), np.array([0, 120]))
