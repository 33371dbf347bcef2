"""Folders of ``datasets``: which of their files hold samples, and which folders hold several data sets."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from calls_by_file import calls_by_file
from strace import need_strace

from dlio_torch.config.compose import compose
from dlio_torch.data.dataset.manifest import Manifest, existing_manifest
from dlio_torch.data.engines.registry import format_of
from dlio_torch.errors import DataError, DlioError, MissingPackageError
from dlio_torch.formats.arrow.saved_folder import data_files, look_at_descriptions
from dlio_torch.formats.core.inspection import inspect_path
from dlio_torch.formats.testing.contract import refusal

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")


def stored(path: Path, rows: int, first: int = 0, ipc: str = "stream") -> None:
    table = pa.table({"a": list(range(first, first + rows)), "b": [0.5] * rows})
    opener = pa.ipc.new_file if ipc == "file" else pa.ipc.new_stream
    with opener(str(path), table.schema) as writer:
        writer.write_table(table)


def saved(folder: Path, **state: Any) -> Path:
    """A folder as ``save_to_disk`` leaves it, with the result of a ``map`` beside the data."""
    folder.mkdir(parents=True)
    names = ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"]
    for number, name in enumerate(names):
        stored(folder / name, 3 + number)
    stored(folder / "cache-1234567890abcdef.arrow", 50)
    content = {"_data_files": [{"filename": name} for name in names], "_format_columns": None, **state}
    (folder / "state.json").write_text(json.dumps(content))
    (folder / "dataset_info.json").write_text("{}")
    return folder


def located(folder: Path, *settings: str) -> Manifest:
    config = compose([f"dataset.path={folder}", *settings]).config
    return existing_manifest(config, format_of(config))[0]


def test_only_the_files_that_the_state_lists_are_read(tmp_path: Path) -> None:
    folder = saved(tmp_path / "saved")
    manifest = located(folder)
    assert [manifest.path(file).name for file in range(manifest.num_files)] == [
        "data-00000-of-00002.arrow",
        "data-00001-of-00002.arrow",
    ]
    assert manifest.num_samples == 7


def test_results_of_map_beside_other_files_are_left_out(tmp_path: Path) -> None:
    names = ["cache-12.arrow", "x-train.arrow", "y/cache-3.arrow", "y/z.arrow"]
    assert data_files(tmp_path, names) == ["x-train.arrow", "y/z.arrow"]


def test_a_file_that_the_state_lists_and_that_is_missing_is_named(tmp_path: Path) -> None:
    folder = saved(tmp_path / "saved")
    (folder / "data-00001-of-00002.arrow").unlink()
    assert "state.json lists data-00001-of-00002.arrow, which does not exist" in refusal(
        lambda: inspect_path(str(folder))
    )


def test_an_indices_mapping_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "saved", _indices_data_files=[{"filename": "indices.arrow"}])
    with pytest.raises(DataError, match="was saved with an indices mapping") as refused:
        inspect_path(str(folder))
    assert "flatten_indices()" in (refused.value.hint or "")
    indices = pa.table({"indices": pa.array([2, 0, 1], pa.uint64())})
    with pa.ipc.new_stream(str(tmp_path / "indices.arrow"), indices.schema) as writer:
        writer.write_table(indices)
    assert "is an indices mapping" in refusal(lambda: inspect_path(str(tmp_path / "indices.arrow")))


def test_only_the_columns_of_the_format_are_read(tmp_path: Path) -> None:
    description = inspect_path(str(saved(tmp_path / "saved", _format_columns=["b"]))).description
    assert [field.name for field in description.fields] == ["b"]
    assert description.arrays[0].note == "not among the columns of the data set's format"


@pytest.mark.parametrize("split", ["train", "test"])
def test_splits_are_named_and_each_is_readable(split: str, tmp_path: Path) -> None:
    folder = tmp_path / "splits"
    saved(folder / split)
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": [split, "other"]}))
    for settings in ([], ["dataset.format=arrow", "dataset.fields=[{name: a, dtype: int64}]", "recipe=minimal"]):
        with pytest.raises(DlioError, match=f"holds the splits {split}, other") as refused:
            located(folder, *settings)
        assert refused.value.hint == f"set dataset.path={folder / split}"
    assert inspect_path(str(folder / split)).description.samples == 7


def test_the_splits_of_a_cache_are_named(tmp_path: Path) -> None:
    for name in ("imdb-train-00000-of-00002.arrow", "imdb-train-00001-of-00002.arrow", "imdb-test.arrow"):
        stored(tmp_path / name, 2)
    (tmp_path / "dataset_info.json").write_text(json.dumps({"splits": {"train": {}, "test": {}}}))
    with pytest.raises(DataError, match="several splits: imdb-test, imdb-train") as refused:
        inspect_path(str(tmp_path))
    assert refused.value.hint == f"set dataset.path='{tmp_path}/imdb-test*.arrow'"
    inspection = inspect_path(f"{tmp_path}/imdb-train*.arrow")
    assert (inspection.format, inspection.files) == ("arrow", 2)


def test_a_damaged_state_is_named(tmp_path: Path) -> None:
    folder = saved(tmp_path / "saved")
    (folder / "state.json").write_bytes(b"{\xff")
    assert f"{folder / 'state.json'} cannot be read" in refusal(lambda: inspect_path(str(folder)))


def test_the_file_container_is_an_option_that_inspection_sets(tmp_path: Path) -> None:
    path = tmp_path / "a.feather"
    stored(path, 4, ipc="file")
    inspection = inspect_path(str(path))
    assert inspection.settings()["arrow"] == {"ipc": "file"}
    config = compose([f"dataset.path={path}", "dataset.arrow.ipc=stream"]).config
    fmt = format_of(config)
    for attempt in (lambda: fmt.inspect(path), lambda: fmt.open(path)):
        assert "is an Arrow IPC file, but dataset.arrow.ipc=stream; set dataset.arrow.ipc=file" in refusal(attempt)


@pytest.mark.parametrize("ipc", ["stream", "file"])
def test_files_are_recognised_by_their_first_bytes(ipc: str, tmp_path: Path) -> None:
    stored(tmp_path / "nameless", 2, ipc=ipc)
    assert inspect_path(str(tmp_path / "nameless")).format == "arrow"
    (tmp_path / "numbers").write_bytes(b"\xff" * 64)
    assert "is unknown" in refusal(lambda: inspect_path(str(tmp_path / "numbers")))


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(tmp_path / "a.arrow", 2)
    monkeypatch.setitem(sys.modules, "pyarrow.ipc", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'dlio-torch\[arrow\]'"):
        inspect_path(str(tmp_path / "a.arrow"))


LOADED = """
import sys
import datasets
datasets.load_from_disk("saved")
"""
LOOKED = """
from pathlib import Path
from dlio_torch.formats.arrow.saved_folder import look_at_descriptions
assert look_at_descriptions(Path("saved").resolve())
"""


def test_descriptions_are_read_with_the_calls_of_datasets(tmp_path: Path) -> None:
    need_strace()
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    folder = (tmp_path / "saved").resolve()
    datasets.Dataset.from_dict({"a": [1, 2, 3]}).save_to_disk(str(folder))
    theirs, ours = (calls_by_file(program, tmp_path.resolve()) for program in (LOADED, LOOKED))
    for name in ("state.json", "dataset_info.json", "dataset_dict.json"):
        assert ours[f"saved/{name}"] == theirs[f"saved/{name}"], name


def test_only_saved_folders_have_descriptions(tmp_path: Path) -> None:
    folder = saved(tmp_path / "saved")
    assert look_at_descriptions(folder)
    (folder / "dataset_info.json").unlink()
    assert not look_at_descriptions(folder)


@pytest.mark.parametrize("content", ["{", "{}", "[]", '{"_data_files": [{}]}'])
def test_damaged_descriptions_are_named(content: str, tmp_path: Path) -> None:
    folder = saved(tmp_path / "saved")
    (folder / "state.json").write_text(content)
    with pytest.raises(DataError, match="saved cannot be read"):
        look_at_descriptions(folder)
