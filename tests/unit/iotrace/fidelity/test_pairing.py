"""Which file of one program plays the part of which file of another."""

from __future__ import annotations

import numpy as np
import pytest

from dlio_torch.errors import ConfigError
from dlio_torch.iotrace.fidelity.pairing import Pairing, mappings, pair
from dlio_torch.iotrace.fidelity.pairing_rules import SideFiles, shape
from dlio_torch.iotrace.figures.program_files import is_program


def files(*names: str, written: bool = False) -> SideFiles:
    """Files of which each later one moved fewer bytes."""
    moved = np.arange(len(names), 0, -1) * 1000
    nothing = np.zeros_like(moved)
    return SideFiles(names, nothing if written else moved, moved if written else nothing)


def pairs(a: SideFiles, b: SideFiles, found: Pairing) -> dict[str, str]:
    places = {number: name for name, number in zip(b.names, found.file_b.tolist(), strict=True) if number >= 0}
    numbers = zip(a.names, found.file_a.tolist(), strict=True)
    return {name: places[number] for name, number in numbers if number in places}


@pytest.mark.parametrize(
    ("of_a", "of_b", "expected", "how"),
    [
        (["/a/x", "/a/y"], ["/a/y", "/a/x"], {"/a/x": "/a/x", "/a/y": "/a/y"}, "2 by path"),
        # The longest end that is unique: the name alone is not.
        (
            ["/home/train/stats.h5", "/home/val/stats.h5"],
            ["/lus/v/val/stats.h5", "/lus/v/train/stats.h5"],
            {"/home/train/stats.h5": "/lus/v/train/stats.h5", "/home/val/stats.h5": "/lus/v/val/stats.h5"},
            "2 by end of path",
        ),
        (
            ["/a/img_10.npz", "/a/img_9.npz"],
            ["/b/img_0002.npz", "/b/img_0001.npz", "/b/img_0003.npz"],
            {"/a/img_9.npz": "/b/img_0001.npz", "/a/img_10.npz": "/b/img_0002.npz"},
            "2 by name without numbers",
        ),
        (["/a/tmp3x37c0i3"], ["/b/tmp5avhrxc1"], {"/a/tmp3x37c0i3": "/b/tmp5avhrxc1"}, "1 by name without numbers"),
        # By bytes within one suffix.
        (
            ["/a/cosmic_train.h5", "/a/cosmic_test.h5", "/a/notes.txt"],
            ["/b/data.h5", "/b/eval.h5"],
            {"/a/cosmic_train.h5": "/b/data.h5", "/a/cosmic_test.h5": "/b/eval.h5"},
            "2 by use",
        ),
        (["/a/one.csv"], ["/b/two.h5"], {}, "none"),
    ],
)
def test_rules(of_a: list[str], of_b: list[str], expected: dict[str, str], how: str) -> None:
    a, b = files(*of_a), files(*of_b)
    found = pair(a, b)
    assert pairs(a, b, found) == expected
    assert found.said() == how
    # A file without a partner has a number of its own.
    assert len(set(found.file_a.tolist()) | set(found.file_b.tolist())) == len(of_a) + len(of_b) - len(expected)


def test_a_file_that_is_written_does_not_stand_for_one_that_is_read() -> None:
    a, b = files("/a/in.h5"), files("/b/out.h5", written=True)
    assert pairs(a, b, pair(a, b)) == {}


def test_data_sets_of_different_size_are_one_part() -> None:
    a = files(*(f"/a/train/{number:04}.npz" for number in range(100)), "/a/model.pt")
    b = files(*(f"/b/{number}.npz" for number in range(7)))
    found = pair(a, b)
    assert set(found.part_a[:100].tolist()) == set(found.part_b.tolist())
    assert found.part_a[100] not in found.part_b
    assert found.part_labels == ("#.npz", "model.pt")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/a/run2/img_0012_of_20.hdf5", "/a/run#/img_#_of_#.hdf5"),
        ("train.h5", "train.h5"),
        ("shard12", "shard#"),
        ("m.ckpt.data-00000-of-00001", "m.ckpt.data-#-of-#"),
        ("/tmp/tmp_hxfhj25", "/tmp/tmp#"),
    ],
)
def test_numbers_are_no_part_of_a_shape(path: str, expected: str) -> None:
    assert shape(path) == expected


def test_a_mapping_pairs_what_rules_would_not() -> None:
    a = files("/x/train.h5", "/x/test.h5", "/x/log")
    b = files("/y/0.bin", "/y/1.tfrecord")
    found = pair(a, b, mappings(["train.h5=*.bin", "*/test.h5=/y/1.tfrecord"]))
    assert pairs(a, b, found) == {"/x/train.h5": "/y/0.bin", "/x/test.h5": "/y/1.tfrecord"}
    assert found.file_a[2] == -1
    assert found.said() == "2 by mapping"


def test_one_pattern_for_both() -> None:
    assert mappings(["*.h5"]) == (("*.h5", "*.h5"),)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("=b", "a side is empty"),
        ("a=", "a side is empty"),
        ("none", "--files none (command line): recording A has no file whose name matches 'none'"),
        (
            "none*=*",
            "recording A has no file whose name matches 'none*'; name files of recording A; the largest are /x/a.h5",
        ),
        ("*=none", "recording B has no file whose name matches 'none'"),
    ],
)
def test_mappings_that_cannot_be_used(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=r"^--files ") as raised:
        pair(files("/x/a.h5"), files("/y/b.h5"), mappings([text]))
    assert says in str(raised.value)


@pytest.mark.parametrize(
    "path",
    ["/usr/lib/libc.so.6", "/opt/x/site-packages/torch/_C.so", "/tmp/a.py", "/proc/self/io", "<STDERR>", "pipe:[12]"],
)
def test_files_of_the_program(path: str) -> None:
    assert is_program(path)


@pytest.mark.parametrize("path", ["/data/a.h5", "/dev/shm/set/a.npz", "/tmp/tmp3x37c0i3", "/home/u/model.pt"])
def test_data_files(path: str) -> None:
    assert not is_program(path)
