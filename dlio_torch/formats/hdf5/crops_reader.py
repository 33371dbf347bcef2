"""Reader of crops: one hyperslab of each array of an open HDF5 file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import DataError
from dlio_torch.formats.core import payload
from dlio_torch.formats.core.batch import ArraySpec, BatchBuffer
from dlio_torch.formats.core.file_errors import check_rows
from dlio_torch.formats.hdf5.file import reading
from dlio_torch.formats.hdf5.options import Hdf5Config
from dlio_torch.formats.hdf5.reader import Hdf5Reader

START = "start"
"""Array of a sample that says where its crop begins."""

FIRST_SAMPLE = "first_sample"
"""Attribute of the first array of a generated file: number of its first sample; files of other origin have none."""

_PLACES = 0xC40  # random stream of the places


def crop_start(seed: int, sample: int, epoch: int, shape: Sequence[int], crop: Sequence[int]) -> list[int]:
    """First element of a crop along each axis.

    Args:
        seed: of the data set.
        sample: its number in the data set.
        epoch: from 0.
        shape: of the array.
        crop: of the box.
    """
    words = payload.rng(seed, sample, _PLACES, skip=epoch * len(crop)).random(len(crop))
    room = np.array(shape) - np.array(crop) + 1
    return [int(first) for first in np.floor(words * room)]


class CropReader(Hdf5Reader):
    """Reader of one file, opened as :class:`Hdf5Reader` opens it.

    Args:
        path: the file.
        specs: rows of its arrays.
        shape: of each array.
        config: of the data set; its ``samples_per_file`` is the number of crops.
        seed: of the places.

    Raises:
        DataError: here or from :meth:`read`: the file has another layout.
    """

    def __init__(
        self, path: Path, specs: list[ArraySpec], shape: tuple[int, ...], config: DatasetConfig, seed: int
    ) -> None:
        options = config.of(Hdf5Config)
        self._seed, self._shape, self._crop = seed, shape, options.crop
        super().__init__(path, specs, {}, options)
        with reading(self._file, path):
            self._check_length(shape[0])
            self._first_sample = int(self._file[specs[0].name].attrs.get(FIRST_SAMPLE, 0))
        self.num_samples = None  # as many as the program wants
        self._crops = config.samples_per_file
        self._epoch = 0

    def begin_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def _check_length(self, length: int) -> None:
        """Raise unless the first axis of the arrays has this length."""
        if self.rows != length:
            raise DataError(
                f"{self._path}: the first axis of its arrays has length {self.rows}, but the configuration expects "
                f"{length}",
                hint="correct shape in dataset.fields, or replace the file",
            )

    def _read_arrays(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        check_rows(self._path, "crops", self._crops, first, count)
        for number in range(count):
            sample = self._first_sample + first + number
            start = crop_start(self._seed, sample, self._epoch, self._shape, self._crop)
            buffer.fixed[START][position + number] = start
            for name in self._specs:
                self._array(name).read_box(start, buffer.fixed[name][position + number])
