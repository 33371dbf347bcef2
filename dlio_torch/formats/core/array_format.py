"""Base of formats of plain arrays: generates the content of ``dataset.fields`` while a file is written."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from functools import partial
from typing import IO

import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core import payload
from dlio_torch.formats.core.array_specs import specs_of
from dlio_torch.formats.core.batch import ArraySpec, Sample
from dlio_torch.formats.core.column import Column
from dlio_torch.formats.core.format import Format


class FieldFormat(Format):
    """A format whose samples are the arrays of ``dataset.fields``.

    Variable-length fields of equal ``length_mean`` and ``length_stdev`` have equal lengths in each sample: they
    are columns of one time series, or an image and its mask.
    """

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        super().__init__(config, seed)
        self._specs = specs_of(config.fields)
        for field in config.fields:
            if field.select:
                raise ConfigError(
                    f"dataset.fields: {field.name}: select={field.select} cannot be used with "
                    f"dataset.format={self.name}, whose files are read whole",
                    hint="remove select from the field",
                )
        lengths = [(field.length_mean, field.length_stdev) for field in config.fields]
        self._streams = [lengths.index(pair) for pair in lengths]
        self._compressibility = 0.0

    def specs(self) -> list[ArraySpec]:
        return list(self._specs)

    def expected(self, sample: int) -> Sample:
        return {spec.name: self.content(number, sample, 1)[0] for number, spec in enumerate(self._specs)}

    def rows(self, number: int, first: int, count: int) -> npt.NDArray[np.int64]:
        """Rows of field ``number`` in each of ``count`` samples from ``first`` on; 1 for a fixed-length field."""
        field = self.config.fields[number]
        if field.length_mean <= 0:
            return np.ones(count, np.int64)
        stream = self._streams[number]
        return payload.lengths(self.seed, stream, first, count, field.length_mean, field.length_stdev)

    def column(self, number: int) -> Column:
        """The generator of the content of field ``number``."""
        mean = self.config.fields[number].length_mean or 1
        return Column(
            self._specs[number], self.seed, number, partial(self.rows, number), mean, self._compressibility
        )  # fmt: skip

    def content(self, number: int, first: int, count: int) -> list[npt.NDArray[np.generic]]:
        """Field ``number`` of ``count`` samples from ``first`` on."""
        return self.column(number).content(first, count)

    def blocks(self, number: int, first: int, count: int, pool: Executor) -> Iterator[npt.NDArray[np.generic]]:
        """Field ``number`` of ``count`` samples from ``first`` on, samples along the first axis.

        Yields:
            The rows of some consecutive samples, about 1 MiB or one sample; made by the threads of ``pool``.
        """
        return self.column(number).blocks(first, count, pool)

    def write_pieces(self, file: IO[bytes], number: int, first: int, count: int, pool: Executor) -> None:
        """Write the elements of field ``number`` of ``count`` samples from ``first`` on, one after another."""
        for piece in self.column(number).pieces(first, count, pool):
            file.write(piece.data)

    def field_bytes(self, number: int) -> float:
        """Mean bytes of field ``number`` in a sample."""
        return self.column(number).mean_bytes

    def sample_bytes(self) -> float:
        return float(sum(self.field_bytes(number) for number in range(len(self._specs))))
