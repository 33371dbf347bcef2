"""Shards of WebDataset's own writer, of tarfile and of GNU tar: what is read is what WebDataset gives."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import subprocess
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.errors import ConfigError, DataError, MissingPackageError
from dlio_torch.formats.core.batch import Sample, samples_of
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.testing.contract import read, write
from dlio_torch.formats.webdataset.format import WebdatasetFormat
from dlio_torch.formats.webdataset.options import WebdatasetConfig

wds = pytest.importorskip("webdataset", reason="webdataset is not installed")
Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")


def made(*fields: FieldConfig, **options: Any) -> WebdatasetFormat:
    """The format for existing shards."""
    config = DatasetConfig(format="webdataset", path="x", fields=list(fields), webdataset=WebdatasetConfig(**options))
    fmt = create(config, 1)
    assert isinstance(fmt, WebdatasetFormat)
    return fmt


def ignored(error: Exception) -> bool:
    """As the library's ignore_and_continue."""
    return True


def library(path: Path, *names: str, decode: str = "", **options: Any) -> list[tuple[Any, ...]]:
    """The samples that a plain program gets: the stages of WebDataset, which itself leaves files open."""
    with open(path, "rb") as file:
        members = wds.tariterators.tar_file_expander(iter([{"url": str(path), "stream": file}]))
        samples = wds.tariterators.group_by_keys(members)
        decoded = wds.filters.decode(*[decode] if decode else [])(samples)
        return list(wds.filters.to_tuple(*names, **options)(decoded))


def streamed(fmt: WebdatasetFormat, path: Path) -> list[Sample]:
    with closing(fmt.open(path)) as reader:
        return list(fmt.stream(reader))


def by_index(fmt: WebdatasetFormat, path: Path) -> list[Sample]:
    count = fmt.inspect(path).num_samples
    with closing(fmt.open(path)) as reader:
        return [sample for _, sample in samples_of(read(fmt, reader, range(count)), fmt.specs())] if count else []


def same(samples: list[Sample], wanted: list[tuple[Any, ...]]) -> None:
    assert len(samples) == len(wanted)
    for sample, values in zip(samples, wanted, strict=True):
        for array, value in zip(sample.values(), values, strict=True):
            expected = np.frombuffer(value, np.uint8) if isinstance(value, bytes) else np.asarray(value)
            np.testing.assert_array_equal(array, expected)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A shard of images of any size, labels, arrays and more, written by the library's writer."""
    rng = np.random.default_rng(2)
    path = tmp_path / "own.tar"
    with wds.TarWriter(str(path)) as writer:
        for number in range(12):
            height, width = rng.integers(5, 40, 2)
            writer.write(
                {
                    "__key__": f"some/folder.{number}/{number:05d}",
                    "jpg": rng.integers(0, 256, (height, width, 3), np.uint8),
                    "png": rng.integers(0, 256, (6, 7, 3), np.uint8),
                    "cls": number * 3,
                    "x.npy": rng.random((2, 5)),
                    "v.npy": rng.integers(0, 9, (number % 4 + 1, 3)),
                    "json": {"number": number},
                    "pyd": [number, "never loaded"],
                }
            )
    return path


FIELDS = {
    "jpg": FieldConfig("jpg", "uint8", length_mean=900),
    "png": FieldConfig("png", "uint8", [6, 7, 3]),
    "cls": FieldConfig("cls", "int64"),
    "x.npy": FieldConfig("x.npy", "float64", [2, 5]),
    "v.npy": FieldConfig("v.npy", "int64", [3], length_mean=2),
}


def test_decoded_members_are_those_of_the_library(own: Path) -> None:
    names = [name for name in FIELDS if name != "jpg"]
    fmt = made(*(FIELDS[name] for name in names))
    wanted = library(own, *names, decode="rgb8")
    same(streamed(fmt, own), wanted)
    same(by_index(fmt, own), wanted)


@pytest.mark.parametrize(("decode", "axes"), [("rgb8", [3]), ("rgba8", [4]), ("l8", [])])
def test_images_of_any_size_are_their_pixels_one_after_another(own: Path, decode: str, axes: list[int]) -> None:
    fmt = made(FieldConfig("jpg", "uint8", axes, length_mean=900), decode=decode)
    wanted = [(image.reshape(-1, *axes),) for (image,) in library(own, "jpg", decode=decode)]
    same(streamed(fmt, own), wanted)
    same(by_index(fmt, own), wanted)


def test_stored_bytes_are_those_of_the_archive(own: Path) -> None:
    fmt = made(FieldConfig("jpg", "uint8", length_mean=9), FieldConfig("cls", "uint8", length_mean=2), decode="none")
    with tarfile.open(own) as archive:
        stored = {info.name: archive.extractfile(info).read() for info in archive}  # type: ignore[union-attr]
    wanted = [
        (stored[f"some/folder.{number}/{number:05d}.jpg"], stored[f"some/folder.{number}/{number:05d}.cls"])
        for number in range(12)
    ]
    same(streamed(fmt, own), wanted)
    same(by_index(fmt, own), wanted)


def test_alternatives_take_the_first_member_that_a_sample_has(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with wds.TarWriter(str(path)) as writer:
        for number, extension in enumerate(["png", "jpg", "png"]):
            writer.write({"__key__": str(number), extension: np.full((4, 5, 3), number, np.uint8)})
    fmt = made(FieldConfig("jpg;png", "uint8", [4, 5, 3]))
    same(streamed(fmt, path), library(path, "jpg;png", decode="rgb8"))
    same(by_index(fmt, path), library(path, "jpg;png", decode="rgb8"))


@pytest.mark.parametrize("compression", ["", "gz", "bz2", "xz"])
def test_missing_members(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, f"w:{compression}") as archive:
        for name, content in [("0.cls", b"1"), ("0.txt", b"a"), ("1.cls", b"2"), ("2.cls", b"3"), ("2.txt", b"")]:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    fields = [FieldConfig("cls", "int64"), FieldConfig("txt", "uint8", length_mean=1)]
    fmt = made(*fields, missing="skip")
    wanted = [(1, b"a"), (3, b"")]
    assert fmt.inspect(path).num_samples == 2
    same(streamed(fmt, path), wanted)
    same(by_index(fmt, path), wanted)
    assert len(library(path, "cls", "txt", handler=ignored)) == 2
    strict = made(*fields)
    for attempt in (strict.inspect, lambda path: streamed(strict, path), strict.layout):
        with pytest.raises(DataError, match=r"a\.tar: sample 1 has no member txt, but cls; set .*missing=skip"):
            attempt(path)


def entry(name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size, info.type = len(content), kind
    return info, content


NAMES = st.sampled_from(
    [
        "a/1.x",
        "a/1.y",
        "a/1.X",
        "2.x",
        "2.y.x",
        ".x",
        "a/.x",
        "x",
        "a.b/3.x",
        "__m__",
        "__m__/4.x",
        "5.",
        "é.x",
        "6.y" * 60,
    ]
)
KINDS = st.sampled_from([tarfile.REGTYPE] * 5 + [tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.FIFOTYPE, tarfile.CONTTYPE])
ENTRIES = st.lists(st.tuples(NAMES, st.binary(max_size=700), KINDS), min_size=1, max_size=9)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ENTRIES, st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))
def test_any_members_are_grouped_as_by_the_library(tmp_path: Path, entries: list[Any], layout: int) -> None:
    path = tmp_path / "any.tar"
    with tarfile.open(path, "w", format=layout) as archive:
        for name, content, kind in entries:
            regular = kind in (tarfile.REGTYPE, tarfile.CONTTYPE)
            info, stored = entry(name, content if regular else b"", kind)
            archive.addfile(info, io.BytesIO(stored))
    fmt = made(FieldConfig("x", "uint8", length_mean=1), decode="none", missing="skip")
    try:
        wanted = library(path, "x", handler=ignored)
    except ValueError:  # two members with one name
        for attempt in (fmt.inspect, lambda path: streamed(fmt, path)):
            with pytest.raises(DataError, match=r"any\.tar.*duplicate"):
                attempt(path)
        return
    assert fmt.inspect(path).num_samples == len(wanted)
    same(streamed(fmt, path), wanted)
    same(by_index(fmt, path), wanted)


@pytest.mark.skipif(shutil.which("tar") is None, reason="tar is not installed")
@pytest.mark.parametrize("options", [["--format=gnu"], ["--format=pax"], ["--format=v7"], ["-z"]])
def test_archives_of_gnu_tar_are_read(tmp_path: Path, options: list[str]) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(5):
        (source / f"{number}.cls").write_text(str(number))
        (source / f"{number}.bin").write_bytes(os.urandom(number * 300))
    (source / "link.cls").symlink_to("0.cls")
    path = tmp_path / "a.tar"
    subprocess.run(["tar", *options, "--sort=name", "-cf", path, "source"], cwd=tmp_path, check=True)
    fmt = made(FieldConfig("bin", "uint8", length_mean=9), FieldConfig("cls", "int64"))
    wanted = library(path, "bin", "cls")
    assert len(wanted) == 5
    same(streamed(fmt, path), wanted)
    same(by_index(fmt, path), wanted)


def test_generated_shards_are_read_by_the_library(tmp_path: Path) -> None:
    fields = [
        FieldConfig("jpg", "uint8", [20, 30, 3]),
        FieldConfig("cls", "int64"),
        FieldConfig("npy", "float32", [3, 4]),
        FieldConfig("json", "uint8", length_mean=60, length_stdev=20),
        FieldConfig("txt", "uint8", length_mean=20, length_stdev=5),
    ]
    config = DatasetConfig(format="webdataset", fields=fields)
    fmt = create(config, 3)
    path = write(fmt, tmp_path / "a.tar", 5, 9)
    with tarfile.open(path) as archive:
        infos = archive.getmembers()
    assert [info.name for info in infos[:5]] == [f"000000005.{e}" for e in ("cls", "jpg", "json", "npy", "txt")]
    assert len({info.mtime for info in infos}) == 1
    wanted = library(path, "jpg", "cls", "npy", "json", "txt", decode="rgb8")
    for number, (image, label, array, document, text) in enumerate(wanted):
        sample = fmt.expected(5 + number)
        np.testing.assert_array_equal(sample["jpg"], image)
        np.testing.assert_array_equal(sample["npy"], array)
        assert sample["cls"] == label < 1000
        assert json.loads(sample["json"].tobytes()) == document
        assert sample["txt"].tobytes().decode() == text


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


@pytest.mark.parametrize(("field", "options", "words"), REFUSED)
def test_fields_that_no_member_can_give_are_refused(field: FieldConfig, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        made(field, **options)


def test_the_missing_library_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "webdataset", None)
    with pytest.raises(MissingPackageError, match=r"needs webdataset.*pip install 'dlio-torch\[webdataset\]'"):
        made(FieldConfig("cls", "int64"))
