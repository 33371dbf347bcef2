"""A stand-in for the calls of torchvision that decode and transform images on a GPU: by Pillow, in main memory."""

from __future__ import annotations

import enum
import io
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image


class ImageReadMode(enum.Enum):
    GRAY = 1
    RGB = 3


class StandIn:
    """Takes the place of torchvision.

    Attributes:
        decoded: for each call of ``decode_jpeg``, the number of images and the device.
    """

    def __init__(self) -> None:
        self.decoded: list[tuple[int, str]] = []

    def decode_jpeg(
        self, input: list[torch.Tensor], mode: ImageReadMode, device: torch.device, apply_exif_orientation: bool = False
    ) -> list[torch.Tensor]:
        assert all(each.device.type == "cpu" and each.dtype == torch.uint8 and each.dim() == 1 for each in input)
        self.decoded.append((len(input), str(device)))
        return [decoded(each.numpy().tobytes(), "RGB" if mode is ImageReadMode.RGB else "L") for each in input]


def decoded(stored: bytes, mode: str) -> torch.Tensor:
    try:
        pixels = np.array(Image.open(io.BytesIO(stored), formats=["JPEG"]).convert(mode))
    except OSError as error:
        raise RuntimeError("Error while decoding JPEG images: Failed to get image info: 5\nmore lines") from error
    return torch.from_numpy(pixels if mode == "RGB" else pixels[..., np.newaxis]).permute(2, 0, 1)


def scaled(image: torch.Tensor, height: int, width: int) -> torch.Tensor:
    pixels = image[np.newaxis].float()
    size = (height, width)
    return torch.nn.functional.interpolate(pixels, size, mode="bilinear", antialias=True)[0].round().to(torch.uint8)


def resize(image: torch.Tensor, size: list[int], antialias: bool) -> torch.Tensor:
    height, width = image.shape[-2:]
    short = min(height, width)
    return scaled(image, int(size[0] * height / short), int(size[0] * width / short))


def center_crop(image: torch.Tensor, output_size: list[int]) -> torch.Tensor:
    top, left = (round((side - wanted) / 2) for side, wanted in zip(image.shape[-2:], output_size, strict=True))
    return image[:, top : top + output_size[0], left : left + output_size[1]]


def resized_crop(
    image: torch.Tensor, top: int, left: int, height: int, width: int, size: list[int], antialias: bool
) -> torch.Tensor:
    return scaled(image[:, top : top + height, left : left + width], *size)


def install(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Put the stand-in where ``import torchvision`` finds it."""
    stand_in = StandIn()
    calls: dict[str, dict[str, Any]] = {
        "torchvision": {},
        "torchvision.io": {"decode_jpeg": stand_in.decode_jpeg, "ImageReadMode": ImageReadMode},
        "torchvision.transforms": {},
        "torchvision.transforms.v2": {},
        "torchvision.transforms.v2.functional": {
            "resize": resize,
            "center_crop": center_crop,
            "resized_crop": resized_crop,
        },
    }
    for name, content in calls.items():
        module = ModuleType(name)
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, module)
    return stand_in
