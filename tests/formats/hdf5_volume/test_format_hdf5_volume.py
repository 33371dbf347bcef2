"""Patches out of volumes: the contract, what lies in the files, hostile files, and the calls of a reader."""

from __future__ import annotations

import gzip
import math
import os
import pickle
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import h5py
import numpy as np
import pytest
from data_files import make
from strace import OPENS, READS, need_strace, trace
from straced import needs_strace, results, straced

from dlio_torch.config.compose import compose
from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.core.inspection import inspect_path
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.hdf5_volume.coordinates import records
from dlio_torch.formats.hdf5_volume.format import Hdf5VolumeFormat
from dlio_torch.formats.hdf5_volume.options import VolumeArrayConfig, VolumeConfig
from dlio_torch.formats.testing.contract import SEED, FormatContract, check_batch, is_open, read, refusal, write

STACK = VolumeArrayConfig("stack", "int64", [9, 16, 16], 0.1)
RAW = VolumeArrayConfig("raw", "uint8", [16, 16, 24], 0.8)
BOTH = VolumeConfig(shape=[50, 48, 60], patch=[9, 12, 7], arrays=[STACK, RAW])
FFN = [
    VolumeArrayConfig("stack", "int64", [17, 33, 33], 0.0199),
    VolumeArrayConfig("raw", "uint8", [33, 33, 65], 0.816),
]


def config(volume: VolumeConfig = BOTH, **options: Any) -> DatasetConfig:
    return DatasetConfig(format="hdf5_volume", volume=replace(volume, **options))


def made(tmp_path: Path, samples: int = 7, volume: VolumeConfig = BOTH) -> tuple[Format, Path]:
    fmt = create(replace(config(volume), samples_per_file=samples), SEED)
    return fmt, write(fmt, tmp_path / "list.tfrecord.gz", 0, samples)


class TestContract(FormatContract):
    configs: ClassVar[Mapping[str, DatasetConfig]] = {
        "two": config(),
        "one": config(arrays=[RAW]),
        "other_order": config(arrays=[RAW, STACK]),
        "hard_deflated": config(compression_level=9),
        "whole_volume": config(patch=[50, 48, 60]),
        "spread": config(arrays=[replace(STACK, stored_share_stdev=0.05), replace(RAW, stored_share_stdev=0.3)]),
        "small_cache": config(chunk_cache_bytes=0),
        "types": config(
            arrays=[
                VolumeArrayConfig(name, name, [20, 20, 20], share)
                for name, share in [("int8", 0.5), ("uint16", 0.3), ("int32", 0.05), ("uint64", 0.02)]
            ]
        ),
    }


# --- what is written ------------------------------------------------------------------------------------


@pytest.mark.parametrize("array", [*FFN, RAW, VolumeArrayConfig("raw", "uint16", [32, 32, 32], 0.5)], ids=str)
@pytest.mark.parametrize("level", [1, 4])
def test_chunks_are_stored_in_the_wanted_size(array: VolumeArrayConfig, level: int, tmp_path: Path) -> None:
    shape = [2 * edge - 3 for edge in array.chunk]
    fmt, path = made(
        tmp_path, volume=VolumeConfig(shape=shape, patch=[3, 3, 3], arrays=[array], compression_level=level)
    )
    with h5py.File(f"{path}.{array.name}.h5", "r") as file:
        stored = file[array.name]
        assert stored.shape == tuple(shape)
        assert stored.chunks == tuple(array.chunk)
        assert (stored.compression, stored.compression_opts) == ("gzip", level)
        assert not stored.shuffle
        chunks = [stored.id.get_chunk_info(number) for number in range(stored.id.get_num_chunks())]
        assert len(chunks) == 8
        assert [chunk.byte_offset for chunk in chunks] == sorted(chunk.byte_offset for chunk in chunks)
        size = math.prod(array.chunk) * np.dtype(array.dtype).itemsize
        for chunk in chunks:
            assert chunk.size / size == pytest.approx(array.stored_share, rel=0.05)
    details = fmt.inspect(path).details[array.name]
    assert details["chunks"] == tuple(array.chunk)


def test_stored_sizes_spread_as_asked_for(tmp_path: Path) -> None:
    spread = VolumeArrayConfig("stack", "int64", [9, 16, 16], 0.1, stored_share_stdev=0.03)
    _, path = made(tmp_path, volume=VolumeConfig(shape=[90, 80, 80], patch=[3, 3, 3], arrays=[spread]))
    with h5py.File(f"{path}.stack.h5", "r") as file:
        stored = file["stack"].id
        sizes = [stored.get_chunk_info(number).size for number in range(stored.get_num_chunks())]
    shares = np.array(sizes) / (9 * 16 * 16 * 8)
    assert len(shares) == 250
    assert shares.mean() == pytest.approx(0.1, rel=0.05)
    assert shares.std() == pytest.approx(0.03, rel=0.15)


def test_other_readers_see_the_same_volumes(tmp_path: Path) -> None:
    fmt, path = made(tmp_path)
    values: dict[str, set[int]] = {array.name: set() for array in BOTH.arrays}
    for sample in range(7):
        want = fmt.expected(sample)
        z, y, x = (int(c) - edge // 2 for c, edge in zip(want["center"], BOTH.patch, strict=True))
        for array in BOTH.arrays:
            with h5py.File(f"{path}.{array.name}.h5", "r") as file:
                patch = file[array.name][z : z + 9, y : y + 12, x : x + 7]
            assert patch.dtype == array.dtype
            assert np.array_equal(patch, want[array.name])
            values[array.name].update(patch.ravel().tolist())
    assert all(len(found) > 20 for found in values.values())


def test_coordinates_reach_every_voxel_where_a_patch_fits() -> None:
    centers = Hdf5VolumeFormat(config(), SEED).centers(0, 2000)
    assert centers.min(axis=0).tolist() == [4, 6, 3]
    assert centers.max(axis=0).tolist() == [4 + 41, 6 + 36, 3 + 53]
    assert np.all(np.abs(centers.mean(axis=0) - [24.5, 24, 29.5]) < 2)


def test_evaluation_reads_other_patches_of_the_same_volumes(tmp_path: Path) -> None:
    fmt, path = made(tmp_path)
    other = write(fmt, tmp_path / "eval.tfrecord.gz", 1 << 40, 7)
    assert path.read_bytes() != other.read_bytes()
    for array in BOTH.arrays:
        one, two = (Path(f"{name}.{array.name}.h5").read_bytes() for name in (path, other))
        assert one == two


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [50, 48, 61]},
        {"patch": [9, 12, 8]},
        {"compression_level": 5},
        {"arrays": [RAW]},
        {"arrays": [STACK, replace(RAW, stored_share=0.7)]},
        {"arrays": [STACK, replace(RAW, chunk=[16, 16, 16])]},
        {"arrays": [STACK, replace(RAW, dtype="int8")]},
        {"arrays": [STACK, replace(RAW, stored_share_stdev=0.1)]},
    ],
)
def test_what_changes_bytes_changes_the_identity(change: dict[str, Any]) -> None:
    assert create(config(**change), 1).layout_options() != create(config(), 1).layout_options()


def test_what_belongs_to_reading_leaves_the_identity_alone() -> None:
    other = replace(config(chunk_cache_bytes=5), fields=[FieldConfig("unused")])
    assert create(other, 1).layout_options() == create(config(), 1).layout_options()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"arrays": []}, "arrays is empty"),
        ({"shape": [50, 48]}, "does not fit into dataset.volume.shape=[50, 48]"),
        ({"patch": [51, 1, 1]}, "patch=[51, 1, 1] does not fit"),
        ({"patch": [0, 1, 1]}, "patch=[0, 1, 1] does not fit"),
        ({"arrays": [RAW, RAW]}, "name='raw' is used twice"),
        ({"arrays": [replace(RAW, name="center")]}, "name='center' is used twice"),
        ({"arrays": [replace(RAW, name="a/b")]}, "name='a/b'"),
        ({"arrays": [replace(RAW, name="")]}, "name=''"),
        ({"arrays": [replace(RAW, dtype="float32")]}, "raw: dtype='float32' is not an integer type"),
        ({"arrays": [replace(RAW, dtype="uint7")]}, "raw: dtype='uint7' is not an integer type"),
        ({"arrays": [replace(RAW, chunk=[16, 16])]}, "raw: chunk=[16, 16] does not fit"),
        ({"arrays": [replace(RAW, chunk=[16, 16, 0])]}, "raw: chunk=[16, 16, 0] does not fit"),
        ({"arrays": [replace(RAW, chunk=[16, 16, 61])]}, "raw: chunk=[16, 16, 61] does not fit"),
        ({"arrays": [replace(RAW, stored_share=1.5)]}, "stored_share=1.5 is above 1"),
    ],
)
def test_configurations_that_cannot_be(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        create(config(**change), SEED)
    assert words in str(caught.value)
    assert "dataset.volume" in str(caught.value)


# --- files that are not as they should be ---------------------------------------------------------------


def both(fmt: Format, path: Path) -> list[str]:
    """What inspect, and opening with one read, say; nothing stays open."""

    def use() -> None:
        with closing(fmt.open(path)) as reader:
            read(fmt, reader, [0])

    lines = [refusal(lambda: fmt.inspect(path)), refusal(use)]
    assert not any(is_open(other) for other in path.parent.iterdir())
    return lines


def test_a_missing_volume_is_named(tmp_path: Path) -> None:
    fmt, path = made(tmp_path)
    for array in reversed(BOTH.arrays):
        volume = Path(f"{path}.{array.name}.h5")
        volume.unlink()
        assert all(line.startswith(f"{volume} does not exist; generate the data") for line in both(fmt, path))


def cut(volume: Path) -> None:
    with volume.open("r+b") as file:
        file.truncate(volume.stat().st_size // 2)


def rename(volume: Path) -> None:
    with h5py.File(volume, "r+") as file:
        file.move("raw", "image")


def group(volume: Path) -> None:
    with h5py.File(volume, "w") as file:
        file.create_group("raw")


def replace_with(shape: tuple[int, ...], dtype: str) -> Callable[[Path], None]:
    def write_other(volume: Path) -> None:
        with h5py.File(volume, "w") as file:
            file.create_dataset("raw", shape, dtype)

    return write_other


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda volume: volume.write_bytes(b""), "cannot be read"),
        (lambda volume: volume.write_bytes(b"no HDF5 at all" * 99), "cannot be read"),
        (cut, "cannot be read"),
        (rename, "raw is not an array of this file, which contains: image"),
        (group, "raw is not an array"),
        (replace_with((50, 48, 59), "uint8"), "raw is uint8[50, 48, 59], but dataset.volume expects uint8[50, 48, 60]"),
        (replace_with((50, 48, 60), "int8"), "raw is int8[50, 48, 60]"),
        (replace_with((50, 48), "uint8"), "raw is uint8[50, 48]"),
        (replace_with((), "uint8"), "raw is uint8[]"),
    ],
)
def test_a_volume_that_does_not_fit(spoil: Callable[[Path], Any], words: str, tmp_path: Path) -> None:
    fmt, path = made(tmp_path)
    volume = Path(f"{path}.raw.h5")
    spoil(volume)
    for line in both(fmt, path):
        assert str(volume) in line
        assert words in line


def test_a_damaged_chunk_is_an_error_of_its_patches_alone(tmp_path: Path) -> None:
    fmt, path = made(tmp_path, samples=30)
    center = fmt.expected(0)["center"]
    with h5py.File(f"{path}.raw.h5", "r") as file:
        chunk = file["raw"].id.get_chunk_info_by_coord(
            tuple(int(c) // e * e for c, e in zip(center, RAW.chunk, strict=True))
        )
    with Path(f"{path}.raw.h5").open("r+b") as raw:
        raw.seek(chunk.byte_offset)
        raw.write(b"\xff" * chunk.size)
    fmt.inspect(path)

    def touches(sample: int) -> bool:
        low = fmt.expected(sample)["center"] - np.array(BOTH.patch) // 2
        high = low + BOTH.patch
        start = np.array(chunk.chunk_offset)
        return bool(np.all(low < start + RAW.chunk) and np.all(high > start))

    good = [sample for sample in range(30) if not touches(sample)]
    assert 5 < len(good) < 30
    with closing(fmt.open(path)) as reader:
        line = refusal(lambda: read(fmt, reader, [0]))
        assert f"{path}.raw.h5: the patch at " in line
        assert "of raw cannot be read" in line
        check_batch(fmt, read(fmt, reader, good), good)


@pytest.mark.parametrize("center", [(3, 20, 20), (46, 20, 20), (-5, 20, 20), (20, 20, 1 << 62)])
def test_a_coordinate_outside_is_named(center: tuple[int, ...], tmp_path: Path) -> None:
    fmt, path = made(tmp_path)
    path.write_bytes(gzip.compress(b"".join(map(bytes, records([np.array(center)])))))
    with closing(fmt.open(path)) as reader:
        line = refusal(lambda: read(fmt, reader, [0]))
    assert f"{path}: the patch around coordinate number 0, {center}, is not inside the volume" in line


def test_a_list_that_ends_early_says_how_much_it_holds(tmp_path: Path) -> None:
    fmt, path = made(tmp_path)
    with closing(fmt.open(path)) as reader:
        assert "holds 7 coordinates, but number 7 (from 0) was requested" in refusal(lambda: read(fmt, reader, [7]))
        assert "number -1 (from 0) was requested" in refusal(lambda: read(fmt, reader, [-1]))
        check_batch(fmt, read(fmt, reader, [6]), [6])
    path.write_bytes(gzip.compress(b""))
    assert all("holds no coordinates" in line for line in both(fmt, path))


def test_a_list_of_other_records_is_told(tmp_path: Path) -> None:
    fmt, path = made(tmp_path)
    other = create(DatasetConfig(format="tfrecord", fields=[FieldConfig("x", "float32", [4])]), SEED)
    path.write_bytes(gzip.compress(write(other, tmp_path / "other", 0, 3).read_bytes()))
    assert all(f"{path}: record 0" in line and "center" in line for line in both(fmt, path))


# --- system calls ---------------------------------------------------------------------------------------

PROGRAM = """
import pickle, sys
from pathlib import Path
from dlio_torch.formats.core.batch import BatchBuffer
fmt = pickle.loads(Path("format").read_bytes())
reader = fmt.open(Path("list.tfrecord.gz").resolve())
for row in map(int, sys.argv[1].split(",")):
    reader.read(row, 1, BatchBuffer(fmt.specs(), [row]), 0)
"""
SAMPLES = 70_000  # of eight bytes, so that the list takes several transfers
BUFFER = 262_144


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Format, Path]:
    folder = tmp_path_factory.mktemp("large") / "files"
    folder.mkdir()
    fmt, path = made(folder, SAMPLES)
    (folder / "format").write_bytes(pickle.dumps(fmt))
    assert path.stat().st_size > 2 * BUFFER
    return fmt, path


@needs_strace
def test_the_list_is_read_by_the_buffer_and_only_as_far_as_needed(large: tuple[Format, Path]) -> None:
    _, path = large
    size = path.stat().st_size
    for rows, want in [("0,1,2,500,20000", 1), ("0,40000,40001,5", 2)]:
        calls = straced(PROGRAM, path.parent, rows)[path.name]
        assert [name for name, _, _ in calls if name in ("read", "readv", "preadv", "lseek")] == []
        assert results(calls, "pread64") == [BUFFER] * want
    # The last transfer is short, and is followed by one for the rest.
    calls = straced(PROGRAM, path.parent, str(SAMPLES - 1))[path.name]
    whole, rest = divmod(size, BUFFER)
    assert results(calls, "pread64")[: whole + 1] == [BUFFER] * whole + [rest]


@needs_strace
def test_of_the_volumes_whole_chunks_are_read_the_label_first(large: tuple[Format, Path], tmp_path: Path) -> None:
    fmt, path = large
    log = path.parent.parent / f"{path.parent.name}.strace"
    rows = [0, 1, 2]
    calls = straced(PROGRAM, path.parent, ",".join(map(str, rows)))
    # Which file is read when, over both.
    order = [
        name
        for line in log.read_text().splitlines()
        if "pread64(" in line
        for name in ("stack", "raw")
        if f"{path.name}.{name}.h5>" in line
    ]
    for array in BOTH.arrays:
        name = f"{path.name}.{array.name}.h5"
        with h5py.File(path.parent / name, "r") as file:
            stored = file[array.name].id
            chunks = {
                (info.byte_offset, info.size): info.chunk_offset
                for info in (stored.get_chunk_info(i) for i in range(stored.get_num_chunks()))
            }
        made_calls = [(args, result) for call, args, result in calls[name] if call == "pread64"]
        got = [(int(args.split(", ")[-1]), result) for args, result in made_calls]
        read_chunks = [chunks[call] for call in got if call in chunks]
        # Those that the patches touch, each patch's in the order of their place, none twice within a patch.
        cache: list[tuple[int, ...]] = []
        for row in rows:
            low = fmt.expected(row)["center"] - np.array(BOTH.patch) // 2
            touched = [
                at
                for at in sorted(chunks.values())
                if np.all(np.array(at) + array.chunk > low) and np.all(np.array(at) < low + BOTH.patch)
            ]
            cache += [at for at in touched if at not in cache]
        assert read_chunks == cache
        # What is left are headers and nodes of the index, and no byte of data.
        starts = {offset for offset, _ in chunks}
        assert all(offset not in starts and size < 4096 for offset, size in got if (offset, size) not in chunks)
    # Past the opening: all of a patch's label chunks before its image chunks.
    turns = [name for i, name in enumerate(order) if i == 0 or order[i - 1] != name]
    assert turns == ["stack", "raw"] * (len(turns) // 2)
    assert 2 <= len(turns) // 2 <= 1 + len(rows)


@needs_strace
def test_opening_reads_no_index_of_chunks(large: tuple[Format, Path]) -> None:
    _, path = large
    program = PROGRAM.split("for row", maxsplit=1)[0]
    calls = straced(program, path.parent)
    for array in BOTH.arrays:
        with h5py.File(f"{path}.{array.name}.h5", "r") as file:
            nodes = file[array.name].id.get_num_chunks() * 8
        got = results(calls[f"{path.name}.{array.name}.h5"], "pread64", "read")
        assert sum(got) < 4096 + nodes
        assert 2096 not in got  # a node of the B-tree


THREADS = """
import sys
from pathlib import Path
from dlio_torch.config.compose import compose
from dlio_torch.data.dataset.manifest import generated_manifests
from dlio_torch.data.engines.assemble import assemble
from dlio_torch.data.order.planning import plan_order
from dlio_torch.formats.core.inspection import inspect_path
from dlio_torch.formats.core.registry import create
from dlio_torch.iotrace.recorder.spans import NULL
config = compose(sys.argv[1:]).config
fmt = create(config.dataset, config.seed)
manifests = generated_manifests(config, fmt)
loaders = assemble(config, fmt, manifests, plan_order(config, fmt, manifests, 0, 1), NULL)
batches = loaders.train.epoch(0)
for batch in batches:
    batches.read_on()
loaders.close()
"""


def test_threads_share_the_list_and_the_volumes(tmp_path: Path) -> None:
    """As in FFN: the main thread opens each volume once, the reading threads share one reader of coordinates."""
    need_strace()
    arguments = [
        "recipe=ffn",
        f"dataset.root={tmp_path}/data",
        "scale=tiny",
        "dataset.samples_per_file=60",
        "dataset.volume.shape=[70,70,70]",
        "dataset.volume.patch=[9,9,9]",
        "train.batch_size=6",
        "train.steps=0",
        "access.hold_steps=1",
        "loader.read_threads=3",
        "checkpoint=none",
    ]
    composed = compose(arguments).config
    fmt, manifests = make(composed)
    path = manifests["train"].path(0)
    calls = trace([sys.executable, "-c", THREADS, *arguments], tmp_path / "log", cwd=tmp_path, env=os.environ)
    for file in fmt.files(path):
        opens = [call.tid for call in calls if call.name in OPENS and call.path == str(file) and call.result >= 0]
        readers = {call.tid for call in calls if call.name in READS and call.path == str(file)}
        assert len(opens) == 1, file
        if file == path:
            assert opens[0] != calls[0].tid  # whichever thread asks first for a coordinate
            assert sum(call.name in READS and call.path == str(file) and call.result > 0 for call in calls) == 1
        else:
            assert opens[0] == calls[0].tid
            assert len(readers - {calls[0].tid}) > 1


# --- description ------------------------------------------------------------------------------------


def test_a_list_with_its_volumes_is_described_up_to_the_patch(tmp_path: Path) -> None:
    _, path = made(tmp_path)
    inspection = inspect_path(str(path))
    assert inspection.format == "hdf5_volume"
    (question,) = inspection.description.questions
    assert question.problem == "neither the list of coordinates nor the volumes state the shape of a patch"
    assert question.setting == "dataset.volume.patch=[49,48,49]"
    assert [array.compression for array in inspection.description.arrays] == ["gzip", "gzip"]
    found = compose([f"dataset.path={path}", "dataset.volume.patch=[9,12,7]", "train.batch_size=2"]).config
    volume = found.dataset.of(VolumeConfig)
    assert volume.shape == BOTH.shape
    assert [(array.name, array.dtype, array.chunk) for array in volume.arrays] == [
        (array.name, array.dtype, array.chunk) for array in (RAW, STACK)
    ]
    assert create(found.dataset, 1).inspect(path).num_samples == 7


def test_volumes_that_do_not_fit_are_named(tmp_path: Path) -> None:
    _, path = made(tmp_path)
    volume = tmp_path / "list.tfrecord.gz.raw.h5"
    for content, words in ((np.zeros((2, 3, 4), "f4"), "holds float32"), (np.zeros((2, 3, 4), "u1"), "has shape")):
        with h5py.File(volume, "w") as file:
            file["raw"] = content
        with pytest.raises(DataError, match=words):
            inspect_path(str(path))
    with h5py.File(volume, "w") as file:
        file["other"] = np.zeros(3)
    with pytest.raises(DataError, match="has no array 'raw'"):
        inspect_path(str(path))
