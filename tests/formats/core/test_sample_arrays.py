"""The arrays of a sample are chosen, or asked for, in the same way in each format of named arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from existing_samples import read_existing

from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core.data_description import DataDescription, StoredArray
from dlio_torch.formats.core.inspection import inspect_path
from dlio_torch.formats.core.row_arrays import RowArray, described_by_rows

Arrays = Mapping[str, npt.NDArray[Any]]


def _hdf5(path: Path, arrays: Arrays) -> None:
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array


def _zarr(path: Path, arrays: Arrays) -> None:
    zarr = pytest.importorskip("zarr", minversion="3", reason="zarr 3 is not installed")
    group = zarr.open_group(str(path), mode="w")
    for name, array in arrays.items():
        group.create_array(name, data=array)


def _npz(path: Path, arrays: Arrays) -> None:
    np.savez(path, **arrays)  # type: ignore[arg-type]


def _safetensors(path: Path, arrays: Arrays) -> None:
    library = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    library.save_file(dict(arrays), path)


STORES: dict[str, Callable[[Path, Arrays], None]] = {
    "a.h5": _hdf5,
    "a.zarr": _zarr,
    "a.npz": _npz,
    "a.safetensors": _safetensors,
}


def splits(train: int, test: int) -> dict[str, npt.NDArray[Any]]:
    """Arrays of two splits; a label is the row's number, from 1000 on in the test set."""
    return {
        "x_train": np.ones((train, 3), np.float32), "y_train": np.arange(train),
        "x_test": np.zeros((test, 3), np.float32), "y_test": 1000 + np.arange(test),
    }  # fmt: skip


@pytest.mark.parametrize("test_rows", [300, 100])
@pytest.mark.parametrize("name", STORES)
def test_splits_are_asked_for(name: str, test_rows: int, tmp_path: Path) -> None:
    path = tmp_path / name
    STORES[name](path, splits(100, test_rows))
    description = inspect_path(str(path)).description
    assert (description.fields, description.samples) == ((), None)
    (question,) = description.questions
    with pytest.raises(ConfigError, match="several sets of samples"):
        read_existing(path)
    train, test = [line.partition(": ")[2] for line in description.notes if ": dataset.fields=" in line]
    assert question.setting == train
    for line, split, first, count in ((train, "train", 0, 100), (test, "test", 1000, test_rows)):
        samples = read_existing(path, line)
        assert [int(sample[f"y_{split}"]) for sample in samples] == list(range(first, first + count))


@pytest.mark.parametrize("name", ["a.h5", "a.zarr", "a.npz"])
def test_sets_that_cannot_be_ranked_are_asked_for(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    STORES[name](path, {"small": np.zeros((9, 2)), "large": np.zeros((20, 2))})
    (question,) = inspect_path(str(path)).description.questions
    assert len(read_existing(path, question.setting)) == 20


@pytest.mark.parametrize("name", ["a.h5", "a.zarr", "a.npz"])
def test_an_array_of_another_length_is_named_and_left_out(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    STORES[name](path, {"images": np.zeros((6, 40)), "labels": np.arange(6), "classes": np.arange(10)})
    description = inspect_path(str(path)).description
    assert ({field.name for field in description.fields}, description.samples) == ({"images", "labels"}, 6)
    said = [*description.notes, *(f"{array.name}: {array.note}" for array in description.arrays if array.note)]
    assert [line for line in said if line.startswith("classes")]
    assert len(read_existing(path)) == 6


def test_one_sample_of_safetensors_can_be_chosen(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    _safetensors(path, splits(4, 6))
    note = next(note for note in inspect_path(str(path)).description.notes if "samples=file" in note)
    option, fields = note.partition(": ")[2].rstrip("'").split(" '")
    (sample,) = read_existing(path, option, fields)
    assert {key: array.shape for key, array in sample.items()} == {
        "x_train": (4, 3), "y_train": (4,), "x_test": (6, 3), "y_test": (6,),
    }  # fmt: skip


@pytest.mark.parametrize("engine", ["dataloader", "decoupled"])
@pytest.mark.parametrize(
    ("name", "option"),
    [("a.npz", "dataset.npz.samples_in_file"), ("a.safetensors", "dataset.safetensors.samples")],
)
def test_a_wrong_shape_names_the_option_of_its_format(name: str, option: str, engine: str, tmp_path: Path) -> None:
    path = tmp_path / name
    STORES[name](path, {"x": np.ones((4, 3), np.float32)})
    one, stacked = ("one", "stacked") if name == "a.npz" else ("file", "rows")
    for value, shape in ((one, [3]), (stacked, [4, 3])):
        fields = f"dataset.fields=[{{name: x, dtype: float32, shape: {shape}}}]"
        with pytest.raises(DataError, match=r"dataset\.fields expect") as error:
            read_existing(path, f"{option}={value}", fields, f"loader.engine={engine}")
        said = f"correct dataset.fields, or {option} ({one}: a file is one unstacked sample"
        assert (error.value.hint or "").startswith(said)


def _named(**dims: str) -> DataDescription:
    """Description of arrays with named axes, given by their letters."""
    sizes = {"t": 4, "y": 20, "x": 30, "s": 7}
    return described_by_rows(
        [RowArray(StoredArray(name, "float32", tuple(sizes[axis] for axis in axes)), tuple(axes))
         for name, axes in dims.items()]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("dims", "chosen"),
    [
        ({"wind": "tyx", "t": "t", "y": "y", "x": "x"}, ["wind", "t"]),
        ({"wind": "tyx", "t": "t", "lat": "yx", "lon": "yx", "height": "yx"}, ["wind", "t"]),
        ({"wind": "tyx", "lat": "yx", "lon": "yx"}, ["wind"]),
        ({"wind": "tyx", "station": "s"}, []),
        ({"a": "yx", "b": "xy"}, []),
        ({"a": "yx", "b": "xy", "c": "s"}, []),
        ({"y": "y", "x": "x"}, []),
    ],
)
def test_names_of_axes_tell_coordinates_and_maps(dims: dict[str, str], chosen: list[str]) -> None:
    description = _named(**dims)
    assert [field.name for field in description.fields] == chosen
    assert len(description.questions) == (0 if chosen else 1)
    assert all(
        any(note.startswith(f"{name} [") for note in description.notes)
        for name in dims
        if chosen and name not in chosen
    )
