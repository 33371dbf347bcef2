"""What formats of plain arrays share: the content of ``dataset.fields``, and making it while a file is written."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future

import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import ConfigError
from dlio_torch.formats import payload
from dlio_torch.formats.arrays import specs_of
from dlio_torch.formats.base import Format
from dlio_torch.formats.batch import ArraySpec, Sample

_BLOCK_BYTES = 1 << 20  # content that one thread makes at a time
_BLOCKS_AHEAD = 16  # blocks that are made before the first of them is written


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
                    f"dataset.fields: {field.name}: select={field.select} with dataset.format={self.name}",
                    hint="files of this format are read whole; leave select out",
                )
        lengths = [(field.length_mean, field.length_stdev) for field in config.fields]
        self._streams = [lengths.index(pair) for pair in lengths]
        self._compressibility = 0.0

    def specs(self) -> list[ArraySpec]:
        return list(self._specs)

    def expected(self, sample: int) -> Sample:
        return {spec.name: self.content(number, sample, 1)[0] for number, spec in enumerate(self._specs)}

    def rows(self, number: int, first: int, count: int) -> npt.NDArray[np.int64]:
        """Rows that field ``number`` has in each of ``count`` samples from ``first`` on; 1 of a fixed-length field."""
        field = self.config.fields[number]
        if field.length_mean <= 0:
            return np.ones(count, np.int64)
        stream = self._streams[number]
        return payload.lengths(self.seed, stream, first, count, field.length_mean, field.length_stdev)

    def content(self, number: int, first: int, count: int) -> list[npt.NDArray[np.generic]]:
        """Field ``number`` of ``count`` samples from ``first`` on."""
        spec = self._specs[number]
        made = []
        for sample, rows in enumerate(self.rows(number, first, count).tolist(), start=first):
            shape = (rows, *spec.shape) if spec.variable else spec.shape
            made.append(payload.array(payload.rng(self.seed, sample, number), shape, spec.dtype, self._compressibility))
        return made

    def blocks(self, number: int, first: int, count: int, pool: Executor) -> Iterator[npt.NDArray[np.generic]]:
        """Field ``number`` of ``count`` samples from ``first`` on, samples along the first axis.

        Yields:
            The rows of some consecutive samples, about 1 MiB or one sample; made by the threads of ``pool``.
        """
        step = max(1, int(_BLOCK_BYTES // max(1.0, self.field_bytes(number))))
        ahead: deque[Future[npt.NDArray[np.generic]]] = deque()
        for low in range(first, first + count, step):
            size = min(step, first + count - low)
            ahead.append(pool.submit(self._together, number, low, size))
            if len(ahead) > _BLOCKS_AHEAD:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()

    def _together(self, number: int, first: int, count: int) -> npt.NDArray[np.generic]:
        stack = np.concatenate if self._specs[number].variable else np.stack
        return stack(self.content(number, first, count))

    def field_bytes(self, number: int) -> float:
        """Mean bytes of field ``number`` in a sample."""
        spec = self._specs[number]
        return math.prod(spec.shape) * spec.dtype.itemsize * (self.config.fields[number].length_mean or 1)

    def sample_bytes(self) -> float:
        return float(sum(self.field_bytes(number) for number in range(len(self._specs))))
