"""Image folders: pixels, classes and order are those of torchvision's ImageFolder, calls those of its loader."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from straced import needs_strace, straced

from dlio_torch import cli
from dlio_torch.api.datasets import dataset
from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.errors import ConfigError, DataError, MissingPackageError
from dlio_torch.formats.core.inspection import inspect_path
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.image.classes import image_names
from dlio_torch.formats.image.options import ImageConfig
from dlio_torch.formats.image.transforms import ResizeAndCenterCrop, ResizedCrop, crop_box, crop_generator
from dlio_torch.formats.testing.contract import FIRST, FormatContract, check_batch, read, refusal, write

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

KINDS = {".jpg": "JPEG", ".JPEG": "JPEG", ".png": "PNG", ".webp": "WEBP", ".Bmp": "BMP", ".tif": "TIFF"}


def image_of(height: int, width: int, number: int = 0, mode: str = "RGB") -> Any:
    """A smooth image with some colour."""
    y, x = np.mgrid[0:height, 0:width]
    pixels = np.stack([x * 255 // width, y * 255 // height, (x + y + number * 17) % 256], axis=-1).astype(np.uint8)
    return Image.fromarray(pixels).convert(mode)


def make_folder(root: Path, classes: tuple[str, ...] = ("b", "a", "a-1"), each: int = 4) -> Path:
    """Images of mixed suffixes and sizes, saved by Pillow alone."""
    number = 0
    for name in classes:
        (root / name).mkdir(parents=True)
        for suffix in list(KINDS)[:each]:
            image_of(40 + 7 * number, 90 - 5 * number, number).save(
                root / name / f"{number:02d}{suffix}", KINDS[suffix]
            )
            number += 1
    return root


def folder(path: Path | None, **options: Any) -> DatasetConfig:
    return DatasetConfig(
        format="imagefolder",
        path=None if path is None else str(path),
        samples_per_file=1,
        image=ImageConfig(**{"transform": "random_resized_crop", "size": 24, **options}),
    )


def samples(path: Path, *more: str) -> Any:
    return dataset(overrides=[f"dataset.path={path}", "dataset.image.size=24", "seed=0", *more])


class TestContract(FormatContract):
    num_samples = 1
    small: ClassVar[dict[str, Any]] = {"classes": False, "width_mean": 40, "height_mean": 30}
    configs: ClassVar[Mapping[str, DatasetConfig]] = {
        "crop": folder(None, **small),
        "resize": folder(None, transform="resize", mode="L", **small),
        "tensors": folder(None, to_tensor=True, **small),
        "tensors_of_brightness": folder(None, transform="resize", mode="L", to_tensor=True, **small),
        "masks": folder(None, masks="*_mask.png", **small),
        "masks_of_any_size": folder(None, transform="none", masks="*_mask.png", **small),
        "any_size": folder(None, transform="none", side_stdev=0.0, **small),
        "sized": folder(None, file_bytes=1500, **small),
        "stored": folder(None, transform="none", decode=False, **small),
    }

    def knows_its_length(self, config: DatasetConfig) -> bool:
        return bool(config.image.decode)

    def test_stored_bytes_are_estimated(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt = self.make(config)
        sizes = [
            sum(file.stat().st_size for file in fmt.files(write(fmt, tmp_path / f"{number}.jpg", number, 1)))
            for number in range(60)
        ]
        assert fmt.stored_bytes() == pytest.approx(np.mean(sizes), rel=0.25)

    def test_a_run_equals_single_reads(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt = self.make(config)
        with closing(fmt.open(write(fmt, tmp_path / "one.jpg", 1, 1))) as reader:
            check_batch(fmt, read(fmt, reader, [0, 0], indices=[1, 1]), [1, 1])

    def test_the_split_over_files_does_not_matter(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt = self.make(config)
        for sample in (3, FIRST + 1):
            with closing(fmt.open(write(fmt, tmp_path / f"{sample}.jpg", sample, 1))) as reader:
                check_batch(fmt, read(fmt, reader, [0]), [sample])

    def test_tensors_are_as_specified(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt = self.make(config)
        with closing(fmt.open(self.written(fmt, tmp_path))) as reader:
            batch = read(fmt, reader, [0])
        for spec in fmt.specs():
            assert batch[spec.name].is_contiguous()
            assert str(batch[spec.name].dtype) == f"torch.{spec.dtype.name}"
            assert tuple(batch[spec.name].shape[1:]) == spec.shape


def torchvision() -> Any:
    """The library whose calls are emulated; skips where it is missing or cannot be imported."""
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    register = torch.library.register_fake

    def registered(op: Any, *more: Any, **named: Any) -> Any:
        # A build for another torch (CUDA beside CPU) lacks its compiled operators, which PIL transforms do not use.
        if isinstance(op, str) and op.startswith("torchvision::"):
            return lambda function: function
        return register(op, *more, **named)

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setattr(torch.library, "register_fake", registered)
        try:
            import torchvision.datasets
            import torchvision.transforms
        except Exception as error:
            pytest.skip(f"torchvision cannot be imported: {error}")
    return torchvision


def test_order_classes_and_pixels_are_those_of_torchvision(tmp_path: Path) -> None:
    library = torchvision()
    root = make_folder(tmp_path / "photos", each=6)
    (root / "a" / "deeper").mkdir()
    image_of(50, 70, 5).save(root / "a" / "deeper" / "00.jpg")
    (root / "linked").symlink_to(root / "b", target_is_directory=True)
    theirs = library.datasets.ImageFolder(root)
    ours = samples(root, "dataset.image.transform=resize")
    assert [str(root / name) for name in image_names(root, classes=True)] == [path for path, _ in theirs.samples]
    transforms = library.transforms
    resize = transforms.Compose([transforms.Resize(24), transforms.CenterCrop(24)])
    assert len(ours) == len(theirs) == 25
    for number, (image, label) in enumerate(theirs):
        np.testing.assert_array_equal(ours[number]["image"].numpy(), np.asarray(resize(image)))
        assert ours[number]["label"] == label
    cropped = samples(root)
    for number, (image, _) in enumerate(theirs):
        left, top, right, bottom = crop_box(*image.size, crop_generator(image, 0))
        want = transforms.functional.resized_crop(image, top, left, bottom - top, right - left, [24, 24])
        np.testing.assert_array_equal(cropped[number]["image"].numpy(), np.asarray(want))


def test_tensors_are_those_of_torchvision(tmp_path: Path) -> None:
    library = torchvision()
    root = make_folder(tmp_path / "photos", each=2)
    to_tensor = library.transforms.ToTensor()
    resize = library.transforms.Compose([library.transforms.Resize(24), library.transforms.CenterCrop(24)])
    ours = samples(root, "dataset.image.transform=resize", "dataset.image.to_tensor=true")
    for number, (image, _) in enumerate(library.datasets.ImageFolder(root)):
        got = ours[number]["image"]
        assert torch.equal(got, to_tensor(resize(image))), number
        assert got.is_contiguous()


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_tensors_are_bytes_from_0_to_1_with_the_channels_first(mode: str, tmp_path: Path) -> None:
    root = make_folder(tmp_path / "photos", each=2)
    mode = f"dataset.image.mode={mode}"
    for plain, tensor in zip(samples(root, mode), samples(root, mode, "dataset.image.to_tensor=true"), strict=True):
        pixels = plain["image"].reshape(24, 24, -1).permute(2, 0, 1)
        assert torch.equal(tensor["image"], pixels.float().div(255))
        assert tensor["label"] == plain["label"]


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (["dataset.image.transform=none", "train.batch_size=1"], "needs images of one size, of one byte a channel"),
        (["dataset.image.transform=none", "dataset.image.decode=false"], "stored bytes are not decoded"),
        (["dataset.image.decoder=nvjpeg", "train.device=cuda"], "nvJPEG gives bytes"),
    ],
)
def test_tensors_of_other_images_are_refused(more: list[str], line: str, tmp_path: Path) -> None:
    root = make_folder(tmp_path / "photos", each=2)
    with pytest.raises(ConfigError, match=line):
        samples(root, "dataset.image.to_tensor=true", *more)


@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(0, 1000))
def test_a_random_crop_lies_in_the_image(width: int, height: int, seed: int) -> None:
    left, top, right, bottom = crop_box(width, height, np.random.default_rng(seed))
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height


@settings(max_examples=25, deadline=None)
@given(st.integers(8, 120), st.integers(8, 120), st.integers(1, 40))
def test_transforms_give_the_size(width: int, height: int, size: int) -> None:
    image = image_of(height, width)
    assert ResizeAndCenterCrop(size)(image, Image.Resampling.BILINEAR).size == (size, size)
    assert ResizedCrop(size, (0, 0, 8, 5))(image, Image.Resampling.BILINEAR).size == (size, size)


def test_areas_and_ratios_of_crops_are_spread_as_by_torchvision() -> None:
    generator = np.random.default_rng(1)
    boxes = np.array([crop_box(1000, 1000, generator) for _ in range(3000)])
    widths, heights = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    areas, ratios = widths * heights / 1e6, widths / heights
    assert areas.min() >= 0.079
    assert ratios.min() >= 0.74
    assert ratios.max() <= 1.35
    assert np.median(areas) == pytest.approx(0.5, abs=0.06)
    assert np.median(ratios) == pytest.approx(1, abs=0.03)


def test_images_of_every_kind_and_size_make_a_batch(tmp_path: Path) -> None:
    from torch.utils.data import DataLoader

    root = make_folder(tmp_path / "photos", each=6)
    ds = samples(root)
    assert len(ds) == 18
    batches = list(DataLoader(ds, batch_size=9))
    assert [tuple(batch["image"].shape) for batch in batches] == [(9, 24, 24, 3)] * 2
    assert [batch["label"].tolist() for batch in batches] == [[0] * 6 + [1] * 3, [1] * 3 + [2] * 6]


MODES: dict[str, Callable[[Path], None]] = {
    "cmyk.jpg": lambda path: image_of(30, 40).convert("CMYK").save(path),
    "palette.png": lambda path: image_of(30, 40).convert("P").save(path),
    "alpha.png": lambda path: image_of(30, 40).convert("RGBA").save(path),
    "grey.jpg": lambda path: image_of(30, 40).convert("L").save(path),
    "bilevel.png": lambda path: image_of(30, 40).convert("1").save(path),
    "animated.webp": lambda path: image_of(30, 40).save(path, save_all=True, append_images=[image_of(30, 40, 3)]),
    "sixteen.png": lambda path: Image.fromarray(np.arange(1200, dtype=np.uint16).reshape(30, 40)).save(path),
}


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("transform", ["random_resized_crop", "resize"])
def test_unusual_modes_are_converted_as_by_the_loader(name: str, transform: str, tmp_path: Path) -> None:
    (tmp_path / "photos" / "a").mkdir(parents=True)
    path = tmp_path / "photos" / "a" / name
    MODES[name](path)
    got = samples(tmp_path / "photos", f"dataset.image.transform={transform}")[0]["image"].numpy()
    with open(path, "rb") as file:
        image = Image.open(file).convert("RGB")
    resample = Image.Resampling.BILINEAR
    if transform == "resize":
        want = ResizeAndCenterCrop(24)(image, resample)
    else:
        want = ResizedCrop(24, crop_box(*image.size, crop_generator(image, 0)))(image, resample)
    np.testing.assert_array_equal(got, np.asarray(want))


def test_an_orientation_is_named_and_not_applied(tmp_path: Path) -> None:
    (tmp_path / "photos" / "a").mkdir(parents=True)
    exif = Image.Exif()
    exif[0x0112] = 6
    image_of(30, 40).save(tmp_path / "photos" / "a" / "x.jpg", exif=exif)
    notes = " ".join(inspect_path(str(tmp_path / "photos")).description.notes)
    assert "1 of 1 images whose headers were read have an EXIF orientation, which is not applied" in notes
    ds = samples(tmp_path / "photos", "dataset.image.transform=none", "train.batch_size=1")
    assert ds[0]["height_and_width"].tolist() == [30, 40]


def test_pixels_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "photos" / "a").mkdir(parents=True)
    deep = np.arange(1200, dtype=np.uint16).reshape(30, 40)
    Image.fromarray(deep).save(tmp_path / "photos" / "a" / "x.png")
    fields = "dataset.fields=[{name: image, dtype: uint16, shape: [30, 40]}]"
    as_is = ["dataset.image.mode=as_is", "dataset.image.transform=none"]
    ds = samples(tmp_path / "photos", fields, *as_is)
    np.testing.assert_array_equal(ds[0]["image"].numpy(), deep)
    eight = samples(tmp_path / "photos", "dataset.fields=[{name: image, shape: [30, 40], dtype: uint8}]", *as_is)
    with pytest.raises(DataError, match=r"x\.png is an image of mode I;16.*uint16.*dataset.image.mode=RGB"):
        eight[0]
    with pytest.raises(ConfigError, match=r"dataset.fields must describe the pixels.*mode=as_is"):
        samples(tmp_path / "photos", *as_is)


def test_images_of_unequal_sizes_are_not_stacked(tmp_path: Path) -> None:
    root = make_folder(tmp_path / "photos")
    with pytest.raises(
        ConfigError, match=r"a/04\.jpg \(68 x 70\) and a/05\.JPEG \(75 x 65\).*unequal sizes.*batch_size=1"
    ):
        samples(root, "dataset.image.transform=none")
    ds = samples(root, "dataset.image.transform=none", "train.batch_size=1")
    with Image.open(root / "a" / "05.JPEG") as image:
        want = np.asarray(image.convert("RGB"))
    assert ds[1]["height_and_width"].tolist() == [75, 65]
    np.testing.assert_array_equal(ds[1]["image"].numpy().reshape(75, 65, 3), want)


def test_images_of_one_size_need_it_stated(tmp_path: Path) -> None:
    (tmp_path / "photos" / "a").mkdir(parents=True)
    for number in range(3):
        image_of(20, 30, number).save(tmp_path / "photos" / "a" / f"{number}.png")
    with pytest.raises(ConfigError) as caught:
        samples(tmp_path / "photos", "dataset.image.transform=none")
    line = str(caught.value)
    assert "the first images have 20 x 30 pixels" in line
    fields = line.partition("set ")[2]
    assert samples(tmp_path / "photos", "dataset.image.transform=none", fields)[2]["image"].shape == (20, 30, 3)


def test_damaged_files_are_named_or_left_out(tmp_path: Path) -> None:
    root = make_folder(tmp_path / "photos")
    (root / "a" / "empty.jpg").touch()
    (root / "b" / "text.png").write_text("no image")
    whole = (root / "b" / "00.jpg").read_bytes()
    (root / "b" / "cut.jpg").write_bytes(whole[: len(whole) - 40])
    (root / "b" / "gone.jpg").symlink_to("nowhere.jpg")
    for path, words in (
        (root / "a" / "empty.jpg", "holds no image that Pillow can read; replace or remove"),
        (root / "b" / "text.png", "holds no image that Pillow can read"),
        (root / "b" / "cut.jpg", "is truncated"),
    ):
        assert f"{path} {words}" in refusal(lambda path=path: create(folder(root), 0).inspect(path))
    from dlio_torch.api.configuration import compose
    from dlio_torch.data.engines.registry import format_of
    from dlio_torch.preflight.data_location import locate_data
    from dlio_torch.report.data_text import data_lines

    config = compose(overrides=[f"dataset.path={root}", "dataset.image.on_error=skip"])
    data = locate_data(config, format_of(config))
    assert data.manifests["train"].num_samples == 12
    assert data.bytes == sum(path.stat().st_size for path in root.rglob("*.*") if path.name[:2].isdigit())
    assert data.details is not None
    assert "data: 4 damaged files left out, such as a/empty.jpg" in list(data_lines(str(root), data.details))


def test_damage_that_only_decoding_meets_ends_the_run(tmp_path: Path) -> None:
    path = tmp_path / "photos" / "a" / "x.png"
    path.parent.mkdir(parents=True)
    image_of(60, 80).save(path)
    stored = bytearray(path.read_bytes())
    begin = stored.index(b"IDAT") + 8
    stored[begin : begin + 20] = bytes(20)
    path.write_bytes(stored)
    ds = samples(tmp_path / "photos", "dataset.image.on_error=skip")
    with pytest.raises(DataError, match=r"x\.png cannot be decoded: .*; replace or remove the file"):
        ds[0]


def test_folders_without_classes_empty_classes_and_loops(tmp_path: Path) -> None:
    flat = tmp_path / "flat"
    flat.mkdir()
    for number in range(3):
        image_of(30, 40, number).save(flat / f"{number}.jpg")
    assert sorted(samples(flat)[0]) == ["image"]
    assert inspect_path(str(flat)).settings()["image"]["classes"] is False
    with pytest.raises(DataError, match=r"has no class folders with images.*dataset.image.classes=false"):
        dataset(overrides=["dataset=imagefolder", f"dataset.path={flat}"])
    root = make_folder(tmp_path / "photos")
    (root / "aa").mkdir()
    (root / "b" / "loop").symlink_to(root, target_is_directory=True)
    assert [int(sample["label"]) for sample in samples(root)] == [0] * 4 + [1] * 4 + [3] * 4
    notes = " ".join(inspect_path(str(root)).description.notes)
    assert "1 class folder without images, such as aa" in notes
    for split in ("train", "val"):
        make_folder(tmp_path / "splits" / split)
    with pytest.raises(DataError, match=r"holds 2 folders that are data sets: .*train, .*val.*name one of them"):
        inspect_path(str(tmp_path / "splits"))


def test_folders_of_any_arrangement_are_read_if_the_format_is_named(tmp_path: Path) -> None:
    make_folder(tmp_path / "photos" / "x")
    make_folder(tmp_path / "photos" / "y")
    (tmp_path / "photos" / "x" / "labels.csv").write_text("a,b")
    inspection = inspect_path(str(tmp_path / "photos"), "imagefolder")
    assert inspection.description.samples == 24
    assert inspection.description.details["classes"] == 2
    assert "not read, since no image has their suffix: 1 file (.csv 1)" in inspection.description.notes


def test_the_only_data_set_in_a_folder_is_inspected_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outer, inner = tmp_path / "photos", tmp_path / "photos" / "train"
    make_folder(inner)
    (outer / "README.txt").write_text("of the user")
    assert cli.main(["inspect", str(outer)]) == 0
    text = capsys.readouterr().out
    assert f"python -m dlio_torch dataset.path={inner}\n" in text
    assert f"path: {inner}" in text.replace("\n", "")
    assert f"thedatasetisthefoldertrainin{outer}" in "".join(text.split())  # a long path is broken between lines
    assert "1 .txt" in text
    with pytest.raises(DataError, match=r"holds 1 folder that is a data set: .*train; name one of them"):
        inspect_path(str(outer), "csv")
    with pytest.raises(DataError, match=r"the data set is the folder .*photos/train; set dataset\.path=.*photos/train"):
        dataset(overrides=[f"dataset.path={outer}"])


def test_a_pattern_is_read_without_labels_and_says_so(tmp_path: Path) -> None:
    root = make_folder(tmp_path / "photos")
    note = "a pattern is read without labels; dataset.image.classes=true takes them from the folders"
    assert note in inspect_path(f"{root}/*/*.jpg").description.notes
    for path in (root, root / "b" / "00.jpg"):
        assert note not in inspect_path(str(path)).description.notes
    ds = samples(Path(f"{root}/*/*.jpg"), "dataset.image.classes=true")
    assert sorted(int(ds[number]["label"]) for number in range(len(ds))) == [0, 1, 2]


def test_a_folder_of_masks_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, masks = make_folder(tmp_path / "photos", ("a",), each=1), tmp_path / "masks" / "a"
    masks.mkdir(parents=True)
    image_of(40, 90, mode="L").save(masks / "00.png")
    monkeypatch.setenv("HOME", str(tmp_path))
    ds = samples(root, "dataset.image.masks=~/masks", "dataset.image.transform=resize")
    assert ds[0]["mask"].shape == (24, 24)


def test_masks_follow_their_images(tmp_path: Path) -> None:
    root, masks = make_folder(tmp_path / "photos"), tmp_path / "masks"
    for name in image_names(root, classes=True):
        with Image.open(root / name) as image:
            label = np.asarray(image.convert("RGB"))[..., 0] // 64  # so that a mask can be told from its image
        path = (masks / name).with_suffix(".png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(label).save(path)
    ds = samples(root, f"dataset.image.masks={masks}", "dataset.image.transform=resize")
    for number, name in enumerate(image_names(root, classes=True)):
        with Image.open((masks / name).with_suffix(".png")) as mask:
            want = np.asarray(ResizeAndCenterCrop(24)(mask, Image.Resampling.NEAREST))
        np.testing.assert_array_equal(ds[number]["mask"].numpy(), want)
    fmt = create(folder(root, masks=str(masks)), 0)
    assert fmt.companion_files(str(root / "b" / "00.jpg")) == [str(masks / "b" / "00.png")]
    (masks / "b" / "00.png").unlink()
    with pytest.raises(DataError, match=r"00\.jpg has no mask: .*masks contains no b/00"):
        create(folder(root, masks=str(masks)), 0).inspect(root / "b" / "00.jpg")
    image_of(5, 5, mode="L").save(masks / "b" / "00.png")
    with (
        pytest.raises(DataError, match=r"00\.png has 5 x 5 pixels, but its image"),
        closing(create(folder(root, masks=str(masks)), 0).open(root / "b" / "00.jpg")) as reader,
    ):
        read(create(folder(root, masks=str(masks)), 0), reader, [0])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["dataset.image.masks=nowhere"], "dataset.image.masks=nowhere is not a folder"),
        (["dataset.image.masks=*"], "write for example"),
        (["dataset.image.decode=false"], "stored bytes are not decoded"),
        (["dataset.fields=[{name: image, dtype: float32, shape: [24, 24, 3]}]"], "dataset.image.mode=RGB gives RGB"),
        (["dataset.fields=[{name: image, dtype: uint8, shape: [9, 24, 3]}]"], "gives 24 x 24 pixels"),
        (["dataset=jpeg", "dataset.image.transform=resize"], "format jpeg reads images of one size"),
    ],
)
def test_contradictions_are_refused(options: list[str], words: str, tmp_path: Path) -> None:
    root = make_folder(tmp_path / "photos")
    with pytest.raises(ConfigError) as caught:
        samples(root, *options)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", list(KINDS))
def test_a_single_image_is_described(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x{suffix}"
    image_of(30, 40).save(path, KINDS[suffix])
    inspection = inspect_path(str(path))
    assert (inspection.format, inspection.description.samples) == ("imagefolder", 1)
    assert inspection.description.arrays[0].shape == (30, 40)


def test_a_missing_pillow_is_said_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_folder(tmp_path / "photos")
    monkeypatch.setitem(sys.modules, "PIL", None)
    for path, name in ((root, "imagefolder"), (root / "a" / "04.jpg", "jpeg")):
        words = rf"dataset.format={name} needs Pillow.*pip install 'dlio-torch\[image\]'"
        with pytest.raises(MissingPackageError, match=words):
            inspect_path(str(path), "" if name == "imagefolder" else name)


def test_generated_images_have_many_sizes_and_the_mean_bytes() -> None:
    options = ImageConfig(
        transform="none", classes=False, file_bytes=6000, file_bytes_stdev=2000, width_mean=120, height_mean=90
    )
    fmt = create(DatasetConfig(format="imagefolder", samples_per_file=1, image=options), 3)
    sides = np.array([fmt.expected(sample)["height_and_width"] for sample in range(80)])
    assert sides.mean(axis=0) == pytest.approx([90, 120], rel=0.12)
    assert len({tuple(pair) for pair in sides.tolist()}) > 60
    assert sides.std(axis=0) == pytest.approx([0.25 * 90, 0.25 * 120], rel=0.3)


PLAIN = """
import os, sys
from PIL import Image
from dlio_torch.formats.image.transforms import transform_of
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        image = Image.open(file).convert("RGB")
    transform_of(image, "resize", 24, 0)(image, Image.Resampling.BILINEAR)
"""
OURS = """
import sys
from pathlib import Path
from dlio_torch.config.schema import DatasetConfig
from dlio_torch.formats.core.batch import BatchBuffer
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.image.options import ImageConfig
fmt = create(DatasetConfig(format="imagefolder", path=".", image=ImageConfig(transform="resize", size=24)), 0)
for path in sys.argv[1:]:
    reader = fmt.open(Path(path))
    reader.read(0, 1, BatchBuffer(fmt.specs(), [0]), 0)
    reader.close()
"""


@needs_strace
def test_the_calls_are_those_of_the_plain_loader(tmp_path: Path) -> None:
    root = make_folder(tmp_path / "photos", each=6)
    names = image_names(root, classes=True)
    assert straced(OURS, root, *names) == straced(PLAIN, root, *names)


def test_fields_of_jpeg_files_are_described_for_their_own_format(tmp_path: Path) -> None:
    image_of(30, 40).save(tmp_path / "x.jpg")
    inspection = inspect_path(str(tmp_path / "x.jpg"), "jpeg")
    assert inspection.description.fields == (FieldConfig("image", "uint8", [30, 40, 3]),)


def test_bytes_of_existing_images_are_those_of_their_files(tmp_path: Path) -> None:
    root = make_folder(tmp_path / "photos")
    sizes = [(root / name).stat().st_size for name in image_names(root, classes=True)]
    assert create(folder(root), 0).stored_bytes() == pytest.approx(np.mean(sizes))
