"""Existing LMDB environments, written by the library as conversion scripts write them."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from existing_samples import read_existing, settings_of
from hypothesis import given
from hypothesis import strategies as st

from dlio_torch.errors import DataError
from dlio_torch.formats.core.inspection import inspect_path
from dlio_torch.formats.lmdb.key_patterns import pattern_of

lmdb = pytest.importorskip("lmdb", reason="lmdb is not installed")

RNG = np.random.default_rng(4)
IMAGES = [b"\xff\xd8\xff" + RNG.bytes(int(size)) for size in RNG.integers(100, 9000, 120)]


def environment(path: Path, entries: Iterable[tuple[str, bytes]], *, subdir: bool = True) -> Path:
    with lmdb.open(str(path), map_size=1 << 26, subdir=subdir) as opened, opened.begin(write=True) as transaction:
        for key, value in entries:
            transaction.put(key.encode(), value)
    return path


def images(path: Path, field: str = "data") -> list[bytes]:
    both = [
        [sample[field].tobytes() for sample in read_existing(path, f"loader.engine={engine}")]
        for engine in ("dataloader", "decoupled")
    ]
    assert both[0] == both[1]
    return both[0]


@pytest.mark.parametrize(
    ("key", "first"), [("{index:08d}", 0), ("{index}", 0), ("{index}", 1), ("img_{index:06d}.jpg", 17)]
)
def test_numbered_keys(key: str, first: int, tmp_path: Path) -> None:
    path = environment(
        tmp_path / "train_lmdb", ((key.format(index=first + number), image) for number, image in enumerate(IMAGES))
    )
    assert images(path) == IMAGES
    options = settings_of(path).get("lmdb", {})
    assert (options.get("key", "{index:08d}"), options.get("first_index", 0)) == (key, first)
    (array,) = inspect_path(str(path)).description.arrays
    assert "JPEG" in array.dtype
    assert images(tmp_path) == IMAGES  # the folder that it lies in


def test_entries_that_are_no_samples(tmp_path: Path) -> None:
    entries = [(str(number), pickle.dumps((image, number))) for number, image in enumerate(IMAGES)]
    extra = [("__len__", pickle.dumps(120)), ("__keys__", pickle.dumps([key for key, _ in entries]))]
    path = environment(tmp_path / "a.lmdb", [*entries, *extra], subdir=False)
    assert images(path) == [value for _, value in entries]
    inspection = inspect_path(str(path))
    assert inspection.settings()["lmdb"] == {
        "key": "{index}",
        "other_entries": ["__keys__", "__len__"],
        "subdir": False,
    }
    assert "pickles, which are never loaded" in inspection.description.arrays[0].dtype


def test_images_and_labels(tmp_path: Path) -> None:
    entries = [(f"image-{number + 1:09d}", image) for number, image in enumerate(IMAGES)]
    entries += [(f"label-{number + 1:09d}", b"word" * (1 + number % 3)) for number in range(120)]
    path = environment(tmp_path / "a", [*entries, ("num-samples", b"120")])
    assert images(path, "image") == IMAGES
    assert images(path, "label")[2] == b"wordwordword"


def test_keys_without_a_pattern_are_listed(tmp_path: Path) -> None:
    entries = {hashlib.sha1(image).hexdigest(): image for image in IMAGES}
    path = environment(tmp_path / "a", entries.items())
    assert settings_of(path)["lmdb"] == {"key": ""}
    assert images(path) == [entries[key] for key in sorted(entries)]


def test_arrays_of_one_size(tmp_path: Path) -> None:
    rows = RNG.random((50, 300)).astype(np.float32)
    path = environment(tmp_path / "a", ((f"{number:05d}", row.tobytes()) for number, row in enumerate(rows)))
    assert settings_of(path)["fields"] == [{"name": "data", "dtype": "uint8", "shape": [1200]}]
    samples = read_existing(path, "dataset.fields=[{name: row, dtype: float32, shape: [300]}]")
    assert np.array_equal([sample["row"] for sample in samples], rows)


def test_what_is_no_environment(tmp_path: Path) -> None:
    named = tmp_path / "named"
    with lmdb.open(str(named), max_dbs=1) as opened:
        inner = opened.open_db(b"images")
        with opened.begin(write=True, db=inner) as transaction:
            transaction.put(b"a", b"b")
    environment(tmp_path / "void", [])
    cut = environment(tmp_path / "cut", [(f"{number}", image) for number, image in enumerate(IMAGES)])
    (cut / "data.mdb").write_bytes((cut / "data.mdb").read_bytes()[:40_000])
    (tmp_path / "junk.lmdb").write_bytes(b"junk" * 5000)
    for name, words in {
        "named": "only named databases",
        "void": "holds no samples",
        "cut": "is incomplete",
        "junk.lmdb": "not an LMDB file",
    }.items():
        with pytest.raises(DataError, match=words) as caught:
            inspect_path(str(tmp_path / name))
        assert str(tmp_path / name) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_named_database_beside_samples_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with lmdb.open(str(path), max_dbs=1, map_size=1 << 24) as opened:
        opened.open_db(b"zz")
        with opened.begin(write=True) as transaction:
            for number, image in enumerate(IMAGES):
                transaction.put(f"{number:08d}".encode(), image)
    assert any("named databases, which are not read: zz" in note for note in inspect_path(str(path)).description.notes)
    assert images(path) == IMAGES


@given(
    st.text("ab-{}", max_size=4),
    st.text("ab-.", max_size=3),
    st.integers(0, 5),
    st.integers(0, 120),
    st.integers(1, 130),
    st.booleans(),
)
def test_a_pattern_gives_the_keys(prefix: str, suffix: str, width: int, first: int, count: int, extra: bool) -> None:
    keys = {f"{prefix}{number:0{width}d}{suffix}".encode() for number in range(first, first + count)}
    others = {b"__len__"} if extra else set()
    tree = sorted(keys | others)
    pattern = pattern_of([*tree[:50], tree[-1]], len(tree), lambda key: key in tree)
    assert pattern is not None
    assert set(pattern.others) == others
    if pattern.key:
        names = list(pattern.fields)
        assert len(names) == 1
        made = {pattern.key.format(index=pattern.first_index + n, field=names[0]).encode() for n in range(count)}
        assert made == keys
