"""Specification of an image's array, made from the options after checking them."""

from __future__ import annotations

import numpy as np

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.array_specs import specs_of
from dlio_torch.formats.core.batch import ArraySpec
from dlio_torch.formats.image.labels import LABEL

_LENGTH_LIMIT = 65500  # libjpeg's
ONE_IMAGE = "set dataset.samples_per_file=1 and, for evaluation files, dataset.samples_per_file_eval=1"


def pixel_spec(config: DatasetConfig, name: str) -> ArraySpec:
    """Specification of the image's array.

    Raises:
        ConfigError: the options do not describe files of one RGB image each.
    """
    if config.path is None:
        for key in ("samples_per_file", "samples_per_file_eval"):
            value = getattr(config, key)
            if value > 1:
                raise ConfigError(
                    f"dataset.{key}={value} cannot be used with dataset.format={name}, which stores one image per file",
                    hint=ONE_IMAGE,
                )
    specs = specs_of(config.fields)
    spec, field = specs[0], config.fields[0]
    sound = len(specs) == 1 and spec.dtype == np.uint8 and not spec.variable and not field.select
    if not sound or len(spec.shape) != 3 or spec.shape[2] != 3 or max(spec.shape) > _LENGTH_LIMIT:
        raise ConfigError(
            f"dataset.fields must describe exactly one RGB image for dataset.format={name}",
            hint="set dataset.fields=[{name: image, dtype: uint8, shape: [HEIGHT, WIDTH, 3]}]",
        )
    if spec.name == LABEL and config.num_subfolders:
        raise ConfigError(f"dataset.fields: name={LABEL} is reserved for the class numbers", hint="rename it")
    return spec
