"""Existing files of NumPy's: fields from headers, pairs of files, and questions where the files do not tell."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from existing_samples import read_existing, settings_of
from hypothesis import given
from hypothesis import strategies as st

from dlio_torch.config.compose import compose
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core.inspection import inspect_path
from dlio_torch.formats.numpy.file_groups import groups_of

RNG = np.random.default_rng(3)


def test_a_single_file_is_a_data_set(tmp_path: Path) -> None:
    array = RNG.random((12, 3, 4)).astype(np.float32)
    np.save(tmp_path / "a.npy", array)
    np.save(tmp_path / "other.npy", np.zeros(3))  # lies beside it
    samples = read_existing(tmp_path / "a.npy")
    assert np.array_equal([sample["data"] for sample in samples], array)
    assert settings_of(tmp_path / "a.npy") == {
        "format": "npy",
        "npz": {"samples_in_file": "stacked"},
        "fields": [{"name": "data", "dtype": "float32", "shape": [3, 4]}],
    }


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_archive(save: object, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    x, y = RNG.random((9, 4)), np.arange(9)
    np.savez(path, x=x, y=y) if save is np.savez else np.savez_compressed(path, x=x, y=y)
    samples = read_existing(path)
    assert np.array_equal([sample["x"] for sample in samples], x)
    assert [int(sample["y"]) for sample in samples] == list(range(9))
    assert settings_of(path)["npz"].get("compressed", False) == (save is np.savez_compressed)
    decoupled = read_existing(path, "loader.engine=decoupled")
    assert np.array_equal([sample["x"] for sample in decoupled], x)


def test_members_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(
        path,
        x=np.zeros((6, 2)),
        test=np.zeros((2, 2)),
        names=np.array(["a"] * 6),
        meta=np.array({"a": 1}, dtype=object),
        swapped=np.zeros(6, ">f4"),
        index=np.zeros(6),
        count=np.int64(6),
    )
    description = inspect_path(str(path)).description
    notes = {array.name: array.note for array in description.arrays}
    assert [field.name for field in description.fields] == ["x"]
    assert not notes["x"]
    for name, words in {
        "test": "has 2 rows, where other arrays have 6",
        "names": "text",
        "meta": "pickled objects, which dlio_torch never loads",
        "swapped": "byte order",
        "index": "reserved",
        "count": "a single number",
    }.items():
        assert words in notes[name]
    assert len(read_existing(path)) == 6


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (tmp_path / "sprung",)

    np.save(tmp_path / "a.npy", np.array([Trap()], dtype=object))
    with pytest.raises(DataError, match=r"a\.npy holds no array that can be read: data: pickled objects"):
        inspect_path(str(tmp_path / "a.npy"))
    assert not (tmp_path / "sprung").exists()


def test_images_and_labels_in_two_files_of_several_samples(tmp_path: Path) -> None:
    x, y = RNG.random((7, 2, 2)), np.arange(7)
    np.save(tmp_path / "images.npy", x)
    np.save(tmp_path / "labels.npy", y)
    assert settings_of(tmp_path)["npz"]["field_suffixes"] == ["images", "labels"]
    samples = read_existing(tmp_path)
    assert np.array_equal([sample["images"] for sample in samples], x)
    assert [int(sample["labels"]) for sample in samples] == list(range(7))


@pytest.mark.parametrize("ends", [("_x", "_y"), ("-image", "-mask")])
def test_cases_of_two_files_each(ends: tuple[str, str], tmp_path: Path) -> None:
    """MLPerf's unet3d: ``np.load`` of an image and of its label, whose shapes differ from case to case."""
    cases = []
    for number in range(4):
        shape = (1, *RNG.integers(2, 9, 3))
        cases.append((RNG.random(shape).astype(np.float32), RNG.integers(0, 3, shape).astype(np.uint8)))
        for end, array in zip(ends, cases[-1], strict=True):
            np.save(tmp_path / f"case_{number:05}{end}.npy", array)
    names = [end[1:] for end in ends]
    for engine in ("dataloader", "decoupled"):
        samples = read_existing(tmp_path, f"loader.engine={engine}")
        assert len(samples) == 4
        for sample, arrays in zip(samples, cases, strict=True):
            for name, array in zip(names, arrays, strict=True):
                assert np.array_equal(sample[name], array.reshape(-1))
    assert ("field_suffixes" in settings_of(tmp_path)["npz"]) == (ends[0] != "_x")
    (tmp_path / f"case_00002{ends[1]}.npy").unlink()
    notes = inspect_path(str(tmp_path)).description.notes
    assert any(f"case_00002{ends[1]}.npy" in note and "1 file missing" in note for note in notes)
    with pytest.raises(DataError, match=rf"case_00002{ends[0]}\.npy: another array .*case_00002{ends[1]}\.npy"):
        read_existing(tmp_path)


def test_files_that_do_not_tell_are_asked_for(tmp_path: Path) -> None:
    for number in range(3):
        np.save(tmp_path / f"{number}.npy", np.full((5, 2), number, np.int16))
    (question,) = inspect_path(str(tmp_path)).description.questions
    assert question.setting == "dataset.npz.samples_in_file=one"
    with pytest.raises(
        ConfigError, match=r"do not state whether each is one sample .*add dataset\.npz\.samples_in_file"
    ):
        compose([f"dataset.path={tmp_path}"])
    assert [sample["data"].shape for sample in read_existing(tmp_path, question.setting)] == [(5, 2)] * 3
    stacked = question.problem[question.problem.index("dataset.npz.samples_in_file=stacked") :].rstrip(")'")
    key, fields = stacked.split(" '")
    samples = read_existing(tmp_path, key, fields)
    assert [int(sample["data"][0]) for sample in samples] == [0] * 5 + [1] * 5 + [2] * 5


def test_files_of_different_kinds_are_no_samples(tmp_path: Path) -> None:
    for split, count in (("train", 9), ("test", 4)):
        np.save(tmp_path / f"x_{split}.npy", np.zeros((count, 2, 2), np.uint8))
        np.save(tmp_path / f"y_{split}.npy", np.zeros(count, np.int64))
    with pytest.raises(DataError, match=r"data: is int64 in y_test\.npy.*by a pattern"):
        inspect_path(str(tmp_path))
    assert len(read_existing(tmp_path / "x_train.npy")) == 9
    assert len(read_existing(tmp_path / "x_*.npy", "dataset.npz.samples_in_file=one")) == 2
    np.save(tmp_path / "other.npy", np.zeros(3, np.uint8))
    for name in ("y_train", "y_test"):
        (tmp_path / f"{name}.npy").unlink()
    with pytest.raises(DataError, match=r"has 3 axes in x_test\.npy, and 1 in others"):
        inspect_path(str(tmp_path))


def test_files_that_tell_that_they_are_samples(tmp_path: Path) -> None:
    for number in range(3):
        np.savez(tmp_path / f"{number}.npz", x=np.zeros((number + 1, 2)), label=np.int64(number))
    samples = read_existing(tmp_path)
    assert [len(sample["x"]) for sample in samples] == [1, 2, 3]
    assert [int(sample["label"]) for sample in samples] == [0, 1, 2]


def test_our_own_variable_samples_in_an_archive(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(6.0), x_lengths=np.array([1, 2, 3]), y=np.arange(3))
    samples = read_existing(tmp_path / "a.npz")
    assert [sample["x"].tolist() for sample in samples] == [[0.0], [1.0, 2.0], [3.0, 4.0, 5.0]]


def test_damaged_files(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.zeros((3, 2)))
    content = path.read_bytes()
    for bad in (content[:20], b"\x93NUMPY\x01\x00" + b"\xff" * 90, content.replace(b"<f8", b"<q9")):
        path.write_bytes(bad)
        with pytest.raises(DataError, match=r"a\.npy") as caught:
            inspect_path(str(path))
        assert "\n" not in str(caught.value)
    path = tmp_path / "a.npz"
    path.write_bytes(b"PK\x03\x04" + pickle.dumps([1]) * 9)
    with pytest.raises(DataError, match=r"a\.npz"):
        inspect_path(str(path))


@given(st.sets(st.text("abx_01", min_size=1, max_size=5), min_size=1, max_size=9))
def test_groups_name_files_that_are_there(names: set[str]) -> None:
    groups = groups_of(sorted(names))
    if groups is not None:
        ends = groups.suffixes.values()
        built = {stem + end for stem in groups.complete for end in ends}
        assert built <= names
        assert not names & set(groups.missing)
        assert len(groups.complete) * len(groups.suffixes) == len(built)
