"""Index of the records of a TFRecord file, which allows random access.

DALI and others keep this in a text file beside each file.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError
from dlio_torch.formats.core.file_errors import open_error
from dlio_torch.formats.core.positioned_reads import read_exactly
from dlio_torch.formats.tfrecord.framing import FRAMING, HEADER, Checker

INDEX = ".idx"
"""Suffix of an index file, appended to the name of the TFRecord file."""


@dataclass(frozen=True)
class RecordIndex:
    """Extents of the records of a file.

    Attributes:
        offsets: first byte of each record, and at last the end of the file; int64 of shape (records + 1,).
            In a compressed file these count the bytes of its content.
    """

    offsets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def check_size(self, path: Path, size: int) -> None:
        """Raise unless the indexed records fill a file of ``size`` bytes exactly.

        Raises:
            DataError: they do not.
        """
        if self.offsets[-1] != size:
            raise DataError(
                f"{path} has {size} bytes, but its index (*{INDEX}) describes {self.offsets[-1]} bytes",
                hint="the file is damaged, or the index belongs to another file; remove the wrong one of the two",
            )

    def text(self) -> str:
        """Index text with offset and length of one record per line, as DALI and its ``tfrecord2idx`` use."""
        lengths = np.diff(self.offsets)
        lines = zip(self.offsets[:-1].tolist(), lengths.tolist(), strict=True)
        return "".join(f"{offset} {length}\n" for offset, length in lines)


def read_index(path: Path) -> RecordIndex | None:
    """Reads the index file of ``path``; ``None`` if there is none.

    Raises:
        DataError: it is damaged.
    """
    index_path = path.with_name(path.name + INDEX)
    try:
        numbers = np.array(index_path.read_bytes().split(), dtype=np.int64).reshape(-1, 2)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise open_error(index_path, error) from error
    except (ValueError, OverflowError) as error:
        raise DataError(f"{index_path} is not an index of records", hint="remove it") from error
    offsets = np.concatenate([[0], np.cumsum(numbers[:, 1])])  # sums may wrap, and then do not grow
    if (offsets[1:] <= offsets[:-1]).any():
        raise DataError(f"{index_path}: the records in the index are not adjacent", hint="remove it")
    if len(numbers) == 0 or numbers[:, 1].min() < FRAMING or not np.array_equal(offsets[:-1], numbers[:, 0]):
        raise DataError(f"{index_path}: the records in the index are not adjacent", hint="remove it")
    return RecordIndex(offsets)


def scan(descriptor: int, checker: Checker, pread: Callable[[int, int, int], bytes] = os.pread) -> RecordIndex:
    """Builds the index of an uncompressed file from the header of each record.

    Args:
        descriptor: of the open file.
        checker: looks at the headers.
        pread: reads them.

    Raises:
        DataError: a header is damaged, or the file is cut.
    """
    size = os.fstat(descriptor).st_size
    offsets = [0]
    while offsets[-1] < size:
        number, offset = len(offsets) - 1, offsets[-1]
        length = checker.header(read_exactly(descriptor, offset, HEADER.size, pread), number, offset)
        checker.fits(length, size - offset, number, offset)
        offsets.append(offset + length + FRAMING)
    return RecordIndex(np.array(offsets, np.int64))
