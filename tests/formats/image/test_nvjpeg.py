"""Images that a GPU decodes: what the loader delivers, what the GPU holds, what is refused, and what a run reports."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stand_in_torchvision
import torch
from figure_checks import check_figures
from PIL import Image
from stand_in_torchvision import StandIn

from dlio_torch import cli
from dlio_torch.analysis.device_decoding import decoding_figures
from dlio_torch.config.compose import compose
from dlio_torch.config.gpu_options import gpu_options
from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.errors import ConfigError, DataError, MissingPackageError, PreconditionError, RunFailed
from dlio_torch.execution import training
from dlio_torch.formats.core.batch import Batch, BatchBuffer
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.image.options import ImageConfig
from dlio_torch.formats.image.transforms import ResizeAndCenterCrop, crop_box, numbered_crop_generator
from dlio_torch.preflight import device_decoders
from dlio_torch.train import to_device
from dlio_torch.train.decoded_copies import DecodedCopies
from dlio_torch.train.result import DecodeTimes
from dlio_torch.train.steps import EVAL, read_steps

CPU = torch.device("cpu")
SEED = 5
ON_GPU = ("dataset.image.decoder=nvjpeg", "train.device=cuda")
FILES = (
    "dataset.num_files=6",
    "dataset.num_files_eval=2",
    "dataset.samples_per_file_eval=1",
    "train.batch_size=2",
    "train.eval_every_epochs=1",
)
JPEG = ("dataset=jpeg", "dataset.fields=[{name: image, dtype: uint8, shape: [48, 64, 3]}]")
FOLDER = ("dataset=imagefolder", "dataset.image.transform=resize", "dataset.image.size=32")
SMALL = ("dataset.image.height_mean=40", "dataset.image.width_mean=56", "dataset.image.file_bytes=0")


def folder_config(**options: Any) -> DatasetConfig:
    image = ImageConfig(decoder="nvjpeg", classes=False, height_mean=40, width_mean=56, **options)
    return DatasetConfig(format="imagefolder", samples_per_file=1, image=image)


def jpeg_config(shape: tuple[int, int] = (48, 64)) -> DatasetConfig:
    fields = [FieldConfig("image", "uint8", [*shape, 3])]
    return DatasetConfig(format="jpeg", samples_per_file=1, fields=fields, image=ImageConfig(decoder="nvjpeg"))


def written(config: DatasetConfig, folder: Path, *samples: int) -> list[Path]:
    fmt = create(config, SEED)
    paths = [folder / f"{sample}{fmt.suffix}" for sample in samples]
    for path, sample in zip(paths, samples, strict=True):
        fmt.write(path, sample, 1, None)  # type: ignore[arg-type]
    return paths


def delivered(config: DatasetConfig, paths: list[Path]) -> Batch:
    """The batch of some files, sample numbers from 0."""
    fmt = create(config, SEED)
    buffer = BatchBuffer(fmt.specs(), range(len(paths)))
    for position, path in enumerate(paths):
        with closing(fmt.open(path)) as reader:
            reader.read(0, 1, buffer, position)
    return buffer.finish()


def on_device(config: DatasetConfig, batch: Batch) -> np.ndarray[Any, Any]:
    """What the decoder of the format makes of a batch, with channels last."""
    decoder = create(config, SEED).device_decoder(CPU)
    assert decoder is not None
    (image,) = decoder(batch).values()
    return image.permute(0, 2, 3, 1).numpy()


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return stand_in_torchvision.install(monkeypatch)


def test_the_loader_delivers_files_and_one_call_decodes_a_batch_of_them(tmp_path: Path, library: StandIn) -> None:
    paths = written(jpeg_config(), tmp_path, 3, 4, 5)
    batch = delivered(jpeg_config(), paths)
    assert batch["image"].numpy().tobytes() == b"".join(path.read_bytes() for path in paths)
    images = on_device(jpeg_config(), batch)
    assert library.decoded == [(1, "cpu"), (3, "cpu")]  # one image to learn whether it can
    for image, path in zip(images, paths, strict=True):
        np.testing.assert_array_equal(image, np.asarray(Image.open(path)))


def test_other_formats_and_decoders_have_no_device_decoder(library: StandIn) -> None:
    pillow = replace(jpeg_config(), image=ImageConfig())
    assert create(pillow, SEED).device_decoder(CPU) is None
    assert create(replace(pillow, format="npy"), SEED).device_decoder(CPU) is None
    assert library.decoded == []


def test_a_resized_image_is_that_of_pillow_but_for_rounding(tmp_path: Path, library: StandIn) -> None:
    config = folder_config(transform="resize", size=24)
    paths = written(config, tmp_path, 0, 1, 2, 3)
    images = on_device(config, delivered(config, paths))
    assert images.shape == (4, 24, 24, 3)
    for image, path in zip(images, paths, strict=True):
        with Image.open(path) as stored:
            expected = np.asarray(ResizeAndCenterCrop(24)(stored, Image.Resampling.BILINEAR)).astype(int)
        assert np.abs(image - expected).max() <= 2


def test_a_random_crop_depends_on_seed_and_sample_alone(tmp_path: Path, library: StandIn) -> None:
    config = folder_config(transform="random_resized_crop", size=16)
    paths = written(config, tmp_path, 0, 1)
    images = on_device(config, delivered(config, paths))
    np.testing.assert_array_equal(images, on_device(config, delivered(config, paths)))
    for number, path in enumerate(paths):
        with Image.open(path) as stored:
            box = crop_box(*stored.size, numbered_crop_generator(number, SEED))
            expected = np.asarray(stored.crop(box).resize((16, 16), Image.Resampling.BILINEAR)).astype(int)
        assert np.abs(images[number] - expected).max() <= 2
    assert not np.array_equal(images[0], on_device(config, delivered(config, [paths[1], paths[0]]))[1])


def test_images_of_any_size_and_of_brightness_alone(tmp_path: Path, library: StandIn) -> None:
    config = folder_config(mode="L")
    (path,) = written(config, tmp_path, 0)
    images = on_device(config, delivered(config, [path]))
    np.testing.assert_array_equal(images[0, ..., 0], np.asarray(Image.open(path).convert("L")))


def test_an_image_of_another_size_than_stated_is_refused(tmp_path: Path, library: StandIn) -> None:
    (path,) = written(jpeg_config((40, 64)), tmp_path, 0)
    with pytest.raises(DataError, match=r"^sample 0: the image has 40 x 64 pixels, but dataset\.fields expect 48 x 64"):
        on_device(jpeg_config(), delivered(jpeg_config(), [path]))


def test_an_image_that_cannot_be_decoded_names_the_samples(library: StandIn) -> None:
    junk = torch.zeros(8, dtype=torch.uint8)
    batch = {"index": torch.tensor([7, 9]), "image": junk, "image:lengths": torch.tensor([3, 5])}
    with pytest.raises(DataError, match=r"^nvJPEG cannot decode a batch \(samples 7, 9\): Error [^\n]*decoder=pillow"):
        on_device(jpeg_config(), batch)


def test_an_error_of_cuda_is_not_blamed_on_the_image(library: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = create(jpeg_config(), SEED).device_decoder(CPU)
    assert decoder is not None

    def full(*images: Any, **options: Any) -> None:
        raise RuntimeError("Error while decoding JPEG images: CUDA out of memory")

    monkeypatch.setattr(sys.modules["torchvision.io"], "decode_jpeg", full)
    batch = {"index": torch.tensor([0]), "image": torch.zeros(3), "image:lengths": torch.tensor([3])}
    with pytest.raises(RuntimeError, match="CUDA out of memory"):
        decoder(batch)


def test_a_file_that_holds_no_jpeg_image_is_named(tmp_path: Path) -> None:
    path = tmp_path / "1.jpg"
    Image.new("RGB", (8, 8)).save(path, "PNG")
    fmt = create(folder_config(transform="resize"), SEED)
    for look in (fmt.inspect, fmt.layout, lambda path: delivered(folder_config(transform="resize"), [path])):
        with pytest.raises(DataError, match=r"1\.jpg holds no JPEG image.*set dataset\.image\.decoder=pillow"):
            look(path)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("dataset=png",), r"dataset\.format=png.*nvJPEG decodes JPEG images only"),
        ((*JPEG, "dataset.image.decode=false"), r"dataset\.image\.decode=false.*not decoded.*decode=true"),
        ((*JPEG, "train.device=cpu"), r"train\.device=cpu.*set train\.device=cuda"),
        ((*JPEG, "loader.prefetch_to_device=2"), r"loader\.prefetch_to_device=2.*set loader\.prefetch_to_device=0"),
        ((*FOLDER, "dataset.image.mode=as_is"), r"dataset\.image\.mode=as_is.*RGB or brightness"),
        ((*FOLDER, "dataset.image.masks='*_mask.png'"), r"dataset\.image\.masks=.*by Pillow"),
        ((*JPEG, "loader.engine=decoupled", "loader.read_to=device"), r"loader\.read_to=device"),
    ],
)
def test_options_that_do_not_go_with_it_are_refused(options: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        compose(["recipe=minimal", *ON_GPU, *options])


def test_it_is_among_the_options_that_need_a_gpu() -> None:
    assert gpu_options(compose(["recipe=minimal", *ON_GPU, *JPEG]).config) == [
        "train.device=cuda",
        "dataset.image.decoder=nvjpeg",
    ]


def test_a_missing_torchvision_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(MissingPackageError, match=r"needs torchvision.*dlio-torch\[nvjpeg\].*decoder=pillow"):
        create(jpeg_config(), SEED).device_decoder(CPU)


def test_a_torchvision_that_decodes_no_images_any_more_is_refused(
    library: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(sys.modules["torchvision.io"], "decode_jpeg")
    with pytest.raises(PreconditionError, match=r"no attribute 'decode_jpeg'; install a torchvision with nvJPEG"):
        create(jpeg_config(), SEED).device_decoder(CPU)


def test_a_torchvision_without_nvjpeg_is_refused(library: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(*images: Any, **options: Any) -> None:
        raise RuntimeError("decode_jpegs_cuda: torchvision not compiled with nvJPEG support\nException raised from")

    monkeypatch.setattr(sys.modules["torchvision.io"], "decode_jpeg", without)
    with pytest.raises(PreconditionError, match=r"not compiled with nvJPEG support; install a torchvision with nvJPEG"):
        create(jpeg_config(), SEED).device_decoder(CPU)


class Stream:
    def synchronize(self) -> None:
        pass

    def record(self) -> None:
        pass


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a GPU, as far as a run sees it; its memory is main memory."""
    monkeypatch.setattr(to_device, "needs_gpu", lambda config: True)
    monkeypatch.setattr(training, "needs_gpu", lambda config: True)
    monkeypatch.setattr(training, "use_gpu", lambda local_rank: CPU)
    monkeypatch.setattr(device_decoders, "rank_gpu", lambda local_rank: CPU)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    monkeypatch.setattr(torch.cuda, "Event", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream())


def run(folder: Path, *options: str) -> dict[str, Any]:
    output = (f"dataset.root={folder}/data", f"output.dir={folder}/run")
    assert cli.main(["recipe=minimal", *ON_GPU, *FILES, *options, *output]) == 0
    summary: dict[str, Any] = json.loads((folder / "run" / "summary.json").read_text())
    check_figures(summary)
    return summary


def files_bytes(folder: Path, split: str) -> int:
    return sum(path.stat().st_size for path in folder.glob(f"data/**/{split}/**/*.jp*g"))


@pytest.mark.parametrize(
    "options",
    [
        (*JPEG, "loader.num_workers=1"),
        (*JPEG, "loader.engine=decoupled"),
        (*FOLDER, *SMALL),
    ],
    ids=["workers", "decoupled", "folder"],
)
def test_a_run_decodes_every_batch_as_a_part_of_its_copy(
    tmp_path: Path,
    library: StandIn,
    pretended: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
) -> None:
    held: list[list[tuple[int, ...]]] = []
    finish = DecodedCopies.finish

    def finished(copies: DecodedCopies) -> None:
        finish(copies)
        held.append([tuple(tensor.shape) for tensor in copies._there])

    monkeypatch.setattr(DecodedCopies, "finish", finished)
    summary = run(tmp_path, *options, "verify=true", "train.epochs=1")
    steps = read_steps(tmp_path / "run" / "steps.csv")[0]
    figures = summary["device_decoding"]
    assert figures["samples"] == steps["samples"].sum() == 8
    assert figures["samples_per_s"] > 0
    assert figures["why"] is None
    assert [count for count, _ in library.decoded if count > 1] == [2] * len(steps)
    shape = (2, 3, 32, 32) if FOLDER[0] in options else (2, 3, 48, 64)
    assert [shapes[0] for shapes in held] == [shape] * len(steps)
    assert (steps["copy_ns"] > 0).all()
    assert figures["duration_s"]["max"] <= steps["copy_ns"].max() * 1e-9
    assert steps[steps["phase"] != EVAL]["bytes"].sum() >= files_bytes(tmp_path, "train") > 0
    assert "decoded on the GPU" in capsys.readouterr().out


def test_ranks_that_decode_nothing_on_a_gpu_say_so() -> None:
    assert decoding_figures([None, DecodeTimes()]) == {
        "samples": None,
        "samples_per_s": None,
        "duration_s": None,
        "why": "no sample was decoded on a GPU",
    }


def test_figures_are_of_all_ranks() -> None:
    first, second = DecodeTimes(), DecodeTimes()
    first.append(2_000_000, 4)
    first.append(4_000_000, 4)
    second.append(6_000_000, 4)
    figures = decoding_figures([first, second])
    assert figures["samples"] == 12
    assert figures["samples_per_s"] == pytest.approx(1000)
    assert figures["duration_s"]["median"] == pytest.approx(4e-3)


def test_a_full_gpu_is_one_line_with_a_remedy(pretended: None) -> None:
    def full(batch: Batch) -> Batch:
        raise RuntimeError("CUDA out of memory\nmore lines")

    copies = DecodedCopies(CPU, full)
    with pytest.raises(RunFailed, match=r"cannot be copied to the GPU: CUDA out of memory; lower train\.batch_size"):
        copies.start({"index": torch.tensor([0])})
    assert not copies.times.ns


def test_labels_are_copied_beside_the_decoded_images(pretended: None) -> None:
    images, labels = torch.ones(2, 3, 4, 4), torch.tensor([5, 6])
    copies = DecodedCopies(CPU, lambda batch: {"image": images})
    stored = {"image": torch.zeros(9), "image:lengths": torch.tensor([4, 5])}
    copies.start({"index": torch.tensor([0, 1]), "label": labels, **stored})
    copies.finish()
    assert [tensor.tolist() for tensor in copies._there] == [images.tolist(), [5, 6]]
    assert list(copies.times.samples) == [2]


def test_a_missing_torchvision_ends_the_run_before_anything_is_written(
    tmp_path: Path, pretended: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    output = (f"dataset.root={tmp_path}/data", f"output.dir={tmp_path}/run")
    assert cli.main(["recipe=minimal", *ON_GPU, *JPEG, *output]) == 3
    assert "dlio-torch[nvjpeg]" in capsys.readouterr().err.strip().splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def real() -> Callable[[DatasetConfig], Any]:
    """``real(config)``: the decoder of a format on a real GPU, by the real torchvision."""
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")

    def decoder(config: DatasetConfig) -> Any:
        try:
            return create(config, SEED).device_decoder(torch.device("cuda", 0))
        except PreconditionError as error:
            pytest.skip(f"needs nvJPEG: {error.message}")

    return decoder


@pytest.mark.filterwarnings("ignore:The image decoding:DeprecationWarning")
@pytest.mark.parametrize("transform", ["none", "resize", "random_resized_crop"])
def test_a_real_gpu_decodes_and_transforms(
    tmp_path: Path, real: Callable[[DatasetConfig], Any], transform: str
) -> None:
    config = folder_config(transform=transform, size=24)
    (path,) = written(config, tmp_path, 0)
    (image,) = real(config)(delivered(config, [path])).values()
    assert image.device.type == "cuda"
    if transform == "random_resized_crop":
        assert tuple(image.shape) == (1, 3, 24, 24)
        return
    with Image.open(path) as stored:
        expected = ResizeAndCenterCrop(24)(stored, Image.Resampling.BILINEAR) if transform == "resize" else stored
        pixels = np.asarray(expected).astype(int)
    assert np.abs(image[0].permute(1, 2, 0).cpu().numpy() - pixels).mean() < 4  # decoders round differently


@pytest.mark.filterwarnings("ignore:The image decoding:DeprecationWarning")
def test_a_run_decodes_on_a_real_gpu(tmp_path: Path, real: Callable[[DatasetConfig], Any]) -> None:
    real(jpeg_config())
    summary = run(tmp_path, *JPEG, "loader.num_workers=1", "loader.pin_memory=true", "train.epochs=1")
    assert summary["device_decoding"]["samples"] == 8
    assert summary["gpu"] == torch.cuda.get_device_name(0)
