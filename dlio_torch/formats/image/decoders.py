"""Decoders of images: the check of ``dataset.image.decoder``, and the decoder on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dlio_torch.formats.image.options import ImageConfig

if TYPE_CHECKING:
    import torch

    from dlio_torch.config.check import Fail
    from dlio_torch.config.schema import Config
    from dlio_torch.formats.core.batch import ArraySpec
    from dlio_torch.formats.core.device_decoder import DeviceDecoder
    from dlio_torch.formats.image.facts import JpegFacts

_PILLOW = "set dataset.image.decoder=pillow"


def check_decoder(config: Config, about: JpegFacts, fail: Fail) -> None:
    """Raise if ``dataset.image.decoder`` does not go with the format or with other options.

    Args:
        config: a complete configuration.
        about: facts about its format.
        fail: raises the error; called with keys, problem and remedy.
    """
    if about.value(config, "decoder") == "nvjpeg":
        for key, problem, remedy in _problems(config, about):
            fail([about.key("decoder"), key], problem, f"{remedy}{_PILLOW}")


def nvjpeg_on(device: torch.device, options: ImageConfig, spec: ArraySpec, seed: int) -> DeviceDecoder:
    """The decoder of ``dataset.image.decoder=nvjpeg`` on a GPU; torch is imported here.

    Args:
        device: the GPU.
        options: of the images.
        spec: the array of a decoded image.
        seed: of random crops.

    Raises:
        MissingPackageError: torchvision is not installed.
        PreconditionError: torchvision cannot decode JPEG images on this GPU.
    """
    from dlio_torch.formats.image.nvjpeg_decoder import NvjpegDecoder

    return NvjpegDecoder(device, options, spec, seed)


def _problems(config: Config, about: JpegFacts) -> Iterator[tuple[str, str, str]]:
    """Second key of each problem, the problem, and a remedy beside the other decoder; may be empty."""
    options, train = config.dataset.of(ImageConfig), config.train
    if not about.holds_jpeg:
        yield "dataset.format", "nvJPEG decodes JPEG images only", ""
    if not options.decode:
        yield about.key("decode"), "stored bytes are not decoded", f"set {about.key('decode')}=true, or "
    if train.device != "cuda":
        yield "train.device", "images that a GPU decodes stay in its memory", "set train.device=cuda, or "
    if config.loader.prefetch_to_device:
        problem = "torchvision returns when the GPU has decoded a batch, so nothing runs ahead of its step"
        yield "loader.prefetch_to_device", problem, "set loader.prefetch_to_device=0, or "
    if options.mode == "as_is":
        yield about.key("mode"), "nvJPEG gives RGB or brightness", f"set {about.key('mode')}=RGB, or "
    if options.to_tensor:
        yield about.key("to_tensor"), "nvJPEG gives bytes", f"set {about.key('to_tensor')}=false, or "
    if options.masks is not None:
        yield about.key("masks"), "label images are decoded by Pillow, beside their images", ""
