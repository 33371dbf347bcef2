"""The array of an image: shape, type, and the options that it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.array_specs import specs_of
from dlio_torch.formats.core.batch import ArraySpec
from dlio_torch.formats.image.options import ImageConfig

if TYPE_CHECKING:
    pass

LABEL = "label"
_LENGTH_LIMIT = 65500  # libjpeg's
_ONE = "set dataset.samples_per_file=1 and, where there are evaluation files, dataset.samples_per_file_eval=1"


def pixel_spec(config: DatasetConfig, name: str) -> ArraySpec:
    """The image's array.

    Raises:
        ConfigError: the options do not describe files of one RGB image each.
    """
    if config.path is None:
        for key in ("samples_per_file", "samples_per_file_eval"):
            value = getattr(config, key)
            if value > 1:
                raise ConfigError(f"dataset.{key}={value}: a file of dataset.format={name} is one image", hint=_ONE)
    quality = config.of(ImageConfig).quality
    if quality > 95:
        raise ConfigError(f"dataset.image.quality={quality}", hint="JPEG qualities are 1 to 95")
    specs = specs_of(config.fields)
    spec, field = specs[0], config.fields[0]
    sound = len(specs) == 1 and spec.dtype == np.uint8 and not spec.variable and not field.select
    if not sound or len(spec.shape) != 3 or spec.shape[2] != 3 or max(spec.shape) > _LENGTH_LIMIT:
        raise ConfigError(
            f"dataset.fields does not describe one RGB image, which dataset.format={name} needs",
            hint="set dataset.fields=[{name: image, dtype: uint8, shape: [HEIGHT, WIDTH, 3]}]",
        )
    if spec.name == LABEL and config.num_subfolders:
        raise ConfigError(f"dataset.fields: name={LABEL} is the name of the class numbers", hint="rename it")
    return spec
