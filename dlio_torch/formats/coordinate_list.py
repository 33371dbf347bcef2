"""A list of coordinates: GZIP TFRecords of Example protos with the feature ``center`` (z, y, x)."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError
from dlio_torch.formats.base import os_errors
from dlio_torch.formats.batch import ArraySpec
from dlio_torch.formats.tfexample import Decoder, Feature, Piece, encode
from dlio_torch.formats.tfrecord_file import opened
from dlio_torch.formats.tfrecord_io import frame

CENTER = ArraySpec("center", np.dtype(np.int64), (3,))
LEVEL = 6  # deflate level of a list
_FEATURES = [Feature(CENTER, "integers")]
_TRANSFER_BYTES = 262144  # TensorFlow's read buffer


def records(centers: Iterable[npt.NDArray[np.int64]]) -> Iterator[Piece]:
    """The framed records of a list, not yet compressed, in pieces."""
    for center in centers:
        yield from frame(encode(_FEATURES, {CENTER.name: center}))


class CoordinateList:
    """An open list, read in its order, a transfer buffer at a time, as far as its coordinates are needed.

    Used by one thread at a time.

    Args:
        path: of the list.

    Raises:
        DataError: from every method: it is missing, damaged, or no list of coordinates.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._decoder = Decoder(_FEATURES)
        self._known = array("q")  # a published list has 20 million: 24 bytes each, once it is read to its end
        with opened(path, _TRANSFER_BYTES, compressed=True) as self._file:
            self._records = self._file.begun("coordinates")
            self._read_one()

    def _read_one(self) -> bool:
        with os_errors(self._path):
            record = self._records.next()
        if record is None:
            return False
        try:
            center: npt.NDArray[Any] = self._decoder.decode(record)[CENTER.name]
        except ValueError as error:
            raise DataError(
                f"{self._path}: record {self._records.number - 1}: {error}", hint="it is no list of coordinates"
            ) from error
        self._known.extend(center.tolist())
        return True

    def __getitem__(self, row: int) -> tuple[int, ...]:
        """Coordinate number ``row``: z, y, x."""
        while 0 <= row >= len(self._known) // 3:
            if not self._read_one():
                break
        if not 0 <= row < len(self._known) // 3:
            raise DataError(
                f"{self._path} holds {self.count()} coordinates, number {row} was asked for",
                hint="the file was replaced or damaged; remove it and generate again",
            )
        return tuple(self._known[3 * row : 3 * row + 3])

    def count(self) -> int:
        """Coordinates in the list: reads all of it."""
        while self._read_one():
            pass
        return len(self._known) // 3

    def close(self) -> None:
        """Close the file; further calls do nothing."""
        self._file.close()
