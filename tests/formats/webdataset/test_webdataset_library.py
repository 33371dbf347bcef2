"""Shards of WebDataset's own writer, of tarfile and of GNU tar: what is read is what WebDataset gives."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shard_reads import by_index, ignored, library, made, same, streamed, write_own

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.testing.contract import write
from dlio_torch.formats.webdataset.member_codec import decoder

wds = pytest.importorskip("webdataset", reason="webdataset is not installed")
Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return write_own(tmp_path / "own.tar")


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


@pytest.mark.parametrize("decode", ["rgb", "torchrgb"])
def test_images_as_floats_are_those_of_the_library(tmp_path: Path, decode: str) -> None:
    path = tmp_path / "a.tar"
    rng = np.random.default_rng(1)
    with wds.TarWriter(str(path)) as writer:
        for number in range(3):
            writer.write({"__key__": str(number), "jpg": rng.integers(0, 256, (6, 9, 3), np.uint8)})
    fmt = made(FieldConfig("jpg", "uint8", [6, 9, 3]), decode=decode)
    wanted = [(np.asarray(image),) for (image,) in library(path, "jpg", decode=decode)]
    assert wanted[0][0].dtype == np.float32
    assert wanted[0][0].shape == ((3, 6, 9) if decode == "torchrgb" else (6, 9, 3))
    same(streamed(fmt, path), wanted)
    same(by_index(fmt, path), wanted)
    with pytest.raises(ConfigError, match="which holds an image"):
        made(FieldConfig("jpg", "uint8", [3], length_mean=9), decode=decode)


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


def test_decoded_arrays_may_be_written_to(own: Path) -> None:
    for sample in streamed(made(*FIELDS.values()), own):
        assert all(array.flags.writeable for array in sample.values())


def test_filters_of_warnings_are_left_as_they_were(own: Path) -> None:
    decoder.cache_clear()
    before = list(warnings.filters)
    fmt = made(FIELDS["png"])
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: streamed(fmt, own), range(8)))
    assert warnings.filters == before


def test_warnings_of_the_user_s_program_are_shown_once_while_images_are_decoded(own: Path) -> None:
    fmt = made(FIELDS["png"])
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        for _ in range(3):
            streamed(fmt, own)
            warnings.warn("the same at each step", stacklevel=1)
    assert [str(warning.message) for warning in shown] == ["the same at each step"]


def test_warnings_of_pillow_are_those_of_a_plain_program(tmp_path: Path) -> None:
    path, stored = tmp_path / "a.tar", io.BytesIO()
    Image.new("RGB", (7, 6)).convert("P").save(stored, "PNG", transparency=bytes(9))
    with wds.TarWriter(str(path), encoder=False) as writer:
        writer.write({"__key__": "a", "png": stored.getvalue()})
    with pytest.warns(UserWarning, match="Palette images with Transparency"):
        wanted = library(path, "png", decode="rgb8")
    with pytest.warns(UserWarning, match="Palette images with Transparency"):
        same(streamed(made(FIELDS["png"]), path), wanted)
