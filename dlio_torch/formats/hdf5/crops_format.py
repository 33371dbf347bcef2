"""Format ``hdf5_crops``: crops at random places of whole arrays, as segmentation networks read volumes.

The arrays of a file are volumes of one shape, such as an image and its labels; a sample is the same box out of each.
How many crops of a file an epoch has is the program's choice: ``dataset.samples_per_file``.  As in a program, a sample
lies at another place in each epoch: a function of the seed, its number and the epoch.  Generated files have the same
content, and an attribute of their first array is the number of their first sample, from which the places follow.
"""

from __future__ import annotations

import math
from concurrent.futures import Executor
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import h5py
import numpy as np

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.batch import ArraySpec, Sample
from dlio_torch.formats.core.format import FileInfo, Format
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.hdf5.crops_reader import FIRST_SAMPLE, START, CropReader, crop_start
from dlio_torch.formats.hdf5.options import Hdf5Config
from dlio_torch.formats.hdf5.volumes import Volumes
from dlio_torch.iotrace.recorder.spans import NULL, Recorder


class Hdf5CropsFormat(Format):
    """Crops of the arrays of ``dataset.fields``, whose shapes are those of whole arrays."""

    name: ClassVar[str] = "hdf5_crops"
    suffix: ClassVar[str] = ".h5"
    may_crash: ClassVar[bool] = True
    writes_at_once: ClassVar[bool] = True
    depends_on_epoch: ClassVar[bool] = True

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        self.options: Hdf5Config = config.of(Hdf5Config)
        super().__init__(config, seed)
        _check(config, self.options)
        self._epoch = 0
        self._shape = tuple(config.fields[0].shape)
        self._crop = tuple(self.options.crop)
        rows = [replace(field, shape=field.shape[1:]) for field in config.fields]
        self._volumes = Volumes(replace(config, fields=rows, samples_per_file=self._shape[0]), seed)

    def specs(self) -> list[ArraySpec]:
        start = ArraySpec(START, np.dtype(np.int64), (len(self._crop),))
        return [start, *(replace(spec, shape=self._crop) for spec in self._volumes.specs())]

    def layout_options(self) -> dict[str, Any]:
        return {**self._volumes.layout_options(), "format": self.name, "rows": self._shape[0]}

    def of_epoch(self, epoch: int) -> Hdf5CropsFormat:
        """See :class:`Format`."""
        other = copy(self)
        other._epoch = epoch
        return other

    def expected(self, sample: int) -> Sample:
        start = crop_start(self.seed, sample, self._epoch, self._shape, self._crop)
        arrays: Sample = {START: np.array(start, np.int64)}
        inside = tuple(slice(first, first + length) for first, length in zip(start, self._crop, strict=True))
        for name, content in self._volumes.rows(start[0], self._crop[0]).items():
            arrays[name] = np.ascontiguousarray(content[(slice(None), *inside[1:])])
        return arrays

    def sample_bytes(self) -> float:
        return float(sum(math.prod(spec.shape) * spec.dtype.itemsize for spec in self.specs()))

    def stored_bytes(self) -> float:
        return self._volumes.stored_bytes() * self._shape[0] / self.config.samples_per_file

    def sharing(self) -> float:
        return max(1.0, self.config.samples_per_file * math.prod(self._crop) / math.prod(self._shape))

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        self._volumes.write(path, 0, self._shape[0], pool)
        with h5py.File(path, "r+", libver="earliest") as file:
            file[self.config.fields[0].name].attrs.create(FIRST_SAMPLE, first_sample, dtype=np.int64)

    def inspect(self, path: Path) -> FileInfo:
        with CropReader(path, self._volumes.specs(), self._shape, self.config, self.seed) as reader:
            return FileInfo(self.config.samples_per_file, reader.describe())

    def open(self, path: Path, recorder: Recorder = NULL) -> Reader:
        return CropReader(path, self._volumes.specs(), self._shape, self.config, self.seed)


def _check(config: DatasetConfig, options: Hdf5Config) -> None:
    """Raise unless the crop fits into every array.

    Raises:
        ConfigError: names the option.
    """
    crop = options.crop
    if not config.fields or not crop:
        raise ConfigError(
            f"dataset.hdf5.crop={crop}: format hdf5_crops needs whole arrays and the shape of a crop",
            hint="set dataset.fields=[{name: raw, dtype: uint8, shape: [64, 128, 128]}] dataset.hdf5.crop=[32,32,32]",
        )
    for field in config.fields:
        if field.shape != config.fields[0].shape or field.length_mean or field.select or field.name == START:
            raise ConfigError(
                f"dataset.fields: {field.name}: arrays of format hdf5_crops have one fixed shape, are read without "
                f"select, and are not named {START}",
                hint=f"set shape={config.fields[0].shape} in each field, or name the arrays of that shape alone",
            )
    shape = config.fields[0].shape
    if len(crop) != len(shape) or not all(0 < length <= edge for length, edge in zip(crop, shape, strict=True)):
        raise ConfigError(
            f"dataset.hdf5.crop={crop} does not fit into an array of shape {shape}",
            hint="set one positive length for each axis, none longer than the array",
        )
