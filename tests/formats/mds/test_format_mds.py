"""The format mds: its contract, encodings, options, and the index of a folder."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from data_files import config_of, make
from hypothesis import given, settings
from hypothesis import strategies as st
from mds_data import FIELDS, config

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.batch import ArraySpec
from dlio_torch.formats.core.inspection import inspect_path
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.mds.encodings import encoding_of, parsed, prefix_bytes, prefix_sizes, shape_prefix
from dlio_torch.formats.testing.contract import SEED, FormatContract, write


class TestContract(FormatContract):
    configs: ClassVar[Mapping[str, DatasetConfig]] = {
        "fixed": config(*FIELDS[:4]),
        "one_variable": config(FIELDS[0], FIELDS[6]),
        "ragged": config(FIELDS[4]),
        "all": config(*FIELDS),
    }


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


def test_a_generated_folder_has_an_index(tmp_path: Path) -> None:
    _, manifests = make(config_of(tmp_path, num_files=3, samples_per_file=4, format="mds", fields=FIELDS))
    folder = manifests["train"].path(0).parent
    description = inspect_path(str(folder)).description
    assert (description.samples, description.details) == (12, {"shards": 3})
    index = json.loads((folder / "index.json").read_text())
    assert [entry["raw_data"]["basename"] for entry in index["shards"]] == sorted(p.name for p in folder.glob("*.mds"))
    columns = [entry["column_names"] for entry in index["shards"]]
    assert columns == [sorted(field.name for field in FIELDS)] * 3  # as the library's writer sorts them
    assert [field.name for field in FIELDS] != columns[0]
    marker = json.loads((folder.parent / "dlio_torch.json").read_text())
    assert "train/index.json" in json.dumps(marker)


def test_the_index_of_each_of_many_folders_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fmt = create(config(FIELDS[0]), SEED)
    folders = [tmp_path / f"part-{number:02d}" for number in range(40)]
    for folder in folders:
        folder.mkdir()
        write(fmt, folder / "a.mds", 0, 3)
        fmt.index_folder(folder, ["a.mds"])
    parsed_folders: list[Path] = []
    read_bytes = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: parsed_folders.append(path.parent) or read_bytes(path))
    for _ in range(2):
        for folder in folders:
            fmt.open(folder / "a.mds").close()
    assert parsed_folders == folders
