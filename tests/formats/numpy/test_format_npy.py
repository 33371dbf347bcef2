"""The format npy: files as numpy.save's, one for each field, system calls as numpy.load's."""

from __future__ import annotations

import pickle
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from straced import needs_strace, results, straced

from dlio_torch.config.schema import Config, DatasetConfig, FieldConfig
from dlio_torch.data.dataset.manifest import existing_manifest
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.numpy.options import NpzConfig
from dlio_torch.formats.testing.contract import SEED, FormatContract, check_batch, is_open, read, refusal, write

VOXELS = {"length_mean": 20, "length_stdev": 6}


def config(*fields: FieldConfig, samples_per_file: int = 1, **options: Any) -> DatasetConfig:
    return DatasetConfig(format="npy", samples_per_file=samples_per_file, fields=list(fields), npz=NpzConfig(**options))


def case(**options: Any) -> DatasetConfig:
    """MLPerf unet3d's: an image and its mask, of one size."""
    return config(
        FieldConfig("x", "float32", [32, 32], **VOXELS), FieldConfig("y", "uint8", [32, 32], **VOXELS), **options
    )


class TestContract(FormatContract):
    configs: ClassVar = {
        "one": config(FieldConfig("x", "float32", [33, 17])),
        "scalar": config(FieldConfig("x", "float64", [])),
        "suffixes": config(FieldConfig("x", "int16"), FieldConfig("y"), field_suffixes=["-img", "-seg"]),
        "several": config(FieldConfig("x", "int16", [300]), FieldConfig("y", "bool", [9]), FieldConfig("z", "float16")),
    }

    # The estimate is for all files of a sample; the contract looks at one.
    def test_stored_bytes_are_estimated(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt = self.make(config)
        self.written(fmt, tmp_path)
        size = sum(path.stat().st_size for path in tmp_path.iterdir())
        assert fmt.stored_bytes() * self.num_samples == size


def both(fmt: Format, path: Path) -> list[str]:
    """The refusals of inspect and of open with read; each names the file."""

    def use() -> None:
        with closing(fmt.open(path)) as reader:
            read(fmt, reader, [0])

    lines = [refusal(lambda: fmt.inspect(path)), refusal(use)]
    assert all(str(path) in line for line in lines), lines
    assert not is_open(path)
    return lines


def test_one_sample_a_file(tmp_path: Path) -> None:
    fmt = create(case(), SEED)
    assert fmt.suffix == "_x.npy"
    path = write(fmt, tmp_path / "case_00000_x.npy", 5, 1)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["case_00000_x.npy", "case_00000_y.npy"]
    want = fmt.expected(5)
    assert np.array_equal(np.load(path), want["x"])
    assert np.array_equal(np.load(tmp_path / "case_00000_y.npy"), want["y"])
    assert len(want["x"]) == len(want["y"])
    assert fmt.inspect(path).num_samples == 1
    with closing(fmt.open(path)) as reader:
        for _ in range(3):
            check_batch(fmt, read(fmt, reader, [0]), [5])
            assert not is_open(path)
        assert str(path) in refusal(lambda: reader.read(1, 1, None, 0))
    reader = fmt.open(path)
    assert is_open(path)
    reader.close()
    assert not is_open(path)


def test_bytes_are_those_of_save(tmp_path: Path) -> None:
    for samples in (1, 3):
        fmt = create(config(FieldConfig("x", "float32", [3]), samples_per_file=samples), SEED)
        path = write(fmt, tmp_path / "ours.npy", 0, samples)
        want = [fmt.expected(sample)["x"] for sample in range(samples)]
        np.save(tmp_path / "theirs.npy", np.stack(want) if samples > 1 else want[0])
        assert path.read_bytes() == (tmp_path / "theirs.npy").read_bytes()


def test_companions_of_a_temporary_name(tmp_path: Path) -> None:
    """The generator gives a finished file its name; what belongs to it has its own by then."""
    fmt = create(case(), SEED)
    part = tmp_path / ".train_0000003_x.npy.4711.part"
    write(fmt, part, 3, 1)
    assert sorted(p.name for p in tmp_path.iterdir()) == [part.name, "train_0000003_y.npy"]
    path = part.rename(tmp_path / "train_0000003_x.npy")
    with closing(fmt.open(path)) as reader:
        check_batch(fmt, read(fmt, reader, [0]), [3])


def test_an_existing_folder(tmp_path: Path) -> None:
    """Only the first field's files are samples."""
    fmt = create(case(), SEED)
    for sample in range(3):
        write(fmt, tmp_path / f"case_{sample:05}_x.npy", sample, 1)
    manifest, details = existing_manifest(Config(dataset=DatasetConfig(format="npy", path=str(tmp_path))), fmt)
    assert manifest.num_files == manifest.num_samples == 3
    assert list(details) == ["x", "y"]


def test_survives_pickling_with_its_suffix() -> None:
    assert pickle.loads(pickle.dumps(create(case(), SEED))).suffix == "_x.npy"
    assert create(config(FieldConfig("x")), SEED).suffix == ".npy"


def test_a_missing_or_wrong_companion(tmp_path: Path) -> None:
    fmt = create(case(), SEED)
    path = write(fmt, tmp_path / "a_x.npy", 0, 1)
    other = tmp_path / "a_y.npy"
    np.save(other, np.zeros((20, 32, 32), np.float32))
    assert all("a_y.npy" in line for line in both(fmt, path))
    other.unlink()
    assert all("another array of the same samples" in line and "a_y.npy" in line for line in both(fmt, path))


@pytest.mark.parametrize("samples", [1, 2])
def test_hostile_files(samples: int, tmp_path: Path) -> None:
    fmt = create(config(FieldConfig("x", "float32", [2]), samples_per_file=samples), SEED)
    path = tmp_path / "a.npy"

    def header(shape: Any, dtype: str = "<f4", fortran_order: bool = False) -> None:
        with path.open("wb") as file:
            described = {"descr": dtype, "fortran_order": fortran_order, "shape": shape}
            np.lib.format.write_array_header_1_0(file, described)
            file.write(b"\0" * 16)

    for shape in [(1 << 60,), (1 << 40,), (1 << 32, 1 << 32), (-4,), (-2, -2), (8,), (3,), ()]:
        header(shape)
        both(fmt, path)
    for dtype in ("<i4", ">f4", "<f8"):
        header((2, 2) if samples > 1 else (4,), dtype)
        both(fmt, path)
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    assert all("pickle" in line for line in both(fmt, path))
    path.write_bytes(pickle.dumps([1.0, 2.0]))
    both(fmt, path)
    with path.open("wb") as file:
        np.savez(file, x=np.zeros((2, 2), np.float32))
    with pytest.raises(DataError, match=r"dataset\.format=npz"), closing(fmt.open(path)) as reader:
        read(fmt, reader, [0])


@pytest.mark.parametrize(
    ("suffixes", "words"),
    [
        (["_a"], "names 1 files, but dataset.fields has 2"),
        (["_a", ""], "cannot end a file name"),
        (["_a", "b/c"], "cannot end a file name"),
        (["_img", "img"], "is the end of another suffix"),
        (["_a", "_a"], "is the end of another suffix"),
    ],
)
def test_suffixes_that_cannot_tell_files_apart(suffixes: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        create(config(FieldConfig("x"), FieldConfig("y"), field_suffixes=suffixes), SEED)


def test_configurations_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="samples_in_file=one"):
        create(config(FieldConfig("x"), samples_per_file=2, samples_in_file="one"), SEED)
    with pytest.raises(ConfigError, match="length"):
        create(config(FieldConfig("x", length_mean=4), samples_per_file=2), SEED)
    with pytest.raises(ConfigError, match="slash"):
        create(config(FieldConfig("group/x")), SEED)


PROGRAM = """
import pickle
import numpy as np
from pathlib import Path
from dlio_torch.formats.core.batch import BatchBuffer
fmt = pickle.loads(Path("format").read_bytes())
for path in sorted(Path("ours").glob("*_x.npy")):
    reader = fmt.open(path.resolve())
    for _ in range(2):  # the application opens a file for each use
        reader.read(0, 1, BatchBuffer(fmt.specs(), [0]), 0)
    reader.close()
for path in sorted(Path("theirs").glob("*_x.npy")):
    for _ in range(2):
        for name in (path, path.with_name(path.name.replace("_x", "_y"))):
            with open(name.resolve(), "rb", buffering=fmt.config.npz.buffer_bytes or -1) as file:
                np.load(file)
"""


@needs_strace
@pytest.mark.parametrize("buffer_bytes", [1 << 22, 0], ids=["lustre", "here"])
def test_system_calls_are_those_of_load(buffer_bytes: int, tmp_path: Path) -> None:
    fields = [
        FieldConfig("x", "float32", [128, 128], length_mean=40, length_stdev=12),
        FieldConfig("y", "uint8", [128, 128], length_mean=40, length_stdev=12),
    ]
    ends = ["_x", "_y"] if buffer_bytes else []  # the names of the fields give the same
    fmt = create(config(*fields, buffer_bytes=buffer_bytes, field_suffixes=ends), SEED)
    folder = tmp_path / "cases"
    (folder / "ours").mkdir(parents=True)
    for sample in range(2):
        write(fmt, folder / "ours" / f"case_{sample}_x.npy", sample, 1)
    shutil.copytree(folder / "ours", folder / "theirs")
    (folder / "format").write_bytes(pickle.dumps(fmt))
    calls = straced(PROGRAM, folder)
    names = [f"case_{sample}_{field}.npy" for sample in range(2) for field in "xy"]
    for name in names:
        ours = calls[f"ours/{name}"]
        assert ours == calls[f"theirs/{name}"]
        size = (folder / "ours" / name).stat().st_size
        got = results(ours, "read")
        # The header through Python's buffer, then the elements past it, as the C library reads them.
        assert got[0] == min(size, buffer_bytes or (folder / "ours").stat().st_blksize)
        assert len(results(ours, "openat")) == 2
        assert sum(got) >= 2 * size
    assert len([path for path in calls if path.startswith("ours/")]) == 4
