"""Whole arrays of format ``hdf5_crops``: content that every chunk of a layer compresses by the same share."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import FieldConfig
from dlio_torch.formats.core.batch import ArraySpec
from dlio_torch.formats.core.column import Column, Piece
from dlio_torch.formats.hdf5.format import Hdf5Format

_SPREAD, _SHIFT, _WHOLE = 2654435769, 40503 << 12, 1 << 32
"""Multipliers of a low-discrepancy sequence (golden ratio), which spreads zeros evenly over neighbouring elements."""


@dataclass(frozen=True)
class VolumeColumn(Column):
    """The generator of the planes of a whole array.

    Attributes:
        layer: planes in a chunk; their zeros are equally many.
        stdev: standard deviation of ``compressibility`` among layers.
        layers: number of layers.
    """

    layer: int = 1
    stdev: float = 0.0
    layers: int = 1

    def make(self, piece: Piece, into: npt.NDArray[Any]) -> None:
        """Fill ``into`` with the elements of a piece, of which zeros are spread evenly."""
        replace(self, compressibility=0.0)._fill(piece, into)
        place = 0
        for number, size in enumerate(piece.sizes.tolist()):
            plane = piece.first + number
            element = np.arange(piece.start, piece.start + size, dtype=np.uint64)
            word = (element * np.uint64(_SPREAD) + np.uint64(plane * _SHIFT)) % np.uint64(_WHOLE)
            into[place : place + size][word < np.uint64(self._share(plane // self.layer) * _WHOLE)] = 0
            place += size

    def _fill(self, piece: Piece, into: npt.NDArray[Any]) -> None:
        Column.make(self, piece, into)

    def _share(self, layer: int) -> float:
        """Share of zeros in a layer: the quantiles of a normal distribution, in an order without a trend."""
        if not self.stdev:
            return self.compressibility
        place = (layer * _SPREAD % _WHOLE) / _WHOLE if self.layers > 8 else (2 * layer + 1) / (2 * self.layers)
        drawn = NormalDist(self.compressibility, self.stdev).inv_cdf(min(max(place, 0.01), 0.99))
        return min(max(drawn, 0.0), 1.0)


class Volumes(Hdf5Format):
    """Format of files with whole arrays; a sample of this format is a plane of each."""

    def _column(self, number: int, field: FieldConfig) -> Column:
        plain = super()._column(number, field)
        options, planes = self.options, self.config.samples_per_file
        if not options.compressibility:
            return plain
        chunk = self._chunk(field, planes)
        layer = chunk[0] if chunk is not None else planes
        return VolumeColumn(
            plain.spec, plain.seed, plain.stream, plain.rows, compressibility=options.compressibility,
            layer=layer, stdev=options.compressibility_stdev, layers=-(-planes // layer),
        )  # fmt: skip

    def _ratio(self, number: int, field: FieldConfig, chunk: tuple[int, ...] | None) -> float:
        if chunk is None or self.options.compression == "none":
            return 1.0
        return volume_ratio(field.dtype, chunk, self.options.compression_level, self.options.compressibility)


def volume_ratio(dtype: str, chunk: tuple[int, ...], level: int, compressibility: float) -> float:
    """Compression ratio (stored bytes / bytes in memory) of a chunk of a generated volume.

    Args:
        dtype: element type.
        chunk: shape of the chunk.
        level: of deflate.
        compressibility: share of zeros.
    """
    spec = ArraySpec("trial", np.dtype(dtype), tuple(chunk[1:]))
    column = VolumeColumn(spec, 0, 0, _one_row, compressibility=compressibility, layer=chunk[0])
    trial = column.elements(0, chunk[0])
    return len(zlib.compress(trial.data, level)) / trial.nbytes


def _one_row(first: int, count: int) -> npt.NDArray[np.int64]:
    return np.ones(count, np.int64)
