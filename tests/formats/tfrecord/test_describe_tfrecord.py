"""Existing TFRecord files: features of the first records, their lengths, compression and index files."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example_protos import example_record, framed
from existing_samples import read_existing, settings_of

from dlio_torch.errors import DataError
from dlio_torch.formats.core.data_description import DataDescription
from dlio_torch.formats.core.inspection import inspect_path
from dlio_torch.formats.tfrecord.index import RecordIndex


def image(number: int) -> bytes:
    return b"\xff\xd8\xff" + bytes([number]) * (number * 3 + 5)


def records(count: int = 6) -> list[bytes]:
    return [
        example_record(
            {
                "image/encoded": [image(number)],
                "image/class/label": [number * 1000],
                "box": [0.5, 1.5, float(number), 2.5],
                "tokens": list(range(number + 1)),
                "code": [b"abcd"],
            }
        )
        for number in range(count)
    ]


def described(path: Path) -> DataDescription:
    return inspect_path(str(path)).description


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {"none": bytes, "gzip": gzip.compress, "zlib": zlib.compress}


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("name", ["a.tfrecord", "train.tfrecords", "tfrecords-00000-of-00001"])
def test_a_file_of_images(compression: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(COMPRESSIONS[compression](b"".join(records())))
    for engine in ("dataloader", "decoupled"):
        samples = read_existing(path, f"loader.engine={engine}")
        assert [sample["image/encoded"].tobytes() for sample in samples] == [image(number) for number in range(6)]
        assert [int(sample["image/class/label"]) for sample in samples] == [number * 1000 for number in range(6)]
        assert samples[3]["box"].tolist() == [0.5, 1.5, 3.0, 2.5]
        assert samples[4]["tokens"].tolist() == [0, 1, 2, 3, 4]
        assert samples[0]["code"].shape == (4,)
    settings: dict[str, Any] = settings_of(path)["tfrecord"]
    assert settings.get("compression", "none") == compression
    assert settings["float_lists"] == ["box"]
    assert any("JPEG" in array.dtype for array in described(path).arrays)


def test_a_folder_with_another_suffix(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f"{number}.tfrecords").write_bytes(b"".join(records()))
    assert len(read_existing(tmp_path)) == 12


def test_index_files_are_used_if_all_have_one(tmp_path: Path) -> None:
    content = records()
    ends = np.cumsum([0, *map(len, content)])
    for number in range(2):
        path = tmp_path / f"{number}.tfrecord"
        path.write_bytes(b"".join(content))
        path.with_name(f"{path.name}.idx").write_text(RecordIndex(ends).text())
    inspection = inspect_path(str(tmp_path))
    assert inspection.files == 2
    assert inspection.settings()["tfrecord"]["index"] is True
    assert len(read_existing(tmp_path)) == 12
    (tmp_path / "1.tfrecord.idx").unlink()
    assert "index" not in settings_of(tmp_path)["tfrecord"]
    (tmp_path / "0.tfrecord.idx").write_text("nonsense")
    assert any("index is not used" in note for note in described(tmp_path).notes)


def test_features_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"good": [1], "sometimes": [2], "strings": [b"a", b"b"], "changes": [1], "index": [4], "nothing": [b""]},
        {"good": [3], "strings": [b"a"], "changes": [1.5], "index": [4], "nothing": [b""]},
    ]
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"".join(map(example_record, rows)))
    notes = {array.name: array.note for array in described(path).arrays}
    assert not notes["good"]
    for name, words in {
        "sometimes": "is missing in record 1",
        "strings": "holds 2 byte strings in record 0",
        "changes": "floats and integers",
        "index": "reserved",
        "nothing": "is empty",
    }.items():
        assert words in notes[name]
    assert [int(sample["good"]) for sample in read_existing(path)] == [1, 3]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "holds no records"),
        (framed(b"hello world"), "record 0 is not an Example proto"),
        (framed(b""), "record 0 is not an Example proto"),
        (records(1)[0] + framed(b"other"), "record 1 is not an Example proto"),
        (records(1)[0][:-3], "ends within the data"),
        (gzip.compress(records(1)[0])[:-12], "truncated|ends within"),
        (b"\x78\x9c" + b"nonsense", "not a gzip or zlib file|truncated"),
        (example_record({"a": [b"x", b"y"]}), "no feature that can be read: a: holds 2 byte strings"),
    ],
)
def test_what_cannot_be_read(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(content)
    with pytest.raises(DataError, match=words) as caught:
        inspect_path(str(path))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
