"""Decoding and transforms of JPEG images on a GPU, by torchvision's calls.

``torchvision.io.decode_jpeg`` takes the stored images of a batch as a list and returns when the GPU has decoded them:
by its JPEG engine where it has one (A100, H100), else by its cores.  ``torchvision.transforms.v2`` resizes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import INDEX, LENGTHS, ArraySpec, Batch
from dlio_torch.formats.image.nvjpeg_library import first_line, nvjpeg_library
from dlio_torch.formats.image.options import ImageConfig
from dlio_torch.formats.image.transforms import crop_box, numbered_crop_generator

_CHANNELS = {"RGB": 3, "L": 1}
_MOST_NAMED = 4


class NvjpegDecoder:
    """Decodes the images of batches on a GPU and transforms them there.

    Args:
        device: the GPU.
        options: mode and transform.
        spec: the array of a decoded image, as Pillow would give it: height, width, channels.
        seed: of random crops.

    Raises:
        MissingPackageError: torchvision is not installed.
        PreconditionError: torchvision cannot decode JPEG images on this GPU.
    """

    def __init__(self, device: torch.device, options: ImageConfig, spec: ArraySpec, seed: int) -> None:
        self._library = nvjpeg_library(device)
        self._device, self._options, self._spec, self._seed = device, options, spec, seed
        modes = self._library.io.ImageReadMode
        self._mode = {"RGB": modes.RGB, "L": modes.GRAY}[options.mode]

    def __call__(self, batch: Batch) -> Batch:
        numbers = batch[INDEX].tolist()
        lengths = batch[self._spec.name + LENGTHS].tolist()
        stored = batch[self._spec.name].split(lengths)  # type: ignore[no-untyped-call]
        images = self._decoded(list(stored), numbers)
        transformed = [self._transformed(image, number) for image, number in zip(images, numbers, strict=True)]
        return {self._spec.name: torch.stack(transformed)}

    def _decoded(self, stored: list[torch.Tensor], numbers: Sequence[int]) -> list[torch.Tensor]:
        """The pixels of each image; uint8 of ``(channels, height, width)``.

        Raises:
            DataError: nvJPEG cannot decode one of them; it does not say which.
        """
        try:
            images: list[torch.Tensor] = self._library.io.decode_jpeg(stored, mode=self._mode, device=self._device)
        except RuntimeError as error:
            if "CUDA" in str(error):  # memory or the device, not the image
                raise
            named = ", ".join(map(str, numbers[:_MOST_NAMED])) + (", ..." if len(numbers) > _MOST_NAMED else "")
            raise DataError(
                f"nvJPEG cannot decode a batch (samples {named}): {first_line(error)}",
                hint="set dataset.image.decoder=pillow, which names the damaged file",
            ) from error
        return images

    def _transformed(self, image: torch.Tensor, number: int) -> torch.Tensor:
        """An image after ``dataset.image.transform``.

        Raises:
            DataError: it has another size than ``dataset.fields`` state.
        """
        name, size, calls = self._options.transform, self._options.size, self._library.functional
        if name == "resize":
            image = calls.center_crop(calls.resize(image, [size], antialias=True), [size, size])
        elif name == "random_resized_crop":
            image = self._cropped(image, number, calls)
        self._check(image, number)
        return image

    def _cropped(self, image: torch.Tensor, number: int, calls: Any) -> torch.Tensor:
        """A random part of an image, resized; the same in each epoch, as with Pillow, but another part."""
        size, (height, width) = self._options.size, image.shape[-2:]
        left, top, right, bottom = crop_box(width, height, numbered_crop_generator(number, self._seed))
        cropped: torch.Tensor = calls.resized_crop(
            image, top, left, bottom - top, right - left, [size, size], antialias=True
        )
        return cropped

    def _check(self, image: torch.Tensor, number: int) -> None:
        """Raise unless an image has the channels, and the size where one is stated, of the specification."""
        height, width = image.shape[-2:] if self._spec.variable else self._spec.shape[:2]
        if tuple(image.shape) != (_CHANNELS[self._options.mode], height, width):
            raise DataError(
                f"sample {number}: the image has {image.shape[-2]} x {image.shape[-1]} pixels, but dataset.fields "
                f"expect {height} x {width}",
                hint="correct the shape in dataset.fields, or set dataset.format=imagefolder "
                "dataset.image.transform=resize",
            )
