"""Specifications of the arrays of a sample of an image folder, made from the options after checking them."""

from __future__ import annotations

import numpy as np

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.array_specs import specs_of
from dlio_torch.formats.core.batch import ArraySpec
from dlio_torch.formats.image.labels import LABEL
from dlio_torch.formats.image.options import ImageConfig

IMAGE, MASK, SIZE = "image", "mask", "height_and_width"
_CHANNELS = {"RGB": (3,), "L": ()}
_STORED = ArraySpec(IMAGE, np.dtype(np.uint8), (), variable=True)
_PIXEL_TYPES = ("uint8", "uint16", "int32", "float32", "bool")


def folder_specs(config: DatasetConfig) -> list[ArraySpec]:
    """Image, mask, label, and height and width where images have any size; arrays of fixed shape first.

    Raises:
        ConfigError: ``dataset.fields`` contradicts the options, or is missing.
    """
    options = config.of(ImageConfig)
    image = image_array(config, options)
    specs = [_as_delivered(image, options) if options.decoded_by_readers else _STORED]
    if options.masks is not None and options.decoded_by_readers:
        specs.append(ArraySpec(MASK, np.dtype(np.uint8), () if image.variable else image.shape[:2], image.variable))
    if image.variable and options.decoded_by_readers:
        specs.append(ArraySpec(SIZE, np.dtype(np.int64), (2,)))
    if options.classes:
        specs.append(ArraySpec(LABEL, np.dtype(np.int64), ()))
    return sorted(specs, key=lambda spec: spec.variable)  # arrays of fixed shape come first in a batch


def image_array(config: DatasetConfig, options: ImageConfig) -> ArraySpec:
    """The array of an image: its pixels, or its stored bytes if nothing decodes them.

    Raises:
        ConfigError: ``dataset.fields`` contradicts the options, or is missing.
    """
    return pixel_array(config, options) if options.decode else _STORED


def _as_delivered(pixels: ArraySpec, options: ImageConfig) -> ArraySpec:
    """The array of an image after ``dataset.image.to_tensor``.

    Raises:
        ConfigError: images have any size, or their pixels are no bytes.
    """
    if not options.to_tensor:
        return pixels
    if pixels.variable or pixels.dtype != np.uint8:
        raise ConfigError(
            "dataset.image.to_tensor=true needs images of one size, of one byte a channel",
            hint="set dataset.image.transform=random_resized_crop, or dataset.image.to_tensor=false",
        )
    height, width, *channels = pixels.shape
    return ArraySpec(IMAGE, np.dtype(np.float32), (*(channels or [1]), height, width))


def pixel_array(config: DatasetConfig, options: ImageConfig) -> ArraySpec:
    """The array of a decoded and transformed image; its rows are pixels where images have any size.

    Raises:
        ConfigError: ``dataset.fields`` contradicts the options, or is missing.
    """
    size = None if options.transform == "none" else (options.size, options.size)
    if options.mode != "as_is":
        expected = "RGB" if options.mode == "RGB" else "L (one byte a pixel)"
        channels = _CHANNELS[options.mode]
        dtype: np.dtype[np.generic] = np.dtype(np.uint8)
        if config.fields:
            spec = _given(config)
            if spec.dtype != dtype or spec.shape[2:] != channels or len(spec.shape) != 2 + len(channels):
                raise _contradiction(config, f"dataset.image.mode={options.mode} gives {expected}")
    else:
        spec = _given(config)
        channels, dtype = spec.shape[2:], spec.dtype
    if config.fields:
        height, width = _given(config).shape[:2]
        if size not in (None, (height, width)):
            raise _contradiction(
                config, f"dataset.image.transform={options.transform} gives {options.size} x {options.size} pixels"
            )
        size = height, width
    if size is None:
        return ArraySpec(IMAGE, dtype, channels, variable=True)
    return ArraySpec(IMAGE, dtype, (*size, *channels))


def _given(config: DatasetConfig) -> ArraySpec:
    """The array that ``dataset.fields`` describes."""
    if len(config.fields) > 1:
        raise _contradiction(config, f"the pixels of an image are one array, named {IMAGE}")
    if not config.fields:
        raise ConfigError(
            "dataset.fields must describe the pixels of an image for dataset.image.mode=as_is",
            hint="set dataset.fields=[{name: image, dtype: uint8, shape: [HEIGHT, WIDTH, 3]}], or "
            "dataset.image.mode=RGB, which converts all images",
        )
    (spec,) = specs_of(config.fields)
    if spec.name != IMAGE or spec.variable or len(spec.shape) not in (2, 3) or spec.dtype.name not in _PIXEL_TYPES:
        raise _contradiction(config, f"the array of an image is named {IMAGE} and has height and width")
    return spec


def _contradiction(config: DatasetConfig, reason: str) -> ConfigError:
    fields = ", ".join(f"{field.name}: {field.dtype}{field.shape}" for field in config.fields)
    return ConfigError(f"dataset.fields ({fields}) does not fit: {reason}", hint="remove dataset.fields, or correct it")
