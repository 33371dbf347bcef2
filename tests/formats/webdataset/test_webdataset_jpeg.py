"""JPEG members on the decoupled engine: native code decodes them where it can, Pillow the others."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.errors import DataError
from dlio_torch.formats.core.jpeg_decoder import plain_jpeg_decoder
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.webdataset import layout as webdataset_layout
from dlio_torch.native.memory import address_of

pytest.importorskip("webdataset", reason="webdataset is not installed")
Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

HEIGHT, WIDTH = 30, 41


@pytest.fixture(autouse=True)
def _needs_native_code() -> None:
    if plain_jpeg_decoder() is None:
        pytest.skip("needs a C compiler and a libturbojpeg that gives Pillow's pixels")


def encoded(number: int, height: int = HEIGHT, **options: Any) -> bytes:
    pixels = np.random.default_rng(number).integers(0, 256, (height // 3, WIDTH, 3), np.uint8).repeat(3, axis=0)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", **options)
    return file.getvalue()


def shard(path: Path, images: list[bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for number, stored in enumerate(images):
            info = tarfile.TarInfo(f"{number:04d}.jpg")
            info.size = len(stored)
            archive.addfile(info, io.BytesIO(stored))
    return path


def read(path: Path) -> list[bytes]:
    """Pixels of all samples by the layout of the shard."""
    fields = [FieldConfig("jpg", "uint8", shape=[HEIGHT, WIDTH, 3])]
    found = create(DatasetConfig(format="webdataset", path=str(path), fields=fields), 1).layout(path)
    assert found.records is not None
    rows = np.arange(found.num_samples, dtype=np.int64)
    size = HEIGHT * WIDTH * 3
    memory = np.zeros(len(rows) * size, np.uint8)
    records = found.records.plan(rows, (rows * size)[:, np.newaxis])
    found.records.read(records, 0, len(rows), address_of(memory), 1 << 20)
    return [memory[row * size : (row + 1) * size].tobytes() for row in rows.tolist()]


def by_pillow(stored: bytes) -> bytes:
    with Image.open(io.BytesIO(stored)) as image:
        return np.asarray(image.convert("RGB")).tobytes()


def test_plain_images_never_come_to_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = [encoded(number) for number in range(5)]
    path = shard(tmp_path / "a.tar", images)
    monkeypatch.setattr(webdataset_layout, "array_of", _never)
    assert read(path) == [by_pillow(stored) for stored in images]


def _never(*arguments: Any) -> None:
    raise AssertionError("an image came to Pillow")


def test_other_images_come_to_pillow(tmp_path: Path) -> None:
    images = [encoded(0), encoded(1, progressive=True), encoded(2)[:-2] + bytes(2), encoded(3)]
    assert read(shard(tmp_path / "a.tar", images)) == [by_pillow(stored) for stored in images]


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        (encoded(0)[:400], r"sample 0000: member jpg cannot be decoded"),
        (encoded(0, HEIGHT + 3), r"member jpg is uint8\[33, 41, 3\], but dataset.fields expect uint8\[30, 41, 3\]"),
    ],
)
def test_damage_and_other_sizes_are_errors_as_ever(stored: bytes, words: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=words):
        read(shard(tmp_path / "a.tar", [stored]))
