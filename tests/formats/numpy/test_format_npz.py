"""The format npz: layout as numpy.savez's, system calls as numpy.load's, and nothing is ever unpickled."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import statistics
import struct
import zipfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from straced import needs_strace, results, straced

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core.batch import Sample
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.numpy.options import NpzConfig
from dlio_torch.formats.testing.contract import SEED, FormatContract, check_batch, is_open, read, refusal, write

# Seven samples: with a wide spread their mean says nothing of the estimate that the contract checks.
SERIES = {"length_mean": 40, "length_stdev": 6}


def config(*fields: FieldConfig, samples_per_file: int = 1, **options: Any) -> DatasetConfig:
    return DatasetConfig(format="npz", samples_per_file=samples_per_file, fields=list(fields), npz=NpzConfig(**options))


def made(*fields: FieldConfig, samples_per_file: int = 1, **options: Any) -> Format:
    return create(config(*fields, samples_per_file=samples_per_file, **options), SEED)


SIGNALS = {**{f"signals_dict/s{number}": 1 for number in range(14)}, "signals_dict/p1": 64, "signals_dict/p2": 64}


def shot(mean: float = 40, stdev: float = 12, **options: Any) -> DatasetConfig:
    """FRNN's: members valid, is_disruptive, signals_dict (a dictionary of 14 scalars and two profiles), ttd."""
    lengths = {"length_mean": mean, "length_stdev": stdev}
    return config(
        FieldConfig("valid", "bool"),
        FieldConfig("is_disruptive", "bool"),
        *(FieldConfig(name, "float32", [channels], **lengths) for name, channels in SIGNALS.items()),
        FieldConfig("ttd", "float32", [], **lengths),
        pickled=["signals_dict"],
        **options,
    )


def plain_shot(**options: Any) -> DatasetConfig:
    """The same without a dictionary."""
    lengths = {"length_mean": 40.0, "length_stdev": 12.0}
    return config(
        FieldConfig("valid", "bool"),
        FieldConfig("is_disruptive", "bool"),
        FieldConfig("signals_dict", "float32", [140], **lengths),
        FieldConfig("ttd", "float32", [], **lengths),
        **options,
    )


def stored(sample: Sample) -> dict[str, Any]:
    """What the application stores of a shot."""
    signals = {name.removeprefix("signals_dict/"): array for name, array in sample.items() if "/" in name}
    flags = {name: sample[name] for name in ("valid", "is_disruptive")}
    return {**flags, "signals_dict": signals, "ttd": sample["ttd"]}


class TestContract(FormatContract):
    configs: ClassVar = {
        "fixed": config(FieldConfig("x", "float32", [33, 17]), FieldConfig("y", "int64", [])),
        "last": config(FieldConfig("x", "uint8", [60, 40]), FieldConfig("y", "int64", []), sample_axis="last"),
        "deflated": config(FieldConfig("x", "float64", [500]), compressed=True),
        "half_deflated": config(FieldConfig("x", "int16", [3000]), compressed=True, compressibility=0.5),
        "variable": config(FieldConfig("x", "float32", [30], **SERIES), FieldConfig("ttd", "float32", [], **SERIES)),
        "mixed": config(FieldConfig("group/valid", "bool"), FieldConfig("x", "float16", [90], **SERIES)),
    }


ONE_SAMPLE = {
    "fixed": config(FieldConfig("x", "float32", [33, 17]), FieldConfig("y", "int64", [])),
    "shot": shot(),
    "plain_shot": plain_shot(),
    "deflated_shot": shot(compressed=True),
    "small_buffer": shot(buffer_bytes=512),
    "large_buffer": shot(buffer_bytes=1 << 22),
}


@pytest.mark.parametrize("one", ONE_SAMPLE.values(), ids=list(ONE_SAMPLE))
def test_one_sample_a_file(one: DatasetConfig, tmp_path: Path) -> None:
    fmt = create(one, SEED)
    paths = [write(fmt, tmp_path / f"{sample}.npz", sample, 1) for sample in (3, 1 << 40)]
    for path, sample in zip(paths, (3, 1 << 40), strict=True):
        assert fmt.inspect(path).num_samples == 1
        assert abs(fmt.stored_bytes() / np.mean([p.stat().st_size for p in paths]) - 1) < 0.6
        with closing(fmt.open(path)) as reader:
            assert reader.num_samples == 1
            for _ in range(3):
                check_batch(fmt, read(fmt, reader, [0]), [sample])
                assert not is_open(path), "the application closes a file when it has its sample"
            for first, count in [(1, 1), (0, 2), (-1, 1)]:
                assert str(path) in refusal(lambda: reader.read(first, count, None, 0))  # noqa: B023
        reader = fmt.open(path)
        assert is_open(path)
        reader.close()
        assert not is_open(path)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("samples", [1, 5])
def test_numpy_reads_it(compressed: bool, samples: int, tmp_path: Path) -> None:
    fmt = create(replace(plain_shot(compressed=compressed), samples_per_file=samples), SEED)
    path = write(fmt, tmp_path / "a.npz", 0, samples)
    want = [fmt.expected(sample) for sample in range(samples)]
    with np.load(path) as found:
        for name in ("signals_dict", "ttd"):
            assert np.array_equal(found[name], np.concatenate([sample[name] for sample in want]))
        for name in ("valid", "is_disruptive"):
            flags = want[0][name] if samples == 1 else np.stack([sample[name] for sample in want])
            assert np.array_equal(found[name], flags)
            assert found[name].shape == flags.shape
        # The columns of one series have the same lengths.
        assert len(found["signals_dict"]) == len(found["ttd"])


def test_bytes_are_those_of_savez(tmp_path: Path) -> None:
    fmt = create(plain_shot(), SEED)
    path = write(fmt, tmp_path / "ours.npz", 0, 1)
    np.savez(tmp_path / "theirs.npz", **fmt.expected(0))
    assert path.read_bytes() == (tmp_path / "theirs.npz").read_bytes()
    fmt = create(shot(), SEED)
    path = write(fmt, tmp_path / "ours.npz", 0, 1)
    np.savez(tmp_path / "theirs.npz", **stored(fmt.expected(0)))
    assert path.read_bytes() == (tmp_path / "theirs.npz").read_bytes()


def test_samples_along_the_last_axis(tmp_path: Path) -> None:
    """The layout of the DLIO benchmark: x of shape (rows, columns, samples), y of shape (samples,)."""
    fields = FieldConfig("x", "uint8", [6, 4]), FieldConfig("y", "int64")
    fmt = made(*fields, samples_per_file=3, sample_axis="last")
    with np.load(write(fmt, tmp_path / "ours.npz", 0, 3)) as found:
        assert found["x"].shape == (6, 4, 3)
        assert np.array_equal(found["x"][..., 2], fmt.expected(2)["x"])
    records = np.random.default_rng(0).integers(255, size=(6, 4, 3), dtype=np.uint8)
    path = tmp_path / "theirs.npz"
    np.savez(path, x=records, y=[0] * 3)
    assert fmt.inspect(path).num_samples == 3
    with closing(fmt.open(path)) as reader:
        assert np.array_equal(read(fmt, reader, [1])["x"][0], records[..., 1])


# --- what is refused ---


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self._path),)


def both(fmt: Format, path: Path) -> list[str]:
    """The refusals of inspect and of open with read; each names the file."""

    def use() -> None:
        with closing(fmt.open(path)) as reader:
            read(fmt, reader, [0])

    lines = [refusal(lambda: fmt.inspect(path)), refusal(use)]
    assert all(str(path) in line for line in lines), lines
    assert not is_open(path)
    return lines


@pytest.mark.parametrize("samples", [1, 2])
def test_pickles_are_never_loaded(samples: int, tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    fmt = made(FieldConfig("x", "float32", [2]), samples_per_file=samples)
    members = {
        "object": np.array([Bomb(mark)], dtype=object),
        "scalar": np.array(Bomb(mark), dtype=object),
    }
    for name, array in members.items():
        path = tmp_path / f"{name}.npz"
        np.savez(path, x=array)
        assert all("pickle" in line for line in both(fmt, path))
    plain = tmp_path / "pickle.npz"
    plain.write_bytes(pickle.dumps(Bomb(mark)))
    both(fmt, plain)
    inside = tmp_path / "inside.npz"
    with zipfile.ZipFile(inside, "w") as archive:
        archive.writestr("x.npy", pickle.dumps(Bomb(mark)))
    both(fmt, inside)
    assert not mark.exists()
    with pytest.raises(FileExistsError):  # the bomb is live
        mark.mkdir() or pickle.loads(plain.read_bytes())


def npy(shape: Any, dtype: str = "<f4", content: bytes = b"\0" * 8) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue() + content


HOSTILE = {
    "huge": npy((1 << 60,)),
    "terabytes": npy((1 << 40,)),
    "overflow": npy((1 << 32, 1 << 32)),
    "negative": npy((-2,)),
    "short": npy((2,), content=b"\0" * 4),
    "no_array": b"hello",
    "version": b"\x93NUMPY\x09\x00" + npy((2,))[8:],
    "no_header": npy((2,))[:20],
    "code": b"\x93NUMPY\x01\x00" + struct.pack("<H", 40) + b"__import__('os').mkdir('executed')".ljust(40) + b"\0" * 8,
    "other_type": npy((2,), "<i4"),
    "other_order": npy((2,), ">f4"),
    "other_shape": npy((4,), "<f4", b"\0" * 16),
    "no_axis": npy((), "<f4", b"\0" * 4),
}


@pytest.mark.parametrize("member", HOSTILE.values(), ids=list(HOSTILE))
@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_hostile_members(member: bytes, samples: int, compression: int, tmp_path: Path) -> None:
    path = tmp_path / "hostile.npz"
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("x.npy", member)
    both(made(FieldConfig("x", "float32", [2]), samples_per_file=samples), path)


def test_sizes_that_lie(tmp_path: Path) -> None:
    """A central directory that promises more than the file holds."""
    fmt = made(FieldConfig("x", "float32", [], length_mean=100))
    path = write(fmt, tmp_path / "a.npz", 0, 1)
    data = bytearray(path.read_bytes())
    entry = data.rindex(b"PK\x01\x02")
    struct.pack_into("<II", data, entry + 20, 0xF0000000, 0xF0000000)
    path.write_bytes(data)
    both(fmt, path)
    struct.pack_into("<II", data, entry + 20, 500, 0xF0000000)
    path.write_bytes(data)
    assert all("claims" in line for line in both(fmt, path))


def test_flipped_bytes_are_noticed(tmp_path: Path) -> None:
    fmt = create(shot(), SEED)
    path = write(fmt, tmp_path / "a.npz", 0, 1)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with closing(fmt.open(path)) as reader:
        assert "CRC" in refusal(lambda: read(fmt, reader, [0]))


def test_lengths_that_do_not_fit(tmp_path: Path) -> None:
    fmt = made(FieldConfig("x", "float32", [], length_mean=5), samples_per_file=2)
    rows = np.zeros(7, np.float32)
    wrong: list[Any] = [[3, 3], [-1, 8], [3.0, 4.0], [[3, 4]], [7, 1 << 62], []]
    for number, lengths in enumerate(wrong):
        path = tmp_path / f"{number}.npz"
        np.savez(path, x=rows, x_lengths=np.array(lengths))
        assert all("x_lengths" in line for line in both(fmt, path)), lengths
    np.savez(tmp_path / "none.npz", x=rows)
    both(fmt, tmp_path / "none.npz")
    right = tmp_path / "right.npz"
    np.savez(right, x=rows, x_lengths=np.array([0, 7]))
    assert fmt.inspect(right).num_samples == 2


def test_archives_that_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.zeros((3, 2), np.float32), y=np.zeros(4, np.float32))
    x, y = FieldConfig("x", "float32", [2]), FieldConfig("y", "float32")
    assert all("hold different numbers of samples" in line for line in both(made(x, y, samples_per_file=3), path))
    assert all("its arrays are: x, y" in line for line in both(made(FieldConfig("z"), samples_per_file=3), path))
    assert all("samples_per_file" in line for line in both(made(x), path))
    with path.open("wb") as file:
        np.save(file, np.zeros((3, 2), np.float32))
    with pytest.raises(DataError, match=r"dataset\.format=npy"):
        made(x).open(path)


def test_configurations_that_cannot_be() -> None:
    series = FieldConfig("x", length_mean=4)
    wrong = {
        "sample_axis": config(series, samples_per_file=2, sample_axis="last"),
        "x_lengths": config(series, FieldConfig("x_lengths")),
        "select": config(FieldConfig("x", shape=[4], select=[0, 1])),
        "no field of dataset.fields lies in that dictionary": config(FieldConfig("x", shape=[4]), pickled=["d"]),
        "not stacked": config(FieldConfig("d/x", shape=[4]), pickled=["d"], samples_per_file=2),
    }
    for words, bad in wrong.items():
        with pytest.raises(ConfigError, match=words):
            create(bad, SEED)


def test_the_buffer_does_not_name_the_data_set() -> None:
    assert create(shot(), SEED).layout_options() == create(shot(buffer_bytes=4096), SEED).layout_options()
    assert create(shot(), SEED).layout_options() != create(shot(compressed=True), SEED).layout_options()
    assert json.dumps(create(shot(), SEED).layout_options())


# --- system calls ---

PROGRAM = """
import dataclasses, pickle, sys
import numpy as np
from pathlib import Path
from dlio_torch.formats.core.batch import BatchBuffer
fmt = pickle.loads(Path("format").read_bytes())
buffer = fmt.config.npz.buffer_bytes
for path in sorted(Path("ours").iterdir()):
    reader = fmt.open(path.resolve())
    reader.read(0, 1, BatchBuffer(fmt.specs(), [0]), 0)
    reader.close()
for path in sorted(Path("theirs").iterdir()):
    with open(path.resolve(), "rb", buffering=buffer or -1) as file:
        with np.load(file, encoding="latin1", allow_pickle=True) as shot:
            shot["valid"][()], shot["is_disruptive"][()], shot["signals_dict"][()], shot["ttd"]
"""


@needs_strace
@pytest.mark.parametrize("buffer_bytes", [1 << 22, 1 << 16, 0], ids=["lustre", "64 KiB", "here"])
def test_system_calls_are_those_of_frnn(buffer_bytes: int, tmp_path: Path) -> None:
    """Files of the published sizes: mean 3.69 MB, standard deviation 1.16 MB (572 bytes a row).

    The application, traced with a buffer of 4 MiB: mean 1,141,431 bytes, median 255, largest 4,194,304; the
    published run: 1,110,011, 255, 4,194,304.
    """
    fmt = create(shot(6440, 2028, buffer_bytes=buffer_bytes), SEED)
    folder = tmp_path / "shots"
    lustre = buffer_bytes == 1 << 22
    number = 24 if lustre else 3
    for name in ("ours", "theirs"):
        (folder / name).mkdir(parents=True)
    for sample in range(number):
        path = write(fmt, folder / "ours" / f"{sample:02}.npz", sample, 1)
        shutil.copyfile(path, folder / "theirs" / path.name)
    (folder / "format").write_bytes(pickle.dumps(fmt))
    calls = straced(PROGRAM, folder)
    reads: list[int] = []
    seeks = 0
    for sample in range(number):
        ours, theirs = calls[f"ours/{sample:02}.npz"], calls[f"theirs/{sample:02}.npz"]
        assert ours == theirs
        seeks += len(results(ours, "lseek"))
        got = results(ours, "read")
        reads += got
        if lustre:
            size = (folder / "ours" / f"{sample:02}.npz").stat().st_size
            head, rest = min(size, buffer_bytes), size - buffer_bytes
            assert got[:6] == [head, 22, 0, 42, 255, head]
            assert len(got) == (7 if rest > 0 else 6)
    assert 30 <= seeks / number <= 50  # "~40"
    if lustre:
        assert statistics.median(reads) == 255
        assert max(reads) == 4194304
        assert abs(statistics.mean(reads) / 1141431 - 1) < 0.1
        assert abs(statistics.mean(reads) / 1110011 - 1) < 0.1
