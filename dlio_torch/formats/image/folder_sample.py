"""Arrays of a sample of an image folder: pixels, mask, height and width, label."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import ArraySpec, Sample
from dlio_torch.formats.image.folder_specs import IMAGE, MASK, SIZE
from dlio_torch.formats.image.labels import labelled
from dlio_torch.formats.image.options import ImageConfig
from dlio_torch.formats.image.transforms import transform_of

if TYPE_CHECKING:
    from PIL import Image


class ImageArrays:
    """Makes the arrays of samples from their decoded images.

    Args:
        options: mode and transform.
        pixels: the array of a decoded and transformed image.
        seed: of random crops.
    """

    def __init__(self, options: ImageConfig, pixels: ArraySpec, seed: int) -> None:
        self._options, self._seed = options, seed
        self._image = pixels

    def decoded(self, image: Image.Image, path: Path) -> Image.Image:
        """The decoded image in the mode of ``dataset.image.mode``.

        Raises:
            DataError: the pixels are damaged.
        """
        try:
            if self._options.mode == "as_is":
                image.load()
                return image
            return image.convert(self._options.mode)
        except (OSError, SyntaxError, ValueError) as error:  # Pillow's decoders
            raise DataError(
                f"{path} cannot be decoded: {error}",
                hint="replace or remove the file (dataset.image.on_error=skip checks only header and end of a file)",
            ) from error

    def of(
        self,
        image: Image.Image,
        path: Path,
        label: int | None,
        mask: Image.Image | None = None,
        mask_path: Path | None = None,
    ) -> Sample:
        """The arrays of one sample.

        Args:
            image: decoded.
            path: of its file.
            label: number of its class.
            mask: of the image, decoded.
            mask_path: of the mask's file.

        Raises:
            DataError: image or mask have another mode or size than specified.
        """
        from PIL import Image

        options = self._options
        transform = transform_of(image, options.transform, options.size, self._seed)
        pixels = np.asarray(transform(image, Image.Resampling.BILINEAR))
        checked = self._checked(pixels, image, path)
        arrays: Sample = {IMAGE: _to_tensor(checked) if options.to_tensor else checked}
        if mask is not None:
            _check_mask(mask, mask_path, image, path)
            classes = np.asarray(transform(mask, Image.Resampling.NEAREST))
            arrays[MASK] = np.array(classes.reshape(-1)) if self._image.variable else classes
        if self._image.variable:
            arrays[SIZE] = np.array(pixels.shape[:2], np.int64)
        return labelled(arrays, label)

    def beside_pixels(self, height: int, width: int, label: int | None) -> Sample:
        """The arrays of a sample without mask, except for the pixels of its image, which keeps its size.

        Args:
            height: of the image, in pixels.
            width: of the image, in pixels.
            label: number of its class.
        """
        size: Sample = {SIZE: np.array([height, width], np.int64)} if self._image.variable else {}
        return labelled(size, label)

    def _checked(self, pixels: npt.NDArray[Any], image: Image.Image, path: Path) -> npt.NDArray[Any]:
        """The pixels in the shape of the specification.

        Raises:
            DataError: they have another one.
        """
        spec = self._image
        channels = spec.shape if spec.variable else spec.shape[2:]
        if pixels.dtype != spec.dtype or pixels.shape[2:] != channels:
            raise DataError(
                f"{path} is an image of mode {image.mode} with pixels {pixels.dtype}{list(pixels.shape[2:])}, but "
                f"dataset.fields expect {spec.dtype}{list(channels)}",
                hint="set dataset.image.mode=RGB, which converts all images",
            )
        if spec.variable:
            return np.array(pixels.reshape(-1, *channels))  # the image's own memory is not writable
        if pixels.shape != spec.shape:
            raise DataError(
                f"{path}: the image has {image.height} x {image.width} pixels, but dataset.fields expect "
                f"{spec.shape[0]} x {spec.shape[1]}",
                hint="set dataset.image.transform=resize, or remove dataset.fields and set train.batch_size=1",
            )
        return pixels


def _to_tensor(pixels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An image as ``to_tensor`` of ``torchvision/transforms/functional.py`` gives it, by the same calls.

    Args:
        pixels: uint8 of ``(height, width)`` or ``(height, width, channels)``.

    Returns:
        float32 of ``(channels, height, width)``, from 0 to 1.
    """
    import torch

    height, width, *_ = pixels.shape
    image = torch.from_numpy(np.array(pixels, copy=True)).view(height, width, -1).permute(2, 0, 1).contiguous()
    tensor: npt.NDArray[Any] = image.to(torch.float32).div(255).numpy()
    return tensor


def _check_mask(mask: Image.Image, mask_path: Path | None, image: Image.Image, path: Path) -> None:
    """Raise unless a mask has one byte a pixel and the size of its image."""
    if mask.size != image.size:
        raise DataError(
            f"{mask_path} has {mask.height} x {mask.width} pixels, but its image {path} has {image.height} x "
            f"{image.width}",
            hint="replace the mask by one of the image's size",
        )
    if mask.mode not in ("L", "P"):
        raise DataError(
            f"{mask_path} is an image of mode {mask.mode}, but a mask has one byte a pixel",
            hint="store masks as images of mode L or P",
        )
