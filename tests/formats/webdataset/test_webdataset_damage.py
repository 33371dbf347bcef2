"""Damaged shards, members that cannot be decoded, and fields that no member can give: one line each."""

from __future__ import annotations

import gzip
import io
import os
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shard_reads import by_index, made, streamed, write_own

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.errors import ConfigError, DataError, MissingPackageError
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.testing.contract import refusal

wds = pytest.importorskip("webdataset", reason="webdataset is not installed")
Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return write_own(tmp_path / "own.tar")


CASES = {
    "no tar": (lambda data: b"no tar" * 999, "is not a tar archive"),
    "a gzip stream that is cut": (lambda data: gzip.compress(data)[:200], "cannot be read"),
    "a gzip stream with a damaged header": (
        lambda data: gzip.compress(data[:2058] + b"?" + data[2059:]),
        "bad checksum in the header of the member at byte 2048",
    ),
    "cut in a member": (lambda data: data[: 2048 + 1024], "empty header"),
    "cut in a header": (
        lambda data: data[: 2048 * 3 + 100],
        r"truncated header in the header of the member at byte 6144",
    ),
    "a damaged header": (
        lambda data: data[:2058] + b"?" + data[2059:],
        "bad checksum in the header of the member at byte 2048",
    ),
    "a negative size": (lambda data: negative() + data, "negative size in the header of the member at byte 0"),
}


def negative() -> bytes:
    """A header that leads back to itself."""
    info = tarfile.TarInfo("a.cls")
    info.size = -1024
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize("case", CASES)
def test_a_damaged_shard_is_one_line(tmp_path: Path, case: str) -> None:
    damage, words = CASES[case]
    path = tmp_path / "a.tar"
    with wds.TarWriter(str(path)) as writer:
        for number in range(9):
            writer.write({"__key__": str(number), "cls": number})
    path.write_bytes(damage(path.read_bytes()))
    fmt = made(FieldConfig("cls", "int64"))
    for attempt in (fmt.inspect, lambda path: by_index(fmt, path)):
        with pytest.raises(DataError, match=words) as caught:
            attempt(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_what_cannot_be_decoded_is_named(own: Path, tmp_path: Path) -> None:
    cases = [
        (
            [FieldConfig("png", "uint8", [6, 8, 3])],
            {},
            r"sample .*00000: member png is uint8\[6, 7, 3\], but .*\[6, 8, 3\]",
        ),
        ([FieldConfig("x.npy", "float32", [2, 5])], {}, r"member x\.npy is float64\[2, 5\]"),
        ([FieldConfig("json", "float32", [2])], {}, r"member json has \d+ bytes, but dataset.fields expect 8"),
    ]
    for fields, options, words in cases:
        with pytest.raises(DataError, match=words):
            streamed(made(*fields, **options), own)
    path = tmp_path / "bad.tar"
    with wds.TarWriter(str(path), encoder=False) as writer:
        writer.write({"__key__": "a", "jpg": b"no image", "cls": b"no number", "npy": b"\x93NUMPY broken"})
    for field in (FieldConfig("jpg", "uint8", [2, 2, 3]), FieldConfig("cls", "int64"), FieldConfig("npy", shape=[2])):
        with pytest.raises(
            DataError, match=rf"bad\.tar: sample a: member {field.name} cannot be decoded: .*decode=none"
        ):
            streamed(made(field), path)


@pytest.mark.parametrize("shape", [(4, 16), (64,), (), (8, 8, 1)])
def test_rows_of_another_shape_are_refused_by_both_engines(tmp_path: Path, shape: tuple[int, ...]) -> None:
    path = tmp_path / "a.tar"
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    with wds.TarWriter(str(path)) as writer:
        writer.write({"__key__": "a", "npy": array})
    fmt = made(FieldConfig("npy", "int64", [8], length_mean=2))
    reads: list[Callable[[], object]] = [
        lambda: streamed(fmt, path),
        lambda: by_index(fmt, path),
        lambda: fmt.layout(path),
    ]
    for use in reads:
        line = refusal(use)
        assert f"int64{list(shape)}, but dataset.fields expect" in line
        assert str(path) in line
    flat = made(FieldConfig("npy", "int64", length_mean=2))
    np.testing.assert_array_equal(streamed(flat, path)[0]["npy"], array.reshape(-1))
    layout = flat.layout(path)
    assert layout.arrays["npy"].sizes(np.array([0])).tolist() == [array.nbytes]
    os.close(layout.descriptors[path])


def test_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    buffer = io.BytesIO()
    np.save(buffer, np.array([{}], object), allow_pickle=True)
    with wds.TarWriter(str(path), encoder=False) as writer:
        writer.write({"__key__": "a", "npy": buffer.getvalue(), "pkl": b"cos\nsystem\n(S'false'\ntR."})
    with pytest.raises(DataError, match="npy cannot be decoded: Object arrays"):
        streamed(made(FieldConfig("npy", "float32", [1])), path)
    (sample,) = streamed(made(FieldConfig("pkl", "uint8", length_mean=1)), path)
    assert sample["pkl"].tobytes().startswith(b"cos")


REFUSED: list[tuple[FieldConfig, dict[str, Any], str]] = [
    (FieldConfig("JPG", "uint8", [4, 4, 3]), {}, "'JPG' is not the extension of a member"),
    (FieldConfig("__key__", "uint8", [4]), {}, "not the extension"),
    (FieldConfig("jpg", "float32", [4, 4, 3]), {}, r"jpg is float32\[4, 4, 3\].*holds an image"),
    (FieldConfig("jpg", "uint8", [4, 4, 3]), {"decode": "l8"}, r"shape: \[HEIGHT, WIDTH\]"),
    (FieldConfig("cls", "float32"), {}, "decodes to one integer"),
    (FieldConfig("cls", "int64", length_mean=2), {}, "decodes to one integer"),
]


@pytest.mark.parametrize(("name", "channels"), [("jpg", 5), ("png", 2)])
def test_images_that_cannot_be_generated_are_refused(name: str, channels: int) -> None:
    field = FieldConfig(name, "uint8", [8, 8, channels])
    with pytest.raises(ConfigError, match=rf"{name}.*holds an image"):
        create(DatasetConfig(format="webdataset", fields=[field]), 1)


def test_an_image_that_pillow_cannot_write_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    Image.init()
    monkeypatch.delitem(Image.EXTENSION, ".webp", raising=False)  # as in a build without it
    with pytest.raises(ConfigError, match=r"cannot write \[8, 8, 3\] as webp"):
        create(DatasetConfig(format="webdataset", fields=[FieldConfig("webp", "uint8", [8, 8, 3])]), 1)


@pytest.mark.parametrize(("field", "options", "words"), REFUSED)
def test_fields_that_no_member_can_give_are_refused(field: FieldConfig, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        made(field, **options)


def test_the_missing_library_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "webdataset", None)
    with pytest.raises(MissingPackageError, match=r"needs webdataset.*pip install 'dlio-torch\[webdataset\]'"):
        made(FieldConfig("cls", "int64"))
