"""Description of shards of unknown origin."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import DataError
from dlio_torch.formats.core.data_description import DataDescription
from dlio_torch.formats.core.inspection import inspect_path
from dlio_torch.formats.core.recognition import recognised_file
from dlio_torch.formats.core.registry import create, facts, read_content
from dlio_torch.formats.webdataset import describe as described_by
from dlio_torch.formats.webdataset.describe import describe
from dlio_torch.formats.webdataset.options import WebdatasetConfig

wds = pytest.importorskip("webdataset", reason="webdataset is not installed")
pytest.importorskip("PIL", reason="Pillow is not installed")


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def archive(path: Path, members: Sequence[tuple[str, bytes]], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as file:  # type: ignore[call-overload]
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    return path


def fields(description: DataDescription) -> dict[str, tuple[str, list[int], float]]:
    return {entry.name: (entry.dtype, entry.shape, entry.length_mean) for entry in description.fields}


def test_members_of_the_library_s_writer(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with wds.TarWriter(str(path)) as writer:
        for number in range(6):
            writer.write(
                {
                    "__key__": f"{number:05d}",
                    "jpg": np.zeros((8 + number, 9, 3), np.uint8),
                    "cls": number,
                    "x.npy": np.zeros((3, 4), np.float32),
                    "v.npy": np.zeros((number + 1, 4), np.int16),
                    "json": {"a": number},
                    "pyd": {"a": number},
                }
            )
    description = describe(path)
    assert description.samples == 6
    assert dict(description.options) == {"decode": "basic"}
    assert not description.questions
    got = fields(description)
    sizes = {array.name: array.stored_bytes or 0 for array in description.arrays}
    assert got.pop("jpg") == ("uint8", [], round(sizes["jpg"] / 6, 1))
    assert got.pop("pyd") == ("uint8", [], round(sizes["pyd"] / 6, 1))
    assert got == {
        "cls": ("int64", [], 0.0),
        "x.npy": ("float32", [3, 4], 0.0),
        "v.npy": ("int16", [4], 3.5),
        "json": ("uint8", [], 8.0),
    }
    notes = {array.name: array.note for array in description.arrays}
    assert notes["jpg"] == "9 x 8 RGB, 9 x 9 RGB, 9 x 10 RGB, 9 x 11 RGB, ..."
    assert "never loaded" in notes["pyd"]
    assert "dataset.webdataset.decode=rgb8" in description.notes[0]
    # What it says is what reads the shard, decoded or not.
    for decode in ("basic", "rgb8"):
        fmt = create(
            DatasetConfig(
                format="webdataset",
                path=str(path),
                fields=list(description.fields),
                webdataset=WebdatasetConfig(decode=decode),  # type: ignore[arg-type]
            ),
            1,
        )
        assert fmt.inspect(path).num_samples == 6
        with closing(fmt.open(path)) as reader:
            samples = list(fmt.stream(reader))
        assert [int(sample["cls"]) for sample in samples] == list(range(6))
        assert len(samples[5]["jpg"]) == 13 * 9 * 3 or decode == "basic"


ODD = {
    "objects": ([npy(np.array([{}], object))], "pickled objects"),
    "big-endian": ([npy(np.zeros(3, ">f4"))], "element type >f4"),
    "strings": ([npy(np.array(["a"]))], "element type <U1"),
    "different": ([npy(np.zeros(3, "f4")), npy(np.zeros(3, "f8"))], r"arrays differ: float32\[3\] and float64\[3\]"),
    "no array": ([b"something else"], "is no NumPy array"),
    "cut": ([npy(np.zeros(9))[:-8]], "requires"),
}


@pytest.mark.parametrize("case", ODD)
def test_arrays_that_cannot_be_read_are_named(case: str, tmp_path: Path) -> None:
    contents, words = ODD[case]
    members = [(f"{number}.{e}", c) for number, data in enumerate(contents) for e, c in (("npy", data), ("cls", b"1"))]
    description = describe(archive(tmp_path / "a.tar", members))
    assert list(fields(description)) == ["cls"]
    (array,) = (array for array in description.arrays if array.name == "npy")
    assert re.search(words, array.note), array.note


def test_members_that_some_samples_lack(tmp_path: Path) -> None:
    members = [("0.cls", b"1"), ("0.txt", b""), ("1.cls", b"2"), ("2.cls", b"x"), ("2.txt", b"abc")]
    description = describe(archive(tmp_path / "a.tar", members[:3]))
    assert list(fields(description)) == ["cls"]
    assert description.arrays[1].note.startswith("missing in 1 of 2 samples; not read unless")
    assert "1 of 1 are empty" in description.arrays[1].note
    # No member is good for all samples: the user decides.
    description = describe(archive(tmp_path / "b.tar", members))
    assert not description.fields
    assert [question.setting for question in description.questions] == [
        "dataset.fields=[{name: cls, dtype: uint8, length_mean: 1}]"
    ]
    description = describe(archive(tmp_path / "c.tar", [*members[1:3], ("3.txt", b"a")]))
    assert [question.setting for question in description.questions] == [
        "dataset.fields=[{name: txt, dtype: uint8, length_mean: 1}]",
        "dataset.webdataset.missing=skip",
    ]


def test_members_that_belong_to_no_sample_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as file:
        kinds = [
            ("a", tarfile.DIRTYPE),
            ("l.cls", tarfile.SYMTYPE),
            ("h.cls", tarfile.LNKTYPE),
            ("f", tarfile.FIFOTYPE),
        ]
        for name, kind in kinds:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "a/0.cls"
            file.addfile(info)
        for name in ("a/0.cls", "README", "__meta__", "a/1.cls", "a/0.txt"):
            info = tarfile.TarInfo(name)
            info.size = 1
            file.addfile(info, io.BytesIO(b"1"))
    description = describe(path)
    assert description.samples == 3  # one key comes twice
    assert description.notes[0] == (
        "passed over by WebDataset: 1 folder, 2 links, 1 device or other special file, "
        "2 files without key and extension"
    )
    assert description.notes[1].startswith("1 sample with the key of an earlier one")


@pytest.mark.parametrize(
    ("name", "mode"), [("a.tar.gz", "w:gz"), ("a.tgz", "w:gz"), ("a.tar.xz", "w:xz"), ("a.bin", "w")]
)
def test_archives_are_recognised(tmp_path: Path, name: str, mode: str) -> None:
    path = archive(tmp_path / name, [("0.cls", b"1"), ("1.cls", b"2")], mode)
    kind = recognised_file(path)
    assert kind is not None
    assert kind.name == "webdataset"
    description = describe(path)
    assert description.samples == 2
    assert description.details["compressed"] == ("no" if mode == "w" else "yes")
    content: dict[str, Any] = {"path": str(path), "bytes": path.stat().st_size, "format": "webdataset"}
    read_content(kind, path, content)
    assert kind.content_text(content) == "2 samples of members cls"


def test_other_files_are_not_recognised(tmp_path: Path) -> None:
    for content in (b"", b"x" * 2000, bytes(1024)):
        (tmp_path / "a.dat").write_bytes(content)
        assert recognised_file(tmp_path / "a.dat") is None


def test_a_folder_and_a_pattern_of_shards(tmp_path: Path) -> None:
    for number in range(3):
        archive(tmp_path / f"train-{number:02d}.tar", [(f"{number}.cls", b"1")])
    for place in (str(tmp_path), f"{tmp_path}/train-{{00..02}}.tar", f"{tmp_path}/*.tar"):
        inspection = inspect_path(place)
        assert (inspection.format, inspection.files) == ("webdataset", 3)
    assert facts(inspection.format).choices == {"access": "stream_pool"}


def test_an_archive_without_samples_is_refused(tmp_path: Path) -> None:
    for members in ([], [("README", b"x")]):
        with pytest.raises(DataError, match=r"a\.tar holds no samples"):
            describe(archive(tmp_path / "a.tar", members))


def test_of_a_huge_shard_only_the_first_headers_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = [(f"{number}.cls", b"1" * 9) for number in range(20)]
    for unpacked, shown in ((4000, {"w": 5, "w:gz": 4}), (1 << 20, {"w": 5, "w:gz": 5})):
        monkeypatch.setattr(described_by, "_MOST_MEMBERS", 5)
        monkeypatch.setattr(described_by, "_MOST_UNPACKED", unpacked)
        for mode, samples in shown.items():
            description = describe(archive(tmp_path / "a.tar", members, mode))
            assert description.samples is None
            assert f"not all headers were read; at least {samples} samples" in description.notes[-1]
