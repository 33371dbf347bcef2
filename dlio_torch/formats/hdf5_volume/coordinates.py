"""Coordinate lists: gzipped TFRecord files of Example protos with the feature ``center`` (z, y, x)."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import ArraySpec
from dlio_torch.formats.core.file_errors import os_errors
from dlio_torch.formats.tfrecord.example_proto import Decoder, Feature, Piece, encode
from dlio_torch.formats.tfrecord.file import RecordFile, opened
from dlio_torch.formats.tfrecord.framing import frame
from dlio_torch.formats.tfrecord.stream import RecordStream
from dlio_torch.native.memory import address_of

CENTER = ArraySpec("center", np.dtype(np.int64), (3,))
LEVEL = 6  # deflate level of a list
_FEATURES = [Feature(CENTER, "integers")]
_TRANSFER_BYTES = 262144  # TensorFlow's read buffer
_BLOCK = 1 << 14  # coordinates in one piece of memory


def records(centers: Iterable[npt.NDArray[np.int64]]) -> Iterator[Piece]:
    """Yields the framed, uncompressed records of a coordinate list in pieces."""
    for center in centers:
        yield from frame(encode(_FEATURES, {CENTER.name: center}))


class CoordinateList:
    """Open coordinate list, read in order by transfer buffers, only as far as coordinates are needed.

    For any number of threads.  It is opened when the first coordinate is asked for, by the thread that asks, as
    TensorFlow's TFRecordReader does.

    Args:
        path: of the list.

    Raises:
        DataError: from every method: it is missing, damaged, or no list of coordinates.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._decoder = Decoder(_FEATURES)
        # A published list has 20 million: 24 bytes each, once it is read to its end.  They stay where they are.
        self._known: list[npt.NDArray[np.int64]] = []
        self._count = 0
        self._file: RecordFile | None = None
        self._records: RecordStream | None = None
        self._lock = threading.Lock()

    def _begin(self) -> RecordStream:
        with opened(self._path, _TRANSFER_BYTES, compressed=True) as self._file:
            self._records = self._file.begun("coordinates")
        return self._records

    def _read_one(self) -> bool:
        records = self._records or self._begin()
        with os_errors(self._path):
            record = records.next()
        if record is None:
            return False
        try:
            center: npt.NDArray[Any] = self._decoder.decode(record)[CENTER.name]
        except ValueError as error:
            raise DataError(
                f"{self._path}: record {records.number - 1}: {error}",
                hint="replace the file by a list of coordinates (gzipped TFRecords with the feature center)",
            ) from error
        block, row = divmod(self._count, _BLOCK)
        if not row:
            self._known.append(np.empty((_BLOCK, *CENTER.shape), CENTER.dtype))
        self._known[block][row] = center
        self._count += 1
        return True

    def __getitem__(self, row: int) -> tuple[int, ...]:
        """Returns coordinate number ``row`` as (z, y, x)."""
        with self._lock:
            self._require(row)
            return tuple(self._known[row // _BLOCK][row % _BLOCK].tolist())

    def address(self, row: int) -> int:
        """The address of coordinate number ``row`` in memory; valid as long as this object exists."""
        with self._lock:
            self._require(row)
            known = self._known[row // _BLOCK]
        return address_of(known) + row % _BLOCK * known.strides[0]

    def _require(self, row: int) -> None:
        while 0 <= row >= self._count:
            if not self._read_one():
                break
        if not 0 <= row < self._count:
            raise DataError(
                f"{self._path} holds {self._read_all()} coordinates, but number {row} (from 0) was requested",
                hint="the file was replaced or damaged; remove the file and generate the data again",
            )

    def count(self) -> int:
        """Number of coordinates; counting them reads the whole list."""
        with self._lock:
            return self._read_all()

    def _read_all(self) -> int:
        while self._read_one():
            pass
        return self._count

    def close(self) -> None:
        """Close the file; further calls do nothing."""
        if self._file is not None:
            self._file.close()
