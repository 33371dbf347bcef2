"""JPEG and PNG: files that decoders open, read with the calls of torchvision's loader."""

from __future__ import annotations

import io
import os
import pickle
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from strace import OPENS, READS, Call, need_strace, trace

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.errors import ConfigError, DataError, MissingPackageError
from dlio_torch.formats.core.batch import BatchBuffer
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.image.options import ImageConfig
from dlio_torch.formats.testing.contract import (
    FIRST,
    SEED,
    FormatContract,
    check_batch,
    is_open,
    read,
    refusal,
    write,
)

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")


def config(name: str, shape: tuple[int, int] = (48, 64), **options: Any) -> DatasetConfig:
    return DatasetConfig(
        format=name,
        samples_per_file=1,
        fields=[FieldConfig("image", "uint8", [*shape, 3])],
        image=ImageConfig(**options),
    )


class TestContract(FormatContract):
    """The contract with files of one sample: what needs more of them in a file is said again for one."""

    num_samples = 1
    configs: ClassVar[Mapping[str, DatasetConfig]] = {
        "jpeg": config("jpeg"),
        "png": config("png"),
        "other_quality": config("jpeg", quality=60),
        "sized_jpeg": config("jpeg", file_bytes=2000, file_bytes_stdev=400.0),
        "sized_png": config("png", file_bytes=8000),
        "stored_jpeg": config("jpeg", decode=False),
        "stored_png": config("png", decode=False, buffer_bytes=100),
    }

    def knows_its_length(self, config: DatasetConfig) -> bool:
        return config.image.decode  # else the bytes of the file are the sample

    def test_any_order_gives_the_same(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt = self.make(config)
        with closing(fmt.open(self.written(fmt, tmp_path))) as reader:
            check_batch(fmt, read(fmt, reader, [0, 0, 0]), [0, 0, 0])

    def test_a_run_equals_single_reads(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt = self.make(config)
        paths = [write(fmt, tmp_path / str(number), number, 1) for number in (0, 1)]
        with closing(fmt.open(paths[0])) as one, closing(fmt.open(paths[1])) as two:
            buffer = BatchBuffer(fmt.specs(), [0, 1, 0])
            for at, reader in enumerate((one, two, one)):
                reader.read(0, 1, buffer, at)
        check_batch(fmt, buffer.finish(), [0, 1, 0])

    def test_tensors_are_as_specified(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt = self.make(config)
        with closing(fmt.open(self.written(fmt, tmp_path))) as reader:
            tensor = read(fmt, reader, [0, 0])["image"]
        assert str(tensor.dtype) == "torch.uint8"
        assert tensor.is_contiguous()
        assert tuple(tensor.shape[1:]) == ((48, 64, 3) if config.image.decode else ())
        assert tensor.shape[0] == (2 if config.image.decode else 2 * len(fmt.expected(0)["image"]))

    def test_batches_are_the_reader_s_no_more(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt = self.make(config)
        with closing(fmt.open(self.written(fmt, tmp_path))) as reader:
            first = read(fmt, reader, [0])
            first["image"].zero_()
            again = read(fmt, reader, [0])
        check_batch(fmt, again, [0])
        assert not first["image"].any()

    def test_survives_pickling(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt = self.make(config)
        fmt.use_parameters(fmt.parameters())
        path = self.written(fmt, tmp_path)
        copy: Format = pickle.loads(pickle.dumps(fmt))
        with closing(copy.open(path)) as reader:
            check_batch(copy, read(copy, reader, [0]), [0])
        assert copy.parameters() == fmt.parameters()

    def test_the_split_over_files_does_not_matter(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt = self.make(config)
        for sample in (3, FIRST + 1):
            with closing(fmt.open(write(fmt, tmp_path / f"{sample}{fmt.suffix}", sample, 1))) as reader:
                check_batch(fmt, read(fmt, reader, [0]), [sample])


@pytest.mark.parametrize("name", ["jpeg", "png"])
def test_a_decoder_opens_the_files(name: str, tmp_path: Path) -> None:
    fmt = create(config(name), SEED)
    with Image.open(write(fmt, tmp_path / "a", 7, 1)) as image:
        assert (image.format, image.size, image.mode) == (name.upper(), (64, 48), "RGB")
        np.testing.assert_array_equal(np.asarray(image), fmt.expected(7)["image"])


def test_png_keeps_the_pixels_and_jpeg_comes_near() -> None:
    png, jpeg = (create(config(name, quality=95), SEED).expected(3)["image"].astype(int) for name in ("png", "jpeg"))
    assert not np.array_equal(png, jpeg)
    assert np.abs(png - jpeg).mean() < 8


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("jpeg", {"file_bytes": 20_000}),
        ("jpeg", {"file_bytes": 30_000, "quality": 75}),
        ("jpeg", {"file_bytes": 25_000, "file_bytes_stdev": 8_000.0}),
        ("png", {"file_bytes": 120_000}),
    ],
)
def test_files_have_the_size_that_is_asked_for(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    fmt = create(config(name, (240, 320), **options), SEED)
    sizes = [write(fmt, tmp_path / str(i), i, 1).stat().st_size for i in range(24)]
    stdev = options.get("file_bytes_stdev", 0.0)
    assert np.mean(sizes) == pytest.approx(options["file_bytes"], rel=0.05 if not stdev else 0.15)
    assert np.std(sizes) == pytest.approx(stdev, rel=0.4, abs=0.05 * options["file_bytes"])
    assert fmt.stored_bytes() == options["file_bytes"]


@pytest.mark.parametrize("size", [200, 1_000_000])
def test_a_size_that_cannot_be_reached(size: int) -> None:
    fmt = create(config("jpeg", file_bytes=size), SEED)
    words = rf"dataset.image.file_bytes={size} is not possible: JPEG files of 48x64x3 have \d+ to \d+"
    with pytest.raises(ConfigError, match=words):
        fmt.parameters()


def test_the_encoder_s_version_names_the_data_set() -> None:
    names = [create(config(name), SEED).layout_options()["library"] for name in ("jpeg", "png")]
    assert [name.split()[0] for name in names] == ["jpg", "zlib"]
    assert all(name.split()[1][0].isdigit() for name in names)


# --- labels ---


def class_path(folder: Path, number: int, folders: int) -> Path:
    """Where a generated data set has file ``number``."""
    path = folder / "train" / f"{number % folders:05d}" / f"train_{number:07d}.jpeg"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


@pytest.mark.parametrize("decode", [True, False])
def test_labels_are_the_class_folders(decode: bool, tmp_path: Path) -> None:
    fmt = create(replace(config("jpeg", decode=decode), num_subfolders=12), SEED)
    assert [spec.name for spec in fmt.specs()] == ["image", "label"]
    paths = [write(fmt, class_path(tmp_path, i, 12), i, 1) for i in range(30)]
    for sample in (0, 13, 29):
        with closing(fmt.open(paths[sample])) as reader:
            batch = read(fmt, reader, [0])
        assert batch["label"].tolist() == [sample % 12]
        check_batch(fmt, batch, [sample])
    assert fmt.expected(FIRST + 5)["label"] == 5


def test_labels_of_existing_folders_are_their_order(tmp_path: Path) -> None:
    fmt = create(replace(config("jpeg"), num_subfolders=3), SEED)
    for number, name in enumerate(["n02", "n01", "n10"]):
        (tmp_path / name).mkdir()
        write(fmt, tmp_path / name / "x.jpeg", number, 1)
    for label, name in enumerate(["n01", "n02", "n10"]):
        with closing(fmt.open(tmp_path / name / "x.jpeg")) as reader:
            assert read(fmt, reader, [0])["label"].tolist() == [label]


# --- what is refused ---


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"samples_per_file": 2}, "dataset.samples_per_file=2 cannot be used with dataset.format=jpeg"),
        ({"samples_per_file_eval": 5}, "dataset.samples_per_file_eval=5"),
        ({"fields": [FieldConfig("image", "float32", [4, 4, 3])]}, "must describe exactly one RGB image"),
        ({"fields": [FieldConfig("image", "uint8", [4, 4])]}, "must describe exactly one RGB image"),
        ({"fields": [FieldConfig("image", "uint8", [4, 4, 1])]}, "must describe exactly one RGB image"),
        ({"fields": [FieldConfig("image", "uint8", [4, 70000, 3])]}, "must describe exactly one RGB image"),
        ({"fields": [FieldConfig(name, "uint8", [4, 4, 3]) for name in "ab"]}, "must describe exactly one RGB image"),
        ({"fields": [FieldConfig("label", "uint8", [4, 4, 3])], "num_subfolders": 2}, "name=label"),
        ({"image": ImageConfig(quality=99)}, "dataset.image.quality=99"),
    ],
)
def test_other_data_sets_than_single_images(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        create(replace(config("jpeg"), **change), SEED)


def test_existing_files_are_one_image_each_whatever_is_configured() -> None:
    fmt = create(replace(config("jpeg"), samples_per_file=1024, path="/some/folder"), SEED)
    assert fmt.name == "jpeg"


def saved(codec: str, size: tuple[int, int] = (64, 48)) -> bytes:
    stored = io.BytesIO()
    Image.new("RGB", size).save(stored, codec)
    return stored.getvalue()


@pytest.mark.parametrize("decode", [True, False])
@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("jpeg", b"\xff\xd8\xff" + bytes(range(256)) * 8, ""),
        ("jpeg", os.urandom(4096), ""),
        ("jpeg", saved("PNG"), ""),
        ("png", saved("JPEG"), ""),
        ("png", saved("PNG")[:60], ""),
        ("jpeg", saved("JPEG")[:-300], ""),
    ],
)
def test_a_file_that_no_decoder_opens(name: str, content: bytes, words: str, decode: bool, tmp_path: Path) -> None:
    path = tmp_path / "bad"
    path.write_bytes(content)
    fmt = create(config(name, decode=decode), SEED)

    def attempt() -> None:
        with closing(fmt.open(path)) as reader:
            read(fmt, reader, [0])

    for tried in (attempt, lambda: fmt.inspect(path)):
        assert str(path) in refusal(tried)
    assert not is_open(path)


def test_an_image_of_another_size(tmp_path: Path) -> None:
    path = tmp_path / "a.jpeg"
    path.write_bytes(saved("JPEG", (20, 10)))
    assert "the image has 10 x 20 pixels, but dataset.fields expect 48 x 64" in refusal(
        lambda: create(config("jpeg"), SEED).open(path)
    )
    stored = create(config("jpeg", decode=False), SEED)
    assert stored.inspect(path).details["size"] == [20, 10]
    with closing(stored.open(path)) as reader:
        assert read(stored, reader, [0])["image"].numpy().tobytes() == path.read_bytes()


def test_gray_images_become_rgb(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.fromarray(np.full((48, 64), 77, np.uint8)).save(path)
    fmt = create(config("png"), SEED)
    with closing(fmt.open(path)) as reader:
        batch = read(fmt, reader, [0])
    assert batch["image"].unique().tolist() == [77]


def test_a_file_that_vanishes_between_two_reads(tmp_path: Path) -> None:
    fmt = create(config("png"), SEED)
    path = write(fmt, tmp_path / "a.png", 0, 1)
    with closing(fmt.open(path)) as reader:
        read(fmt, reader, [0])
        assert not is_open(path)
        path.unlink()
        with pytest.raises(DataError, match="does not exist"):
            read(fmt, reader, [0])


def test_without_pillow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'dlio-torch\[image\]'"):
        create(config("jpeg"), 1)


# --- system calls ---


PROGRAM = """
import os, pickle, sys
from pathlib import Path
from PIL import Image
from dlio_torch.formats.testing.contract import read
for fmt, path, like in pickle.loads(Path(sys.argv[1]).read_bytes()):
    reader = fmt.open(path)
    read(fmt, reader, [0])
    read(fmt, reader, [0])
    reader.close()
    # torchvision.datasets.folder.pil_loader, twice
    for _ in range(2):
        with open(like, "rb", **({"buffering": fmt.config.image.buffer_bytes} if "sized" in like.name else {})) as f:
            Image.open(f).convert("RGB") if fmt.config.image.decode else f.read()
"""
CASES = {
    "jpeg": config("jpeg", (300, 400), quality=95),
    "png": config("png", (300, 400)),
    "stored": config("jpeg", (300, 400), decode=False),
    "sized": config("jpeg", (300, 400), buffer_bytes=40_000),
}


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[list[Call], list[Call]]]:
    """Of each case the calls of two reads of the sample, and of the application on an equal file."""
    need_strace()
    folder = tmp_path_factory.mktemp("traced")
    work = []
    for name, options in CASES.items():
        fmt = create(options, SEED)
        work.append((fmt, *(write(fmt, folder / f"{kind}_{name}", 0, 1) for kind in ("ours", "theirs"))))
    (folder / "work").write_bytes(pickle.dumps(work))
    calls = trace([sys.executable, "-c", PROGRAM, folder / "work"], folder / "log", cwd=folder, env=os.environ)
    return {
        name: (
            [call for call in calls if call.path == str(folder / f"ours_{name}")],
            [call for call in calls if call.path == str(folder / f"theirs_{name}")],
        )
        for name in CASES
    }


@pytest.mark.parametrize("case", list(CASES))
def test_the_calls_are_those_of_torchvision_s_loader(
    case: str, traced: dict[str, tuple[list[Call], list[Call]]]
) -> None:
    ours, theirs = (
        [(call.name, call.result) for call in calls if call.name in (*OPENS, *READS, "close")] for calls in traced[case]
    )
    descriptors = ("openat", "close")
    assert [(n, None if n in descriptors else r) for n, r in ours] == [
        (n, None if n in descriptors else r) for n, r in theirs
    ]
    assert [name for name, _ in ours].count("openat") == 2
    assert sum(result for name, result in ours if name == "read") > 20_000
    sought = [[call.result for call in calls if call.name == "lseek" and call.result] for calls in traced[case]]
    assert sought[0] == sought[1]
