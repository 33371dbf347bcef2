"""Hostile and damaged data files: refused in one line that names them, without following them out of the data set."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from benchmarks.harm import data
from benchmarks.harm.child import SOUND, run_cases
from dlio_torch.config.schema import Config, DatasetConfig, FieldConfig
from dlio_torch.data.dataset.manifest import existing_manifest
from dlio_torch.errors import DataError
from dlio_torch.formats.core.codecs import inflated
from dlio_torch.formats.core.format import FileInfo
from dlio_torch.formats.core.probe import inspect_files
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.tfrecord.index import read_index

ROWS = np.arange(12, dtype=np.uint8).reshape(3, 4)
CASES = 5  # of each kind; `python -m benchmarks hostile` does more
CRASHES = ("adios2", "adios2, BP4")  # their library, which the benchmark shows


def samples_of(path: Path) -> int:
    options = DatasetConfig(format="hdf5", path=str(path), fields=[FieldConfig("a", "uint8", shape=[4])])
    return existing_manifest(Config(dataset=options), create(options, 1))[0].num_samples


def external_link(file: h5py.File) -> None:
    file["a"] = h5py.ExternalLink("other.h5", "/a")


def link_to_a_link(file: h5py.File) -> None:
    file["b"] = h5py.ExternalLink("other.h5", "/a")
    file["a"] = h5py.SoftLink("/b")


def link_to_itself(file: h5py.File) -> None:
    file["a"] = h5py.SoftLink("/b")
    file["b"] = h5py.SoftLink("/a")


def other_storage(file: h5py.File) -> None:
    file.create_dataset("a", (4, 4), "u1", external=[("/etc/passwd", 0, 16)])


def virtual(file: h5py.File) -> None:
    made = h5py.VirtualLayout((3, 4), "u1")
    made[:] = h5py.VirtualSource("other.h5", "a", shape=(3, 4))
    file.create_virtual_dataset("a", made)


def huge(file: h5py.File) -> None:
    file.create_dataset("a", (1 << 40, 4), "u1")


def huge_in_chunks(file: h5py.File) -> None:
    file.create_dataset("a", (1 << 40, 4), "u1", chunks=(1024, 4))


def huge_chunk(file: h5py.File) -> None:
    file.create_dataset("a", (4, 4), "u1", chunks=(1 << 29, 4), maxshape=(None, 4))


def unknown_filter(file: h5py.File) -> None:
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk((4, 4))
    properties.set_filter(32999, h5py.h5z.FLAG_OPTIONAL, (1,))
    array = h5py.h5d.create(file.id, b"a", h5py.h5t.NATIVE_UINT8, h5py.h5s.create_simple((1 << 36, 4)), properties)
    array.write_direct_chunk((0, 0), b"x" * 16)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (external_link, "link to another file"),
        (link_to_a_link, "link to another file"),
        (link_to_itself, "hdf5: |soft links|has no array"),
        (other_storage, "/etc/passwd"),
        (virtual, "is a virtual dataset of other files"),
        (huge, "more than a file of"),
        (huge_in_chunks, "more than a file of"),
        (huge_chunk, "a chunk of .* more than a file of"),
        (unknown_filter, "more than a file of"),
    ],
)
def test_arrays_that_lie_elsewhere_or_promise_too_much(
    spoil: Callable[[h5py.File], None], said: str, tmp_path: Path
) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["a"] = ROWS
    path = tmp_path / "data.h5"
    with h5py.File(path, "w") as file:
        spoil(file)
    with pytest.raises(DataError, match=said) as caught:
        samples_of(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_soft_link_within_the_file_is_followed(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["kept/here"] = ROWS
        file["b"] = h5py.SoftLink("kept/here")
        file["a"] = h5py.SoftLink("/b")
    assert samples_of(tmp_path / "data.h5") == 3


def crash(path: Path) -> FileInfo:
    if path.name == "bad":
        os.kill(os.getpid(), signal.SIGSEGV)
    return FileInfo(len(path.name), {})


def test_a_library_that_crashes_is_told_by_the_name_of_the_file() -> None:
    paths = [Path("/d/good"), Path("/d/bad"), Path("/d/good")]
    assert [info.num_samples for info in inspect_files(crash, paths[:1], apart=True)] == [4]
    with pytest.raises(DataError, match=r"^/d/bad: the library that reads the file crashed \(SIGSEGV\)"):
        inspect_files(crash, paths, apart=True)


def test_a_chunk_that_inflates_to_more_than_it_holds() -> None:
    import zlib

    bomb = zlib.compress(os.urandom(300_000), 0)  # stored, and large enough to become 300 MiB
    with pytest.raises(DataError, match=r"^x\.h5 decompresses to more than the expected 1000 bytes"):
        inflated(bomb, 1000, "x.h5")


def test_an_index_whose_sums_wrap(tmp_path: Path) -> None:
    most = (1 << 63) - 1
    (tmp_path / "x.idx").write_text(f"0 {most}\n{most} {most}\n-2 102\n")
    with pytest.raises(DataError, match="the records in the index are not adjacent"):
        read_index(tmp_path / "x")


def test_objects_of_numpy_are_never_loaded(tmp_path: Path) -> None:
    mark = tmp_path / "ran"

    class Bomb:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (mark,)

    np.save(tmp_path / "x.npy", np.array([Bomb()], dtype=object), allow_pickle=True)
    options = DatasetConfig(format="npy", path=str(tmp_path), fields=[FieldConfig("a", shape=[4])])
    with pytest.raises(DataError, match="pickled objects"):
        existing_manifest(Config(dataset=options), create(options, 1))
    assert not mark.exists()
    pickle.loads(pickle.dumps(Bomb()))
    assert mark.exists()  # it is live


def test_damaged_files_of_every_format_are_read_or_refused(tmp_path: Path) -> None:
    found, _ = data.targets(tmp_path, seed=3)
    assert len(found) > 20
    weak = [
        (name, one)
        for name, target in found.items()
        if name not in CRASHES
        for one in run_cases(range(CASES), target, seconds=300)
        if one.outcome not in SOUND
    ]
    assert not weak
