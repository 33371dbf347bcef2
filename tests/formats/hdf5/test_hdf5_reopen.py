"""``dataset.hdf5.reopen``: the system calls of a map-style dataset are those of the same class in plain h5py."""

from __future__ import annotations

import gc
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from straced import needs_strace, straced

from dlio_torch.config.compose import compose
from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core.batch import Batch, BatchBuffer
from dlio_torch.formats.hdf5.format import Hdf5Format
from dlio_torch.formats.hdf5.options import Hdf5Config
from dlio_torch.formats.testing.contract import is_open, read, write

FIELDS = [
    FieldConfig("images", "uint8", [64, 64, 3]),
    FieldConfig("labels", "int64"),
    FieldConfig("masks", "bool", [9]),
]
SAMPLES = 6
ORDER = [3, 4, 11, 0, 0, 7, 5, 1, 10]

# Three classes that users of h5py write; the first keeps arrays open, the second the file, the third nothing.
PROGRAM = """
import pickle, sys
import h5py, numpy as np
from pathlib import Path
from torch.utils.data import Dataset
from dlio_torch.data.dataset.file_counts import FileCounts
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.dataset.map_dataset import SampleDataset
from dlio_torch.iotrace.recorder.spans import NULL

NAMES = ("images", "labels", "masks")

class Plain(Dataset):
    def __init__(self, paths, each):
        self.paths, self.each, self.files = paths, each, {}
    def __getitem__(self, index):
        return self.read(self.paths[index // self.each], index % self.each)

class KeepsArrays(Plain):
    def read(self, path, i):
        if path not in self.files:
            file = h5py.File(path, "r")
            self.files[path] = file, [file[name] for name in NAMES]
        return [array[i] for array in self.files[path][1]]

class KeepsFile(Plain):
    def read(self, path, i):
        if path not in self.files:
            self.files[path] = h5py.File(path, "r")
        return [self.files[path][name][i] for name in NAMES]

class KeepsNothing(Plain):
    def read(self, path, i):
        with h5py.File(path, "r") as f:
            return [f[name][i] for name in NAMES]

samples, order = pickle.loads(Path("order").read_bytes())
here = Path.cwd().resolve()
for kind in sorted(here.glob("*-*/")):
    fmt = pickle.loads((kind / "format").read_bytes())
    plain = {"none": KeepsArrays, "array": KeepsFile, "file": KeepsNothing}[fmt.options.reopen]
    mine = Manifest("train", 0, FileCounts([samples], 2), kind, ["a.h5", "b.h5"], ".h5")
    dataset = SampleDataset(fmt, mine, NULL, max_open_files=2)
    oracle = plain([kind / "plain.a.h5", kind / "plain.b.h5"], samples)
    for index in order:
        batch, sample = dataset[index], oracle[index]
        for name, array in zip(NAMES, sample):
            assert np.array_equal(batch[name][0].numpy(), array), (kind, name)
"""
LAYOUTS: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "gzip": {"chunks": True, "compression": "gzip"},
}


def config(reopen: str, **options: Any) -> DatasetConfig:
    return DatasetConfig(format="hdf5", fields=FIELDS, hdf5=Hdf5Config(reopen=reopen, **options))


def arrays() -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    generator = np.random.default_rng(1)
    yield "images", generator.integers(0, 256, (SAMPLES, 64, 64, 3), np.uint8)
    yield "labels", generator.integers(0, 9, SAMPLES)
    yield "masks", generator.random((SAMPLES, 9)) > 0.5


@needs_strace
def test_the_calls_are_those_of_a_plain_dataset(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "order").write_bytes(pickle.dumps((SAMPLES, ORDER)))
    cache = int(h5py.h5p.create(h5py.h5p.FILE_ACCESS).get_cache()[2])
    for layout, options in LAYOUTS.items():
        for reopen in ("none", "array", "file"):
            kind = folder / f"{layout}-{reopen}"
            kind.mkdir()
            (kind / "format").write_bytes(pickle.dumps(Hdf5Format(config(reopen, chunk_cache_bytes=cache), 1)))
            for name in ("a.h5", "b.h5", "plain.a.h5", "plain.b.h5"):
                with h5py.File(kind / name, "w") as file:
                    for array, content in arrays():
                        file.create_dataset(array, data=content, **options)
    calls = straced(PROGRAM, folder)
    for kind in sorted(folder.glob("*-*")):
        for name in ("a.h5", "b.h5"):
            assert calls[f"{kind.name}/{name}"] == calls[f"{kind.name}/plain.{name}"], (kind.name, name)
        opened = sum(
            call[0] == "openat"
            for path, made in calls.items()
            if path.startswith(f"{kind.name}/plain")
            for call in made
        )
        assert opened == (len(ORDER) if kind.name.endswith("file") else 2)


def test_no_file_stays_open_between_samples(tmp_path: Path) -> None:
    fmt = Hdf5Format(config("file"), 1)
    path = write(fmt, tmp_path / "a.h5", 0, SAMPLES)
    reader = fmt.open(path)
    assert reader.num_samples == SAMPLES
    for sample in (2, 2, 5):
        read(fmt, reader, [sample])
        assert not is_open(path)
    with pytest.raises(DataError, match="rows 6 to 6"):
        reader.read(SAMPLES, 1, BatchBuffer(fmt.specs(), [0]), 0)
    assert not is_open(path)
    reader.close()
    with closing(fmt.open(path)):
        assert is_open(path)  # for the first sample, which it will be closed with
    assert not is_open(path)


def test_a_file_that_changes_between_samples_is_an_error(tmp_path: Path) -> None:
    fmt = Hdf5Format(config("file"), 1)
    path = write(fmt, tmp_path / "a.h5", 0, SAMPLES)
    reader = fmt.open(path)
    read(fmt, reader, [0])
    write(fmt, path, 0, SAMPLES - 1)
    with pytest.raises(DataError, match="different numbers of samples"):
        read(fmt, reader, [0])
    os.unlink(path)
    with pytest.raises(DataError, match=r"a\.h5 does not exist"):
        read(fmt, reader, [0])


def changed(path: Path, reopen: str, change: Callable[[h5py.File], None]) -> Batch:
    """The first sample of a file that was read, then changed, and is read again."""
    fmt = Hdf5Format(config(reopen), 1)
    write(fmt, path, 0, SAMPLES)
    with closing(fmt.open(path)) as reader:
        for _ in range(3):
            before = read(fmt, reader, [0])
        assert before["images"].any()
        with h5py.File(path, "r+") as file:
            change(file)
        return read(fmt, reader, [0])


def test_an_array_of_another_type_or_place_is_refused_when_it_is_opened_again(tmp_path: Path) -> None:
    def retype(file: h5py.File) -> None:
        del file["labels"]
        file["labels"] = np.zeros(SAMPLES, "complex64")

    def move(file: h5py.File) -> None:
        file.move("labels", "numbers")
        file["labels"] = h5py.ExternalLink("other.h5", "labels")

    def store_elsewhere(file: h5py.File) -> None:
        del file["labels"]
        file.create_dataset("labels", (SAMPLES,), "int64", external=[("other.bin", 0, h5py.h5f.UNLIMITED)])

    def remove(file: h5py.File) -> None:
        del file["labels"]

    for change, message in (
        (retype, "holds complex64"),
        (move, "a link to another file"),
        (store_elsewhere, "external file"),
        (remove, "has no array 'labels'"),
    ):
        with pytest.raises(DataError, match=message):
            changed(tmp_path / f"{change.__name__}.h5", "file", change)


def test_an_array_that_was_stored_again_is_read_when_it_is_opened_again(tmp_path: Path) -> None:
    def compress(file: h5py.File) -> None:
        del file["images"]
        images = np.full((SAMPLES, *FIELDS[0].shape), 7, np.uint8)
        file.create_dataset("images", data=images, chunks=True, compression="gzip")

    def link(file: h5py.File) -> None:
        del file["images"]
        file["folder/images"] = np.full((SAMPLES, *FIELDS[0].shape), 7, np.uint8)
        file["images"] = h5py.SoftLink("/folder/images")

    for change in (compress, link):
        assert (changed(tmp_path / f"{change.__name__}.h5", "file", change)["images"] == 7).all()


def test_no_array_stays_open_between_samples(tmp_path: Path) -> None:
    fmt = Hdf5Format(config("array"), 1)
    with closing(fmt.open(write(fmt, tmp_path / "a.h5", 0, SAMPLES))) as reader:
        gc.collect()  # files of other tests
        before = h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_DATASET)
        for sample in (2, 2, 5):
            read(fmt, reader, [sample])
            assert h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_DATASET) == before


@pytest.mark.parametrize("reopen", ["none", "array", "file"])
def test_the_data_set_is_the_same(reopen: str) -> None:
    assert Hdf5Format(config(reopen), 1).layout_options() == Hdf5Format(config("none"), 1).layout_options()


def test_the_old_key_names_the_new_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        compose(["recipe=minimal", "dataset.hdf5.open_arrays=each_read"], cwd=tmp_path)
    assert str(caught.value) == (
        "dataset.hdf5.open_arrays=each_read (command line): unknown option; it is now dataset.hdf5.reopen "
        "(none for with_file, array for each_read)"
    )


def test_mpi_io_opens_a_file_once(tmp_path: Path) -> None:
    arguments = ["recipe=minimal", "dataset=hdf5", "access.io=independent"]
    with pytest.raises(ConfigError, match=r"dataset\.hdf5\.reopen=file .* open each file once"):
        compose([*arguments, "dataset.hdf5.reopen=file"], cwd=tmp_path)
    compose([*arguments, "dataset.hdf5.reopen=array"], cwd=tmp_path)


def test_runs_of_samples_open_the_file_once(tmp_path: Path) -> None:
    fmt = Hdf5Format(replace(config("file"), fields=FIELDS[:1]), 1)
    path = write(fmt, tmp_path / "a.h5", 0, SAMPLES)
    reader = fmt.open(path)
    buffer = BatchBuffer(fmt.specs(), range(4))
    reader.read(1, 4, buffer, 0)
    assert [array.tobytes() for array in buffer.fixed["images"]] == [
        fmt.expected(sample)["images"].tobytes() for sample in range(1, 5)
    ]
    assert not is_open(path)
