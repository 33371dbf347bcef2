"""Transforms of decoded images, by the Pillow calls of torchvision's transforms for PIL images.

The geometry is that of ``torchvision/transforms/transforms.py`` (``RandomResizedCrop.get_params``) and
``torchvision/transforms/functional.py`` (``resize``, ``center_crop``).
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dlio_torch.formats.core import payload

if TYPE_CHECKING:
    from PIL import Image

_SCALE = (0.08, 1.0)  # share of the image's area
_RATIO = (3 / 4, 4 / 3)  # of width to height
_TRIES = 10


class Transform(Protocol):
    """Geometry of one image, which is applied to the image and to its mask."""

    def __call__(self, image: Image.Image, resample: int) -> Image.Image:
        """The transformed image.

        Args:
            image: decoded.
            resample: Pillow's filter.
        """


@dataclass(frozen=True)
class Unchanged:
    """The image as it is."""

    def __call__(self, image: Image.Image, resample: int) -> Image.Image:
        """The image itself."""
        return image


@dataclass(frozen=True)
class ResizeAndCenterCrop:
    """``Resize(size)``, which scales the shorter edge to ``size``, and ``CenterCrop(size)``."""

    size: int

    def __call__(self, image: Image.Image, resample: int) -> Image.Image:
        """The scaled centre of the image."""
        width, height = image.size
        short, long = min(width, height), max(width, height)
        scaled = int(self.size * long / short)
        wanted = (self.size, scaled) if width <= height else (scaled, self.size)
        if wanted != image.size:
            image = image.resize(wanted, resample)
        left, top = (round((side - self.size) / 2.0) for side in image.size)
        return image.crop((left, top, left + self.size, top + self.size))


@dataclass(frozen=True)
class ResizedCrop:
    """``RandomResizedCrop(size)`` with a box that was drawn before.

    Attributes:
        size: height and width afterwards.
        box: left, top, right and lower edge, in pixels.
    """

    size: int
    box: tuple[int, int, int, int]

    def __call__(self, image: Image.Image, resample: int) -> Image.Image:
        """The scaled part of the image."""
        return image.crop(self.box).resize((self.size, self.size), resample)


def transform_of(image: Image.Image, name: str, size: int, seed: int) -> Transform:
    """The transform of an image.

    Args:
        image: decoded.
        name: value of ``dataset.image.transform``.
        size: height and width afterwards.
        seed: of the random crop.
    """
    if name == "none":
        return Unchanged()
    if name == "resize":
        return ResizeAndCenterCrop(size)
    return ResizedCrop(size, crop_box(*image.size, crop_generator(image, seed)))


def crop_generator(image: Image.Image, seed: int) -> np.random.Generator:
    """Random numbers for the crop of an image, which depend on ``seed`` and the image's first row of pixels.

    A reader knows neither the epoch nor the number of its sample; so the crop is the same in each epoch, and results
    do not depend on workers.
    """
    row = image.crop((0, 0, image.width, 1)).tobytes()
    return payload.rng(seed, zlib.crc32(row, image.height), _CROP)


def numbered_crop_generator(sample: int, seed: int) -> np.random.Generator:
    """Random numbers for the crop of an image whose sample number is known, which depend on it and on ``seed``."""
    return payload.rng(seed, sample, _CROP)


_CROP = 7  # stream; content of generated images has others


def crop_box(width: int, height: int, generator: np.random.Generator) -> tuple[int, int, int, int]:
    """Left, top, right and lower edge of a random part of an image, in pixels.

    The part has 8 % to 100 % of the area and a ratio of width to height of 3/4 to 4/3, drawn as by
    ``RandomResizedCrop.get_params``; after ten unsuccessful draws it is the largest centred part.
    """
    low, high = (math.log(ratio) for ratio in _RATIO)
    for _ in range(_TRIES):
        area = width * height * generator.uniform(*_SCALE)
        ratio = math.exp(generator.uniform(low, high))
        across, down = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < across <= width and 0 < down <= height:
            top = int(generator.integers(0, height - down + 1))
            left = int(generator.integers(0, width - across + 1))
            return left, top, left + across, top + down
    across, down = width, height
    if width / height < _RATIO[0]:
        down = round(width / _RATIO[0])
    elif width / height > _RATIO[1]:
        across = round(height * _RATIO[1])
    left, top = (width - across) // 2, (height - down) // 2
    return left, top, left + across, top + down
