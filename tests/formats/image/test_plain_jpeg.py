"""JPEG images by native code: Pillow's pixels, and Pillow's errors for what is damaged."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decoupled_data import data_of
from hypothesis import given, settings
from hypothesis import strategies as st

from dlio_torch.config.schema import DatasetConfig, FieldConfig, LoaderConfig
from dlio_torch.data.engines.batch_loader import BatchLoader
from dlio_torch.data.engines.decoupled.batch_groups import DecoupledSource
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import SamplerSpec
from dlio_torch.errors import DataError
from dlio_torch.formats.core import jpeg_decoder
from dlio_torch.formats.core.jpeg_decoder import PlainJpegDecoder, plain_jpeg_decoder
from dlio_torch.formats.core.layout import Copies, FileLayout
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.image.options import ImageConfig
from dlio_torch.iotrace.events.event_table import read_events
from dlio_torch.iotrace.recorder.spans import Recorder
from dlio_torch.native.memory import address_of

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")


@pytest.fixture(scope="module")
def decoder() -> PlainJpegDecoder:
    found = plain_jpeg_decoder()
    if found is None:
        pytest.skip("needs a C compiler and a libturbojpeg that gives Pillow's pixels")
    return found


def encoded(pixels: Any, mode: str = "RGB", kind: str = "JPEG", **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, kind, **options)
    return file.getvalue()


def pixels_of(height: int, width: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Noise on a slope."""
    slope = np.add.outer(np.arange(height) * 3, np.arange(width))[:, :, np.newaxis] * np.array([1, 2, 5])
    noise = np.random.default_rng(seed).integers(0, 40, (height, width, 3))
    return ((slope + noise) % 256).astype(np.uint8)


def by_pillow(stored: bytes) -> np.ndarray[Any, Any]:
    with Image.open(io.BytesIO(stored)) as image:
        return np.asarray(image.convert("RGB"))


def by_native(decoder: PlainJpegDecoder, stored: bytes) -> np.ndarray[Any, Any] | None:
    """Its pixels; ``None``: the image is left to Pillow."""
    memory = np.frombuffer(stored + b"-", np.uint8).copy()
    header = decoder.header(address_of(memory), len(stored))
    if header is None:
        return None
    guarded = np.full(header.height * header.width * 3 + 64, 7, np.uint8)
    sound = decoder.decode(address_of(memory), len(stored), header, address_of(guarded) + 32)
    assert (guarded[:32] == 7).all()
    assert (guarded[-32:] == 7).all()
    return guarded[32:-32].reshape(header.height, header.width, 3) if sound else None


def taken(layout: FileLayout, fmt: Any) -> dict[str, bytes]:
    """Bytes of the arrays of the only sample."""
    rows, specs = np.zeros(1, np.int64), fmt.specs()
    if layout.records is not None:
        sizes = layout.records.sizes(rows)
        memory = np.zeros(int(sizes.sum()), np.uint8)
        ends = np.cumsum(sizes, axis=1)
        records = layout.records.plan(rows, ends - sizes)
        layout.records.read(records, 0, 1, address_of(memory), 1 << 20)
        parts = [memory[end - size : end] for end, size in zip(ends[0], sizes[0], strict=True)]
        return {spec.name: part.tobytes() for spec, part in zip(specs, parts, strict=True)}
    arrays = {}
    for name, array in layout.arrays.items():
        plan = array.plan(rows, rows)
        assert isinstance(plan, Copies)
        memory = np.zeros(int(plan.lengths[0]), np.uint8)
        np.copyto(memory, array.memory[0].reshape(-1).view(np.uint8))
        arrays[name] = memory.tobytes()
    return arrays


def folder_format(root: Path) -> Any:
    config = DatasetConfig(format="imagefolder", path=str(root), image=ImageConfig(classes=False))
    return create(config, 1)


@settings(max_examples=100, deadline=None)
@given(
    height=st.integers(1, 70),
    width=st.integers(1, 70),
    sampling=st.sampled_from([0, 1, 2]),
    quality=st.integers(1, 100),
    mode=st.sampled_from(["RGB", "L"]),
    options=st.sampled_from([{}, {"optimize": True}, {"restart_marker_rows": 1}, {"comment": b"a comment"}]),
)
def test_pixels_are_those_of_pillow(
    decoder: PlainJpegDecoder, height: int, width: int, sampling: int, quality: int, mode: str, options: dict[str, Any]
) -> None:
    stored = encoded(pixels_of(height, width), mode, subsampling=sampling, quality=quality, **options)
    got = by_native(decoder, stored)
    assert got is not None
    assert np.array_equal(got, by_pillow(stored))


OTHERS = {
    "progressive": lambda: encoded(pixels_of(20, 30), progressive=True),
    "cmyk": lambda: encoded(pixels_of(20, 30), "CMYK"),
    "rgb": lambda: encoded(pixels_of(20, 30), keep_rgb=True),
    "png": lambda: encoded(pixels_of(20, 30), kind="PNG"),
    "several": lambda: encoded(
        pixels_of(20, 30), kind="MPO", save_all=True, append_images=[Image.new("RGB", (30, 20))]
    ),
    "empty": lambda: b"",
    "short": lambda: b"\xff\xd8\xff",
}


@pytest.mark.parametrize("kind", OTHERS)
def test_unusual_images_are_left_to_pillow(decoder: PlainJpegDecoder, kind: str) -> None:
    assert by_native(decoder, OTHERS[kind]()) is None


def test_a_header_without_its_own_colours_is_left_to_pillow(decoder: PlainJpegDecoder) -> None:
    stored = bytearray(encoded(pixels_of(20, 30)))
    frame = stored.index(b"\xff\xc0")
    stored[frame + 10 : frame + 19 : 3] = b"RGB"
    assert by_native(decoder, bytes(stored)) is None


def test_exif_and_profiles_change_nothing(decoder: PlainJpegDecoder) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    stored = encoded(pixels_of(33, 21), exif=exif, icc_profile=bytes(300), dpi=(300, 300))
    got = by_native(decoder, stored)
    assert got is not None
    assert np.array_equal(got, by_pillow(stored))


def test_no_cut_and_no_damage_gives_other_pixels_than_pillow(decoder: PlainJpegDecoder) -> None:
    whole = encoded(pixels_of(17, 24), quality=60)
    damaged = [whole[:length] for length in range(0, len(whole), 3)]
    generator = np.random.default_rng(2)
    for position in range(len(whole)):
        other = bytearray(whole)
        other[position] ^= 1 << int(generator.integers(8))
        damaged.append(bytes(other))
    accepted = 0
    for stored in damaged:
        got = by_native(decoder, stored)
        if got is not None:
            accepted += 1
            assert np.array_equal(got, by_pillow(stored))
    assert 0 < accepted < len(damaged)  # a changed pixel goes unseen, by Pillow too


def test_a_folder_of_all_kinds_is_read_as_by_pillow(decoder: PlainJpegDecoder, tmp_path: Path) -> None:
    fmt = folder_format(tmp_path)
    kinds = {"plain": encoded(pixels_of(40, 50)), "grey": encoded(pixels_of(11, 9), "L")}
    kinds |= {name: OTHERS[name]() for name in ("progressive", "cmyk", "png")}
    native = []
    for name, stored in kinds.items():
        path = tmp_path / f"{name}.jpg"
        path.write_bytes(stored)
        layout = fmt.layout(path)
        if layout.records is not None:
            native.append(name)
        want = by_pillow(stored)
        got = taken(layout, fmt)
        assert got["image"] == want.tobytes()
        assert got["height_and_width"] == np.array(want.shape[:2], np.int64).tobytes()
        assert layout.read_bytes == len(stored)
    assert native == ["plain", "grey"]


def test_damage_that_only_decoding_meets_is_an_error_in_pillows_words(
    decoder: PlainJpegDecoder, tmp_path: Path
) -> None:
    fmt, path = folder_format(tmp_path), tmp_path / "a.jpg"
    whole = encoded(pixels_of(60, 50))
    path.write_bytes(whole[: len(whole) * 2 // 3])
    layout = fmt.layout(path)
    with pytest.raises(DataError, match=r"a\.jpg cannot be decoded: .*truncated"):
        taken(layout, fmt)


def test_damage_that_pillow_overlooks_is_no_error(decoder: PlainJpegDecoder, tmp_path: Path) -> None:
    fmt, path = folder_format(tmp_path), tmp_path / "a.jpg"
    stored = encoded(pixels_of(60, 50))[:-2]  # without the marker of its end
    path.write_bytes(stored)
    assert by_native(decoder, stored) is None
    with contextlib.suppress(DataError):
        assert taken(fmt.layout(path), fmt)["image"] == by_pillow(stored).tobytes()


def test_other_sizes_than_stated_are_refused_as_ever(decoder: PlainJpegDecoder, tmp_path: Path) -> None:
    fields = [FieldConfig("image", dtype="uint8", shape=[30, 40, 3])]
    fmt = create(DatasetConfig(format="jpeg", samples_per_file=1, fields=fields), 1)
    path = tmp_path / "a.jpeg"
    path.write_bytes(encoded(pixels_of(30, 40)))
    assert fmt.layout(path).records is not None
    path.write_bytes(encoded(pixels_of(31, 40)))
    with pytest.raises(DataError, match=r"the image has 31 x 40 pixels, but dataset.fields expect 30 x 40"):
        fmt.layout(path)


def test_files_of_any_size_are_read_whole(decoder: PlainJpegDecoder, tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    for size in (0, 1, 20000, 400_000):
        path.write_bytes(os.urandom(size))
        for expected in (None, 1.0, 10_000.0, 1e6):
            assert decoder.read(path, expected).stored() == path.read_bytes()


@pytest.mark.parametrize("problem", ["missing", "folder"])
def test_a_file_that_cannot_be_read_is_named(decoder: PlainJpegDecoder, tmp_path: Path, problem: str) -> None:
    path = tmp_path / "a.jpg"
    if problem == "folder":
        path.mkdir()
    with pytest.raises(DataError, match=r"a\.jpg"):
        folder_format(tmp_path).layout(path)


@pytest.mark.usefixtures("decoder")
def test_the_engine_records_reading_and_decoding_apart(tmp_path: Path) -> None:
    fmt, manifest = data_of(tmp_path / "data", "jpeg, labels")
    recorder = Recorder(tmp_path / "events", 0)
    sampler = BatchSampler(SamplerSpec(batch_size=7), num_samples=manifest.num_samples)
    config = LoaderConfig(engine="decoupled", timeout_s=60.0)
    loader = BatchLoader(config, DecoupledSource(fmt, manifest, recorder), sampler)
    assert len(list(loader.epoch(0))) == 3
    loader.close()
    recorder.close()
    events = read_events(tmp_path / "events").frame
    files = [manifest.path(number) for number in range(manifest.num_samples)]
    assert events.loc[events["op"] == "read", "bytes"].sum() == sum(path.stat().st_size for path in files)
    assert set(events.loc[events["op"] == "decode", "file"]) == set(map(str, files))


def test_without_the_library_pillow_decodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jpeg_decoder, "NativeJpeg", _unavailable)
    plain_jpeg_decoder.cache_clear()
    try:
        fmt, path = folder_format(tmp_path), tmp_path / "a.jpg"
        path.write_bytes(encoded(pixels_of(40, 50)))
        layout = fmt.layout(path)
        assert layout.records is None
        assert taken(layout, fmt)["image"] == by_pillow(path.read_bytes()).tobytes()
    finally:
        plain_jpeg_decoder.cache_clear()


def _unavailable() -> None:
    raise jpeg_decoder.native.NativeUnavailable("libturbojpeg is not installed")
