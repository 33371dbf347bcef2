"""Files that change, names that something else has, and a manifest that does not fit: found and named, nothing lost."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from data_files import config_of, make
from format_configs import CONFIGS

from dlio_torch.config.schema import Config, FieldConfig
from dlio_torch.data.dataset import description
from dlio_torch.data.dataset.manifest import check_present, data_folder, existing_manifest
from dlio_torch.data.dataset.map_dataset import CatchingDataset, SampleDataset
from dlio_torch.errors import DataError, PreconditionError
from dlio_torch.formats.core import registry
from dlio_torch.iotrace.recorder.spans import NULL
from dlio_torch.storage.local.stored_paths import kind_of

# --- files that change while they are read ----------------------------------------------------------


@pytest.mark.parametrize("change", ["gone", "cut", "empty", "replaced", "link"])
def test_a_file_that_changes_in_the_middle_of_an_epoch_is_named(tmp_path: Path, change: str) -> None:
    fmt, manifests = make(config_of(tmp_path))
    dataset = CatchingDataset(SampleDataset(fmt, manifests["train"], NULL, max_open_files=1, verify=True))
    assert dataset.__getitems__(range(3, 10)).error is None
    path, other = manifests["train"].path(2), manifests["train"].path(0)
    changes: dict[str, Callable[[], object]] = {
        "gone": path.unlink,
        "cut": lambda: os.truncate(path, path.stat().st_size - 1),
        "empty": lambda: os.truncate(path, 0),
        "replaced": lambda: other.replace(path),
        "link": lambda: (path.unlink(), path.symlink_to("nowhere")),
    }
    changes[change]()
    found = dataset.__getitems__(range(10, 17))
    assert found.batch == {}
    assert isinstance(found.error, DataError)
    assert str(path) in str(found.error)
    assert "\n" not in str(found.error)


# --- names that something else has, and what the data set says of itself -----------------------------


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_folder(path: Path) -> None:
    path.mkdir()
    (path / "mine.txt").write_text("precious")


def a_dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


THINGS = {a_pipe: "a named pipe", a_folder: "a folder", a_dangling_link: "a broken symbolic link"}


@pytest.mark.parametrize("thing", THINGS)
def test_what_is_no_file_is_neither_read_nor_replaced(tmp_path: Path, thing: Callable[[Path], None]) -> None:
    config = config_of(tmp_path)
    fmt, manifests = make(config)
    path = manifests["train"].path(1)
    path.unlink()
    thing(path)
    assert kind_of(path) == THINGS[thing]
    with pytest.raises(PreconditionError, match=rf"train_0000001\.h5 is {THINGS[thing]}"):
        check_present(manifests, fmt)
    with pytest.raises(PreconditionError, match=rf"train_0000001\.h5 is {THINGS[thing]}, not a file of this data set"):
        make(config)
    assert kind_of(path) == THINGS[thing]
    assert [file.name for file in path.iterdir()] == ["mine.txt"] if thing is a_folder else True
    if thing is a_folder:
        return  # one of existing data may be full of files
    existing = replace(config, dataset=replace(config.dataset, path=str(path.parent)))
    with pytest.raises(DataError, match=rf"train_0000001\.h5 is {THINGS[thing]}, not a file of data"):
        existing_manifest(existing, fmt)


def test_an_empty_file_is_missing_and_is_written_again(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    fmt, manifests = make(config)
    path = manifests["train"].path(1)
    before = path.read_bytes()
    os.truncate(path, 0)
    with pytest.raises(PreconditionError, match=r"train_0000001\.h5 is empty \(1 of 3 files are missing\)"):
        check_present(manifests, fmt)
    make(config)
    assert path.read_bytes() == before


def two_arrays(root: Path) -> Config:
    fields = [FieldConfig("x", "uint8", [8]), FieldConfig("y", "uint8", [8])]
    return config_of(root, format="npy", samples_per_file=1, fields=fields)


def an_index(root: Path) -> Config:
    return config_of(root, format="indexed_binary", fields=[FieldConfig("x", "uint8", [8])])


@pytest.mark.parametrize("config_in", [two_arrays, an_index])
def test_a_file_whose_companion_is_missing_is_written_again(
    tmp_path: Path, config_in: Callable[[Path], Config]
) -> None:
    config = config_in(tmp_path)
    fmt, manifests = make(config)
    [_, companion] = fmt.files(manifests["train"].path(1))
    before = companion.read_bytes()
    size = sum(path.stat().st_size for number in range(3) for path in fmt.files(manifests["train"].path(number)))
    assert check_present(manifests, fmt) == size
    companion.unlink()
    with pytest.raises(PreconditionError, match=rf"{companion.name} does not exist \(1 of 3 files are missing\)"):
        check_present(manifests, fmt)
    make(config)
    assert companion.read_bytes() == before


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("seed", 7, r"states seed=7, but this run's configuration requires \d+"),
        ("version", 0, r"states version=0, but this run's configuration requires 1"),
        ("samples_per_file", 8, r"states samples_per_file=8, but this run's configuration requires 7"),
        ("layout", {"format": "npz"}, r"states layout\.\w+="),
        ("layout", None, r"states layout=null"),
        ("parameters", {"raw": float("nan")}, "the parameters do not belong to format hdf5"),
    ],
)
def test_a_stale_manifest_is_named(tmp_path: Path, key: str, value: object, words: str) -> None:
    config = config_of(tmp_path)
    fmt, _ = make(config)
    path = data_folder(config, fmt) / description.DESCRIPTION
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(DataError, match=f"{re.escape(str(path))}:? {words}"):
        make(config)


@pytest.mark.parametrize("name", ["hdf5_volume", "larcv3"])
@pytest.mark.parametrize("parameters", [{}, {"other": 1.0}])
def test_a_manifest_without_the_parameters_of_its_format_is_named(
    tmp_path: Path, name: str, parameters: dict[str, float]
) -> None:
    fmt = registry.create(CONFIGS[name], 1)
    with pytest.raises(DataError, match=f"the parameters do not belong to format {name}"):
        description.use_description({"parameters": parameters}, tmp_path, fmt)
