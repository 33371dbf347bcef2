"""Layout of a plain JPEG image that is in memory as stored, and decoded straight to the memory of the batch."""

from __future__ import annotations

import ctypes
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import ArraySpec, Sample
from dlio_torch.formats.core.buffered_file import refusing
from dlio_torch.formats.core.jpeg_decoder import PlainJpegDecoder
from dlio_torch.formats.core.layout import Ints, RecordLayout, Records
from dlio_torch.native.jpeg import JpegFile, JpegHeader
from dlio_torch.native.memory import address_of


@dataclass(frozen=True)
class PixelSample:
    """Arrays of a sample whose image is decoded to RGB and kept in its size.

    Attributes:
        specs: all arrays, in the order of the batch.
        name: of the array of pixels: uint8 of ``(height, width, 3)``, or of variable length with one row a pixel.
        others: the other arrays of an image of a height and a width.
    """

    specs: Sequence[ArraySpec]
    name: str
    others: Callable[[int, int], Sample]

    def fits(self, header: JpegHeader) -> bool:
        """Whether the array of pixels takes an image of this size."""
        (spec,) = (spec for spec in self.specs if spec.name == self.name)
        return spec.variable or spec.shape == (header.height, header.width, 3)


class JpegRecord(RecordLayout):
    """Layout of one image as a record; Pillow decodes an image that native code finds damaged, or says what is wrong.

    Args:
        path: the file.
        file: its bytes.
        decoder: decodes it; its pixels are Pillow's.
        sample: arrays of the sample.
        start: opens the image by Pillow; its result goes to ``finish``.
        finish: gives the arrays of the sample by Pillow.
    """

    in_memory = True

    def __init__(
        self,
        path: Path,
        file: JpegFile,
        decoder: PlainJpegDecoder,
        sample: PixelSample,
        start: Callable[[IO[bytes], Path], Any],
        finish: Callable[[Any, Path], Sample],
    ) -> None:
        self.path = path
        self._file, self._decoder = file, decoder
        self._start, self._finish = start, finish
        others = sample.others(file.header.height, file.header.width)
        self._names = [spec.name for spec in sample.specs]
        self._others = {name: np.ascontiguousarray(array) for name, array in others.items()}
        pixels = 3 * file.header.height * file.header.width
        self._sizes = np.array([[others[name].nbytes if name in others else pixels for name in self._names]], np.int64)

    def sizes(self, rows: Ints) -> Ints:
        return np.repeat(self._sizes, len(rows), axis=0)

    def plan(self, rows: Ints, into: Ints) -> Records:
        sizes = self.sizes(rows)
        begins, stored = np.zeros(len(rows), np.int64), np.full(len(rows), self._file.length, np.int64)
        return Records(begins, stored, np.ascontiguousarray(into), sizes, self)

    def read(self, records: Records, low: int, high: int, base: int, request: int) -> None:
        for targets in (records.to[low:high] + base).tolist():
            self._decode(dict(zip(self._names, targets, strict=True)))

    def _decode(self, targets: dict[str, int]) -> None:
        file = self._file
        (pixels,) = targets.keys() - self._others.keys()
        if self._decoder.decode(file.address, file.length, file.header, targets[pixels]):
            _copy(self._others, targets)
            return
        with refusing(self.path):
            sample = self._finish(self._start(io.BytesIO(file.stored()), self.path), self.path)
        arrays = {name: np.ascontiguousarray(array) for name, array in sample.items()}
        if [arrays[name].nbytes for name in self._names] != self._sizes[0].tolist():
            raise DataError(f"{self.path} has another size than its header says", hint="replace or remove the file")
        _copy(arrays, targets)


def _copy(arrays: Sample, targets: dict[str, int]) -> None:
    for name, array in arrays.items():
        ctypes.memmove(targets[name], address_of(array), array.nbytes)
