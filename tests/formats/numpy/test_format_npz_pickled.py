"""Pickled dictionaries in an archive: the calls of the unpickler, the arrays of NumPy, and nothing is unpickled."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.numpy.options import NpzConfig
from dlio_torch.formats.numpy.pickled import Elements, PickleError, read_elements
from dlio_torch.formats.testing.contract import SEED, is_open, read, refusal

Asked = list[tuple[str, int]]


class Listening:
    """A file that writes down what it is asked for, with the peeks of an archive's member: 512 bytes at most."""

    def __init__(self, content: bytes) -> None:
        self._file, self.asked = io.BytesIO(content), Asked()

    def read(self, count: int) -> bytes:
        self.asked.append(("read", count))
        return self._file.read(count)

    def readinto(self, memory: Any) -> int:  # as io.BufferedIOBase has it
        content = self.read(len(memory))
        memory[: len(content)] = content
        return len(content)

    def peek(self, count: int) -> bytes:
        self.asked.append(("peek", count))
        return self._file.getvalue()[self._file.tell() :][:512]

    def readline(self) -> bytes:
        line = self._file.readline()
        self.asked.append(("readline", len(line)))
        return line


class Key:
    """A key that is an object, as plasma's signals are."""

    def __init__(self, name: str) -> None:
        self.name = name


def arrays(sizes: list[int]) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    return [rng.random((size, 1), np.float32) if size != 1 else np.array([98], np.uint8) for size in sizes]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from([0, 1, 5, 63, 64, 100, 128, 9000, 16384, 33000, 300000]), max_size=5),
    st.integers(3, 5),
    st.booleans(),
)
def test_asks_the_file_for_what_the_unpickler_asks_for(sizes: list[int], protocol: int, objects: bool) -> None:
    made = arrays(sizes)
    names = [f"signal {number}" for number in range(len(made))]
    content = pickle.dumps(
        {Key(name) if objects else name: one for name, one in zip(names, made, strict=True)}, protocol
    )
    theirs, ours = Listening(content), Listening(content)
    pickle.load(theirs)
    found = list(read_elements(ours, len(content)))
    assert ours.asked == theirs.asked
    if protocol < 5:  # whose arrays bring no state
        assert [one.content for one in found] == [one.tobytes() for one in made]


@pytest.mark.parametrize("protocol", range(6))
def test_asks_for_the_same_of_every_opcode(protocol: int) -> None:
    """Numbers, strings, bytes, sets and classes, short and long, with lines and with frames."""
    plain = [None, True, 7, -7, 300, 1 << 40, 1 << 3000, 1.5, "text", "\u20ac" * 99, "x" * 200_000, b"b" * 3]
    content = pickle.dumps(
        [*plain, b"z" * 70_000, {1: (2, 3)}, {4, 5}, frozenset([6]), bytearray(9), Key("k")], protocol
    )
    theirs, ours = Listening(content), Listening(content)
    pickle.load(theirs)
    list(read_elements(ours, len(content)))
    assert ours.asked == theirs.asked


# --- archives ---


def made(*fields: FieldConfig, **options: Any) -> Format:
    npz = NpzConfig(pickled=["d"], **options)
    return create(DatasetConfig(format="npz", samples_per_file=1, fields=list(fields), npz=npz), SEED)


A, B = FieldConfig("d/a", "float32", [3]), FieldConfig("d/b", "int16", [2], length_mean=9)


def test_stacked_samples_are_refused_with_the_option_that_stacks_them() -> None:
    with pytest.raises(ConfigError, match="samples_in_file=stacked") as caught:
        made(A, samples_in_file="stacked")
    assert "dataset.npz.samples_in_file=one" in str(caught.value.hint)


def test_reads_what_an_application_has_stored(tmp_path: Path) -> None:
    """Keys are any objects, arrays are stored by rows or by columns; the archive is deflated or not."""
    a, b = np.arange(3, dtype="f4"), np.asfortranarray(np.arange(10, dtype="i2").reshape(5, 2))
    for save in (np.savez, np.savez_compressed):
        path = tmp_path / "x.npz"
        save(path, d={Key("a"): a, Key("b"): b})  # type: ignore[operator]
        fmt = made(A, B)
        assert fmt.inspect(path).details == {"d/a": {"shape": [3]}, "d/b": {"shape": [5, 2]}}
        with closing(fmt.open(path)) as reader:
            batch = read(fmt, reader, [0])
        assert np.array_equal(batch["d/a"][0], a)
        assert np.array_equal(batch["d/b"], b)
        layout = fmt.layout(path)
        assert layout.num_samples == 1
        assert all(one.in_memory for one in layout.arrays.values())


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self._path),)


def uses(fmt: Format, path: Path) -> list[Callable[[], Any]]:
    def use() -> None:
        with closing(fmt.open(path)) as reader:
            read(fmt, reader, [0])

    return [lambda: fmt.inspect(path), use, lambda: fmt.layout(path)]


def test_a_dictionary_is_never_unpickled(tmp_path: Path) -> None:
    mark, path = tmp_path / "executed", tmp_path / "x.npz"
    np.savez(path, d={"a": np.ones(3, "f4"), "bomb": Bomb(mark)})  # type: ignore[arg-type]
    for use in uses(made(A), path):
        use()
    assert not mark.exists()
    with np.load(path, allow_pickle=True) as there:  # it is a bomb
        there["d"]
    assert mark.exists()


def test_other_dictionaries_are_refused(tmp_path: Path) -> None:
    members: dict[str, Any] = {
        "holds 1 arrays, but dataset.fields name 2": {"a": np.ones(3, "f4")},
        "holds more than 2 arrays": {"a": np.ones(3, "f4"), "b": np.ones((1, 2), "i2"), "c": np.ones(1, "f4")},
        "16 bytes, but the array in dataset.fields has 12": {"a": np.ones(4, "f4"), "b": np.ones((2, 2), "i2")},
        "not a pickled dictionary": np.ones(3, "f4"),
        "holds 0 arrays": np.array([1, "x"], object)[:1].reshape(()),
    }
    for words, content in members.items():
        path = tmp_path / "x.npz"
        np.savez(path, d=content)
        for use in uses(made(A, B), path):
            assert words in refusal(use)
            assert str(path) in refusal(use)
        assert not is_open(path)


def elements_of(content: bytes) -> list[Elements]:
    return list(read_elements(io.BufferedReader(io.BytesIO(content)), len(content)))


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=60), st.integers(0, 200))
def test_bytes_that_are_no_pickle_are_refused(noise: bytes, cut: int) -> None:
    content = pickle.dumps({"a": np.ones(30, "f4")}, 4)
    with pytest.raises(PickleError):
        elements_of(content[: min(cut, len(content) - 1)])
    for hostile in (noise, content[:cut] + noise):
        with suppress(PickleError):
            elements_of(hostile)


def test_a_size_that_lies_takes_no_memory() -> None:
    hostile = b"\x80\x04\x8e" + (1 << 60).to_bytes(8, "little")
    with pytest.raises(PickleError, match="announces 1152921504606846976 more bytes but has only 0"):
        elements_of(hostile)


def test_hostile_members_are_one_line(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|O", "fortran_order": False, "shape": ()})
    for content in (b"", b"\x80", b"\xff" * 40, b"X\xff\xff\xff\x7f"):
        path = tmp_path / "x.npz"
        with ZipFile(path, "w") as archive:
            archive.writestr("d.npy", header.getvalue() + content)
        for use in uses(made(A), path):
            with pytest.raises(DataError) as caught:
                use()
            assert str(path) in str(caught.value)
            assert "\n" not in str(caught.value)
