"""The manifest: where each sample lies, and which data set a configuration means."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from data_files import RawFormat, config_of, make, make_raw
from data_sets import fingerprint
from hypothesis import given
from hypothesis import strategies as st
from ranks import clean_environ

from dlio_torch.config.schema import FieldConfig, LoaderConfig
from dlio_torch.data.dataset import description
from dlio_torch.data.dataset.file_counts import FileCounts
from dlio_torch.data.dataset.manifest import (
    Manifest,
    check_present,
    data_folder,
    existing_manifest,
    generated_manifests,
)
from dlio_torch.errors import DataError, PreconditionError
from dlio_torch.formats.core import registry
from dlio_torch.formats.hdf5.options import Hdf5Config
from dlio_torch.ownership.marker import write_marker


def manifest_of(counts: list[int]) -> Manifest:
    names = [f"{i}.raw" for i in range(len(counts))]
    return Manifest("train", 0, FileCounts(counts), Path("x"), names, ".raw")


# --- where a sample lies --------------------------------------------------------------------------


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_samples_of_uneven_files_are_numbered_file_by_file(counts: list[int]) -> None:
    manifest = manifest_of(counts)
    located = [(file, row) for file, count in enumerate(counts) for row in range(count)]
    assert [manifest.locate(sample) for sample in range(manifest.num_samples)] == located
    assert manifest.counts() == counts


@given(st.integers(1, 12), st.integers(1, 9), st.integers(0, 5))
def test_samples_of_generated_files_are_numbered_file_by_file(files: int, per_file: int, subfolders: int) -> None:
    config = config_of(Path("root"), files, per_file, num_subfolders=subfolders)
    manifest = generated_manifests(config, registry.create(config.dataset, 1))["train"]
    located = [(file, row) for file in range(files) for row in range(per_file)]
    assert [manifest.locate(sample) for sample in range(manifest.num_samples)] == located
    assert manifest.counts() == [per_file] * files
    paths = [manifest.path(file) for file in range(files)]
    assert len(set(paths)) == files
    assert paths == [manifest.path(file) for file in range(files)]
    assert len({path.parent for path in paths}) == (min(files, subfolders) or 1)


@pytest.mark.parametrize("subfolders", [0, 2])
def test_a_part_has_the_paths_and_samples_of_its_files(subfolders: int) -> None:
    whole = Manifest("train", 100, FileCounts([3], 5), Path("/data"), None, ".npz", subfolders)
    part = whole.part(range(2, 4))
    assert [part.path(file) for file in range(part.num_files)] == [whole.path(2), whole.path(3)]
    assert (part.num_samples, part.first_sample, part.counts()) == (6, 106, [3, 3])
    assert manifest_of([1, 2, 4, 8]).part(range(1, 3)).counts() == [2, 4]


def test_a_million_generated_files_take_no_memory() -> None:
    config = config_of(Path("root"), 1_000_000, 1000, num_subfolders=100)
    manifest = generated_manifests(config, registry.create(config.dataset, 1))["train"]
    assert manifest.num_samples == 10**9
    assert len(pickle.dumps(manifest)) < 1000  # it travels to each loader worker
    assert manifest.locate(10**9 - 1) == (999_999, 999)


def test_evaluation_samples_differ_from_training_samples_however_many_those_become() -> None:
    def amounts(files: int) -> dict[str, Manifest]:
        config = config_of(Path("root"), files, 4, num_files_eval=2, samples_per_file_eval=3)
        return generated_manifests(config, registry.create(config.dataset, 1))

    few, many = amounts(1), amounts(10**6)
    assert few["eval"] == many["eval"]
    assert many["eval"].first_sample > many["train"].num_samples


@pytest.mark.parametrize("empty", [{"num_files_eval": 2}, {"samples_per_file_eval": 2}, {}])
def test_a_split_without_samples_is_left_out(empty: dict[str, int]) -> None:
    config = config_of(Path("root"), **empty)  # type: ignore[arg-type]
    assert list(generated_manifests(config, registry.create(config.dataset, 1))) == ["train"]


# --- which data set -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"samples_per_file": 8},
        {"num_subfolders": 3},
        {"hdf5": Hdf5Config(chunk_bytes=64)},
        {"hdf5": Hdf5Config(chunk_bytes=64, compression="gzip")},
        {"hdf5": Hdf5Config(chunk_bytes=64, compression="gzip", compression_level=1)},
        {"fields": [FieldConfig(shape=[6])]},
        {"fields": [FieldConfig(shape=[5], dtype="float64")]},
        {"fields": [FieldConfig(shape=[5], length_mean=2.5)]},
    ],
    ids=lambda change: str(change)[:60],
)
def test_whatever_the_bytes_depend_on_names_another_data_set(change: dict[str, Any]) -> None:
    assert fingerprint(config_of(Path("root"), **change)) != fingerprint(config_of(Path("root")))


def test_another_seed_is_another_data_set_and_more_files_are_the_same() -> None:
    config = config_of(Path("root"))
    assert fingerprint(replace(config, seed=2)) != fingerprint(config)
    assert fingerprint(config_of(Path("root"), 30)) == fingerprint(config)
    assert fingerprint(replace(config, loader=LoaderConfig(num_workers=3))) == fingerprint(config)


def test_the_fingerprint_is_the_same_in_every_process() -> None:
    program = (
        "from pathlib import Path; from data_files import config_of; from data_sets import fingerprint;"
        "print(fingerprint(config_of(Path('root'))))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=clean_environ() | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert found == {fingerprint(config_of(Path("root")))}


@pytest.mark.parametrize(("recipe", "stem"), [("", "custom"), ("a/b/mine.yaml", "mine"), ("minimal", "minimal")])
def test_the_folder_has_the_recipes_name(recipe: str, stem: str) -> None:
    config = replace(config_of(Path("root")), recipe=recipe)
    fmt = registry.create(config.dataset, 1)
    assert data_folder(config, fmt) == Path("root") / f"{stem}-{fingerprint(config)}"


# --- the description ------------------------------------------------------------------------------


def test_the_description_of_a_data_set_is_read_back(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    fmt, _ = make(config)
    found = description.read_description(data_folder(config, fmt))
    described = json.loads(json.dumps(description.describe(config, fmt)))
    assert {key: found[key] for key in described} == described
    assert found.keys() - described.keys() == {"files", "made_by"}
    assert "train/train_{0000000..0000002}.h5" in found["made_by"]["files"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '"text"',
        "{}",
        '{"parameters": 1}',
        '{"parameters": {"a": "b"}, "fingerprint": "12345678"}',
        '{"parameters": {}}',
        '{"parameters": {}, "fingerprint": "87654321"}',
        "\xff",
    ],
)
def test_a_damaged_description_is_named(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "x-12345678"
    folder.mkdir()
    (folder / description.DESCRIPTION).write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=description.DESCRIPTION) as caught:
        description.read_description(folder)
    assert "\n" not in str(caught.value)


def test_a_description_that_is_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / description.DESCRIPTION).mkdir()
    with pytest.raises(DataError, match="cannot be read"):
        description.read_description(tmp_path)


def test_no_description_is_none(tmp_path: Path) -> None:
    assert description.read_description(tmp_path) is None
    assert description.read_description(tmp_path / "missing") is None


def test_missing_files_are_named_and_counted(tmp_path: Path) -> None:
    fmt, manifest = make_raw(tmp_path)
    check_present({"train": manifest}, fmt)
    manifest.path(1).unlink()
    manifest.path(2).unlink()
    with pytest.raises(PreconditionError, match=r"0000001\.raw does not exist \(2 of 3") as caught:
        check_present({"train": manifest}, fmt)
    assert caught.value.exit_code == 3


# --- existing files -------------------------------------------------------------------------------


def existing(path: Path) -> tuple[Manifest, dict[str, Any]]:
    config = config_of(Path("unused"), path=str(path), format="raw")
    return existing_manifest(config, RawFormat())


def raw(path: Path, samples: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(32 * samples))
    return path


def test_a_single_file_whatever_its_name(tmp_path: Path) -> None:
    manifest, details = existing(raw(tmp_path / "anything.bin", 5))
    assert (manifest.num_files, manifest.num_samples, manifest.count(0)) == (1, 5, 5)
    assert manifest.path(0) == tmp_path / "anything.bin"
    assert details == {"bytes": 160}


def test_a_folder_with_nested_files_of_different_lengths(tmp_path: Path) -> None:
    for name, samples in {"b.raw": 2, "a/z.raw": 3, "a/b/c.raw": 1, "a/notes.txt": 1}.items():
        raw(tmp_path / name, samples)
    manifest, _ = existing(tmp_path)
    assert [manifest.path(file).relative_to(tmp_path).as_posix() for file in range(3)] == [
        "a/b/c.raw",
        "a/z.raw",
        "b.raw",
    ]
    assert manifest.counts() == [1, 3, 2]
    assert [manifest.locate(sample) for sample in range(6)] == [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1)]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({}, r"contains no \*\.raw"),
        ({"a.h5": 3}, r"contains no \*\.raw"),
        ({"a.raw": 2, "b.raw": 0}, r"b\.raw holds no samples"),
    ],
)
def test_a_folder_that_does_not_fit_is_refused(tmp_path: Path, names: dict[str, int], message: str) -> None:
    for name, samples in names.items():
        raw(tmp_path / name, samples)
    with pytest.raises(DataError, match=message):
        existing(tmp_path)


def test_a_path_that_does_not_exist_is_named_with_its_key(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"dataset\.path='.*missing' does not exist"):
        existing(tmp_path / "missing")


def test_a_file_of_another_layout_is_named(tmp_path: Path) -> None:
    raw(tmp_path / "a.raw", 2)
    (tmp_path / "b.raw").write_bytes(bytes(33))
    with pytest.raises(DataError, match=r"b\.raw has 33 bytes"):
        existing(tmp_path)


def test_results_of_an_earlier_run_are_no_data(tmp_path: Path) -> None:
    raw(tmp_path / "a.raw", 3)
    raw(tmp_path / "runs" / "x" / "steps.raw", 2)
    write_marker("run", tmp_path / "runs" / "x", None, ["steps.raw"])
    manifest, _ = existing(tmp_path)
    assert [manifest.path(file).name for file in range(manifest.num_files)] == ["a.raw"]
