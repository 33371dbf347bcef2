"""Damaged MDS shards and indices, and fields that do not fit: one line that names the file."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import struct
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mds_data import GOLDEN, config

from dlio_torch.config.schema import FieldConfig
from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import BatchBuffer
from dlio_torch.formats.core.inspection import inspect_path
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.testing.contract import SEED, read, refusal


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
    fmt = create(config(FieldConfig("id", "int64", [])), SEED)

    def chosen(*numbers: int) -> list[str]:
        return list(fmt.select(tmp_path, [f"data/shard.{number:05d}.mds" for number in numbers]))

    assert len(chosen(0, 1, 2, 3)) == 4
    line = refusal(lambda: chosen(0, 1, 2))
    assert f"{folder}/index.json names shard.00003.mds, which does not exist" in line
    assert any("1 of the 4 shards" in note for note in inspect_path(str(folder)).description.notes)
    for entry in index["shards"]:
        name = entry["raw_data"]["basename"]
        entry["compression"] = "zstd"
        entry["zip_data"] = {"basename": f"{name}.zstd", "bytes": 3, "hashes": {}}
        (folder / name).unlink(missing_ok=True)
        (folder / f"{name}.zstd").write_bytes(b"abc")
    (folder / "index.json").write_text(json.dumps(index))
    line = refusal(lambda: chosen(1, 2, 3))
    assert f"{folder}/shard.00000.mds is not there, but compressed as shard.00000.mds.zstd" in line
    assert f"zstd -d {folder}/*.zstd" in line
    line = refusal(lambda: inspect_path(str(folder)))
    assert "compressed shards (shard.00000.mds.zstd)" in line
    assert "zstd -d" in line


@pytest.mark.parametrize(("suffix", "program"), [(".zstd", "zstd -d"), (".gz", "gunzip -k"), (".br", "brotli -d")])
def test_compressed_shards_are_described_with_their_own_program(tmp_path: Path, suffix: str, program: str) -> None:
    index = json.loads((GOLDEN / "index.json").read_text())
    for entry in index["shards"]:
        entry["zip_data"] = {"basename": entry["raw_data"]["basename"] + suffix, "bytes": 3, "hashes": {}}
        (tmp_path / entry["zip_data"]["basename"]).write_bytes(b"abc")
    (tmp_path / "index.json").write_text(json.dumps(index))
    assert f"`{program} {tmp_path}/*{suffix}`" in refusal(lambda: inspect_path(str(tmp_path)))
