"""MDS shards and MosaicML Streaming: each reads what the other writes, with the same system calls."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mds_data import FIELDS, GOLDEN, config
from optional_parts import streaming_python
from straced import needs_strace, straced

from dlio_torch.config.schema import FieldConfig
from dlio_torch.formats.core.batch import samples_of
from dlio_torch.formats.core.inspection import inspect_path
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.testing.contract import SEED, read, write

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
