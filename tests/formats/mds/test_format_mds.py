"""The format mds: shards as MosaicML Streaming's, with the system calls of its reader."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import struct
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optional_parts import streaming_python
from straced import needs_strace, straced

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core.batch import ArraySpec, BatchBuffer, samples_of
from dlio_torch.formats.core.inspection import inspect_path
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.mds.encodings import encoding_of, parsed, prefix_bytes, prefix_sizes, shape_prefix
from dlio_torch.formats.testing.contract import SEED, FormatContract, read, refusal, write

GOLDEN = Path(__file__).with_name("golden")
"""Folder that MDSWriter of mosaicml-streaming 0.13.0 wrote; see ``GOLDEN_PROGRAM``."""
GOLDEN_PROGRAM = """
import sys
import numpy as np
from streaming import MDSWriter
columns = {"id": "int", "label": "uint8", "tokens": "ndarray:int32", "image": "ndarray:uint8:2,3", "text": "str",
           "raw": "bytes", "meta": "json", "object": "pkl", "any": "ndarray"}
with MDSWriter(out=sys.argv[1], columns=columns, size_limit=700) as writer:
    for i in range(7):
        writer.write({"id": -i, "label": np.uint8(200 + i),
                      "tokens": np.arange(i + 1 if i != 5 else 70, dtype=np.int32) * 1000,
                      "image": np.full((2, 3), i, np.uint8), "text": "\\u00e9" * i, "raw": bytes(range(i)),
                      "meta": {"n": i}, "object": (i, "x"), "any": np.zeros(2, np.float32)})
"""
FIELDS = [
    FieldConfig("label", "int64", []),
    FieldConfig("image", "float32", [16, 12]),
    FieldConfig("class", "uint8", []),
    FieldConfig("half", "float16", [33]),
    FieldConfig("tokens", "int32", [], length_mean=270, length_stdev=60),
    FieldConfig("points", "float64", [3], length_mean=30, length_stdev=10),
    FieldConfig("jpeg", "uint8", [], length_mean=900, length_stdev=200),
]


def config(*fields: FieldConfig) -> DatasetConfig:
    return DatasetConfig(format="mds", fields=list(fields))


class TestContract(FormatContract):
    configs: ClassVar[Mapping[str, DatasetConfig]] = {
        "fixed": config(*FIELDS[:4]),
        "one_variable": config(FIELDS[0], FIELDS[6]),
        "ragged": config(FIELDS[4]),
        "all": config(*FIELDS),
    }


class TestGolden:
    def test_samples_of_the_library(self) -> None:
        inspection = inspect_path(str(GOLDEN))
        assert inspection.format == "mds"
        assert inspection.description.samples == 7
        fields = inspection.description.fields
        assert [(f.name, f.dtype, f.shape, f.length_mean > 0) for f in fields] == [
            ("id", "int64", [], False),
            ("image", "uint8", [2, 3], False),
            ("label", "uint8", [], False),
            ("meta", "uint8", [], True),
            ("object", "uint8", [], True),
            ("raw", "uint8", [], True),
            ("text", "uint8", [], True),
            ("tokens", "int32", [], True),
        ]
        notes = {array.name: array.note for array in inspection.description.arrays if array.note}
        assert notes == {"any": "encoding ndarray has no fixed element type"}
        assert any("never unpickled" in note for note in inspection.description.notes)
        fmt = create(config(*fields), SEED)
        number = 0
        for path in sorted(GOLDEN.glob("*.mds")):
            with closing(fmt.open(path)) as reader:
                assert reader.num_samples == fmt.inspect(path).num_samples == fmt.layout(path).num_samples
                batch = read(fmt, reader, range(reader.num_samples or 0))
            for _, sample in samples_of(batch, fmt.specs()):
                self.check(sample, number)
                number += 1
        assert number == 7

    def check(self, sample: dict[str, Any], i: int) -> None:
        assert sample["id"] == -i
        assert sample["label"] == 200 + i
        assert np.array_equal(sample["image"], np.full((2, 3), i))
        assert np.array_equal(sample["tokens"], np.arange(i + 1 if i != 5 else 70) * 1000)
        assert sample["text"].tobytes().decode() == "é" * i
        assert sample["raw"].tobytes() == bytes(range(i))
        assert json.loads(sample["meta"].tobytes()) == {"n": i}

    @pytest.mark.needs("streaming")
    def test_the_library_still_writes_them(self, tmp_path: Path) -> None:
        run_library(GOLDEN_PROGRAM, str(tmp_path / "out"))
        for path in sorted(GOLDEN.iterdir()):
            assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()

    def test_a_shard_without_its_index(self, tmp_path: Path) -> None:
        shutil.copy(GOLDEN / "shard.00001.mds", tmp_path)
        inspection = inspect_path(str(tmp_path / "shard.00001.mds"))
        fmt = create(config(*inspection.description.fields), SEED)
        with closing(fmt.open(tmp_path / "shard.00001.mds")) as reader:
            assert reader.num_samples == inspection.description.samples == 2


def run_library(program: str, *args: str) -> str:
    import subprocess

    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [streaming_python() or "", "-c", program, *args], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


THEIRS = """
import sys
from streaming import LocalDataset
data = LocalDataset(sys.argv[1])
for i in map(int, sys.argv[2:]):
    data[i]
"""
PLAIN = """
import numpy as np
for i in [2, 0, 1]:
    with open("train_0000000.mds", "rb", 0) as file:
        file.seek((1 + i) * 4)
        begin, end = np.frombuffer(file.read(8), np.uint32)
        file.seek(begin)
        file.read(end - begin)
"""
OURS = """
from pathlib import Path
from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.formats.core.batch import BatchBuffer
from dlio_torch.formats.core.registry import create
fields = [FieldConfig("x", "float32", [5000]), FieldConfig("n", "uint8", [], length_mean=90, length_stdev=30)]
fmt = create(DatasetConfig(format="mds", fields=fields), 1)
reader = fmt.open(Path("train_0000000.mds"))
buffer = BatchBuffer(fmt.specs(), range(3))
for position, row in enumerate([2, 0, 1]):
    reader.read(row, 1, buffer, position)
"""
TRACED = [FieldConfig("x", "float32", [5000]), FieldConfig("n", "uint8", [], length_mean=90, length_stdev=30)]


def traced_folder(tmp_path: Path) -> Path:
    """A folder with one shard of 7 samples and its index."""
    fmt = create(config(*TRACED), 1)
    folder = tmp_path / "data"
    folder.mkdir()
    write(fmt, folder / "train_0000000.mds", 0, 7)
    fmt.index_folder(folder, ["train_0000000.mds"])
    return folder


@needs_strace
def test_the_calls_are_those_of_its_reader(tmp_path: Path) -> None:
    folder = traced_folder(tmp_path)
    want = straced(PLAIN, folder)
    got = straced(OURS, folder)
    assert got["train_0000000.mds"] == want["train_0000000.mds"]
    assert [name for name, _, _ in want["train_0000000.mds"]] == 3 * [
        "openat", "lseek", "read", "lseek", "read", "close",
    ]  # fmt: skip
    assert [name for name, _, _ in got["index.json"]].count("openat") == 1  # as the library reads it


@needs_strace
@pytest.mark.needs("streaming")
def test_the_calls_are_the_library_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = traced_folder(tmp_path)
    ours = straced(OURS, folder)["train_0000000.mds"]
    monkeypatch.setattr("sys.executable", streaming_python())
    monkeypatch.delenv("PYTHONPATH", raising=False)
    theirs = straced(THEIRS, folder, ".", "2", "0", "1")
    assert relative(theirs["train_0000000.mds"]) == relative(ours)


def relative(calls: list[tuple[str, str, int]]) -> list[tuple[str, int]]:
    """Names and results: the library opens a relative path."""
    return [(name, result) for name, _, result in calls]


@pytest.mark.needs("streaming")
def test_the_library_reads_ours(tmp_path: Path) -> None:
    fmt = create(config(*FIELDS), SEED)
    for number, (first, count) in enumerate([(0, 3), (3, 4)]):
        write(fmt, tmp_path / f"train_{number}.mds", first, count)
    fmt.index_folder(tmp_path, ["train_0.mds", "train_1.mds"])
    program = """
import sys, zlib
import numpy as np
from streaming import LocalDataset, StreamingDataset
for data in (LocalDataset(sys.argv[1]), StreamingDataset(local=sys.argv[1], batch_size=1, shuffle=False)):
    for i in range(len(data)):
        for name, value in sorted(data[i].items()):
            print(name, zlib.crc32(value if isinstance(value, bytes) else np.asarray(value).tobytes()))
"""
    import zlib

    want = [
        f"{name} {zlib.crc32(array.tobytes())}"
        for sample in range(7)
        for name, array in sorted(fmt.expected(sample).items())
    ]
    assert run_library(program, str(tmp_path)).split("\n")[:-1] == 2 * want


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 70_000),
    shape=st.lists(st.integers(1, 300), max_size=2),
    dtype=st.sampled_from(["uint8", "int16", "float64"]),
)
def test_a_ragged_array_s_size_tells_its_shape(rows: int, shape: list[int], dtype: str) -> None:
    spec = ArraySpec("a", np.dtype(dtype), tuple(shape), variable=True)
    prefix = shape_prefix(spec, rows)
    elements = rows * int(np.prod(shape, dtype=np.int64)) * spec.dtype.itemsize
    assert prefix_bytes(spec, np.array([len(prefix) + elements])).tolist() == [len(prefix)]
    assert prefix_sizes(spec, np.array([rows])).tolist() == [len(prefix)]


def test_encodings() -> None:
    for name, kind, size in (
        ("int", "number", 8),
        ("float16", "number", 2),
        ("ndarray:uint16:3,4", "array", 24),
        ("ndarray:uint16", "ragged", None),
        ("jpeg:90", "bytes", None),
        ("str", "bytes", None),
        ("ndarray", "other", None),
        ("ndarray:bool:3", "other", None),
        ("ndarray:uint8:0", "other", None),
        ("something:else", "other", None),
    ):
        assert (parsed(name).kind, parsed(name).size) == (kind, size), name
    assert encoding_of(ArraySpec("a", np.dtype(bool), ())) == ""


def test_options_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no encoding for dtype=bool"):
        create(config(FieldConfig("flags", "bool", [3])), SEED)
    fmt = create(config(FieldConfig("large", "float64", [1 << 24])), SEED)
    with pytest.raises(ConfigError, match="its offsets reach"):
        write(fmt, tmp_path / "a.mds", 0, 40)


def test_the_index_is_written_for_new_shards_only(tmp_path: Path) -> None:
    fmt = create(config(FIELDS[0]), SEED)
    names = ["a.mds", "b.mds"]
    for name in names:
        write(fmt, tmp_path / name, 0, 3)
    fmt.index_folder(tmp_path, names)
    first = (tmp_path / "index.json").stat()
    fmt.index_folder(tmp_path, names)
    assert (tmp_path / "index.json").stat().st_ino == first.st_ino
    write(fmt, tmp_path / "b.mds", 0, 5)
    os.utime(tmp_path / "b.mds", ns=(first.st_mtime_ns + 1, first.st_mtime_ns + 1))
    fmt.index_folder(tmp_path, names)
    assert [entry["samples"] for entry in json.loads((tmp_path / "index.json").read_text())["shards"]] == [3, 5]


def damaged(tmp_path: Path, offset: int, content: bytes) -> Path:
    """A copy of a golden shard with other bytes at an offset, without its index."""
    path = tmp_path / "a.mds"
    shutil.copy(GOLDEN / "shard.00000.mds", path)
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)
    return path


def test_damage_is_named(tmp_path: Path) -> None:
    fmt = create(config(FieldConfig("id", "int64", []), FieldConfig("tokens", "int32", [], length_mean=3)), SEED)
    begin = struct.unpack("<I", (GOLDEN / "shard.00000.mds").read_bytes()[4:8])[0]
    for offset, content, words in (
        (0, b"\xff\xff\xff\xff", "does not begin with the offsets"),
        (8, b"\1\0\0\0", "do not fit the file's"),
        (20, b"[", "does not describe its columns"),
        (begin, b"\xff\xff", "its columns need"),
    ):
        path = damaged(tmp_path, offset, content)

        def use(path: Path = path) -> None:
            fmt.inspect(path)
            with closing(fmt.open(path)) as reader:
                read(fmt, reader, [0])

        line = refusal(use)
        assert words in line
        assert str(path) in line
        with pytest.raises(DataError):
            fmt.layout(path)


def test_fields_that_do_not_fit() -> None:
    for field, words in (
        (FieldConfig("x", "int64", []), "has no column 'x'"),
        (FieldConfig("id", "int32", []), "column id is stored as int"),
        (FieldConfig("image", "uint8", [3, 2]), "column image is stored as ndarray:uint8:2,3"),
        (FieldConfig("tokens", "int32", [4]), "column tokens is stored as ndarray:int32"),
        (FieldConfig("tokens", "int32", [2], length_mean=3), "no array with 2 axes"),
    ):
        fmt = create(config(field), SEED)
        path = GOLDEN / "shard.00000.mds"

        def use(fmt: Any = fmt, path: Path = path) -> None:
            with closing(fmt.open(path)) as reader:
                reader.read(0, 1, BatchBuffer(fmt.specs(), [0]), 0)

        assert words in refusal(use)


def test_an_index_that_does_not_fit(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    shutil.copytree(GOLDEN, folder)
    fmt = create(config(FieldConfig("id", "int64", [])), SEED)
    os.truncate(folder / "shard.00000.mds", 600)
    assert "says 651" in refusal(lambda: fmt.open(folder / "shard.00000.mds"))
    (folder / "index.json").write_text('{"shards": [{"raw_data": 3}]}')
    for use in (lambda: fmt.open(folder / "shard.00001.mds"), lambda: inspect_path(str(folder))):
        assert "index.json is no index of MDS shards" in refusal(use)


@contextlib.contextmanager
def recorded(lines: list[str]) -> Iterator[None]:
    """Take the message of a DataError; nothing else may be raised."""
    try:
        yield
    except DataError as error:
        lines.append(str(error))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 650), st.binary(min_size=1, max_size=4), st.booleans())
def test_any_damage_is_one_line_or_other_content(offset: int, content: bytes, in_index: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in ("index.json", "shard.00000.mds"):
            shutil.copy(GOLDEN / file, folder)
        with (folder / ("index.json" if in_index else "shard.00000.mds")).open("r+b") as file:
            file.seek(offset)
            file.write(content)
        fields = [FieldConfig("id", "int64", []), FieldConfig("tokens", "int32", [], length_mean=3)]
        fmt = create(config(*fields), SEED)
        path = folder / "shard.00000.mds"

        def use() -> None:
            with closing(fmt.open(path)) as reader:
                read(fmt, reader, range(reader.num_samples or 0))

        for attempt in (lambda: inspect_path(name), lambda: fmt.inspect(path), lambda: fmt.layout(path), use):
            lines: list[str] = []
            with recorded(lines):
                attempt()
            assert all(name in line and "\n" not in line for line in lines)


def test_shards_that_are_compressed_or_missing(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    shutil.copytree(GOLDEN, folder)
    index = json.loads((folder / "index.json").read_text())
    (folder / "shard.00003.mds").unlink()
    assert any("1 of the 4 shards" in note for note in inspect_path(str(folder)).description.notes)
    for entry in index["shards"]:
        name = entry["raw_data"]["basename"]
        entry["compression"] = "zstd"
        entry["zip_data"] = {"basename": f"{name}.zstd", "bytes": 3, "hashes": {}}
        (folder / name).unlink(missing_ok=True)
        (folder / f"{name}.zstd").write_bytes(b"abc")
    (folder / "index.json").write_text(json.dumps(index))
    line = refusal(lambda: inspect_path(str(folder)))
    assert "compressed shards (shard.00000.mds.zstd)" in line
    assert "zstd -d" in line
