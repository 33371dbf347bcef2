"""Label images: one mask for each image, in a folder of masks or beside its image."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.image.classes import ClassTree
from dlio_torch.formats.image.options import SUFFIXES

_BLOCK, _CLASSES = 32, 21  # pixels; classes of a generated mask, as many as Pascal VOC has


class Masks:
    """Paths of masks.

    Args:
        value: of ``dataset.image.masks``.
        images: folder of the images; ``None``: images are generated, or a file or a pattern is given.

    Attributes:
        folder: whether the masks lie in a folder of their own.
        ending: of the name of a mask beside its image, behind the image's name without suffix.

    Raises:
        ConfigError: the value is neither a folder nor a pattern.
    """

    def __init__(self, value: str, images: ClassTree | None) -> None:
        self.folder = not value.startswith("*")
        self.ending = value[1:]
        self._images = images
        self._root = Path(value).expanduser()  # shells leave a ~ behind "=" as it is
        if not self.folder and (not self.ending.lower().endswith(SUFFIXES) or "*" in self.ending):
            raise ConfigError(
                f"dataset.image.masks={value}: the name of a mask beside its image is * and an ending",
                hint="write for example dataset.image.masks=*_mask.png",
            )
        if self.folder and images is None:
            raise ConfigError(
                f"dataset.image.masks={value}: a folder of masks needs a folder of images in dataset.path",
                hint="set dataset.path to the folder of the images, or masks=*_mask.png for masks beside their images",
            )
        if self.folder and not self._root.is_dir():
            raise ConfigError(
                f"dataset.image.masks={value} is not a folder", hint="set dataset.image.masks to the folder of masks"
            )

    @cached_property
    def _by_stem(self) -> dict[str, str]:
        """Paths of all masks below the folder, by their path without suffix."""
        names: dict[str, str] = {}
        for folder, _, files in os.walk(self._root, followlinks=True):
            for file in files:
                if file.lower().endswith(SUFFIXES):
                    name = os.path.relpath(os.path.join(folder, file), self._root)
                    names[os.path.splitext(name)[0]] = name
        return names

    def path(self, image: Path) -> Path:
        """Path of the mask of an image, which has the same path below the folder of masks except for the suffix.

        Raises:
            DataError: there is none.
        """
        assert self._images is not None  # or the folder of masks was refused
        stem = os.path.splitext(self._images.name_of(image))[0]
        name = self._by_stem.get(stem)
        if name is None:
            raise DataError(
                f"{image} has no mask: {self._root} contains no {stem} with the suffix of an image",
                hint="add the mask, or remove the image",
            )
        return self._root / name


def generated_mask(sample: int, size: tuple[int, int]) -> npt.NDArray[np.uint8]:
    """A mask of square regions; uint8 of ``size`` (height, width), with class numbers below 21."""
    height, width = size
    rows, columns = np.arange(height) // _BLOCK, np.arange(width) // _BLOCK
    return ((rows[:, None] * 3 + columns + sample) % _CLASSES).astype(np.uint8)
