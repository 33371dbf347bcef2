"""An index of the records of a TFRecord file, for random access, which TensorFlow itself does not offer.

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
from dlio_torch.formats.tfrecord.framing import FRAMING, HEADER, Checker

INDEX = ".idx"
"""Suffix of an index, after the name of its file."""


@dataclass(frozen=True)
class RecordIndex:
    """The extents of the records of a file.

    Attributes:
        offsets: first byte of each record, and at last the end of the file; int64 of shape (records + 1,).
            In a compressed file these count the bytes of its content.
    """

    offsets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def check_size(self, path: Path, size: int) -> None:
        """Raise unless the records fill a file that holds ``size`` bytes.

        Raises:
            DataError: they do not.
        """
        if self.offsets[-1] != size:
            raise DataError(
                f"{path} holds {size} bytes, its index {INDEX} tells of {self.offsets[-1]}",
                hint="the file is damaged, or the index belongs to another one; remove it",
            )

    def text(self) -> str:
        """Offset and length of each record, a line each: what DALI and its ``tfrecord2idx`` use."""
        lengths = np.diff(self.offsets)
        lines = zip(self.offsets[:-1].tolist(), lengths.tolist(), strict=True)
        return "".join(f"{offset} {length}\n" for offset, length in lines)


def read_index(path: Path) -> RecordIndex | None:
    """The index beside ``path``; ``None`` if there is none.

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
        raise DataError(f"{index_path} is no index of records", hint="remove it") from error
    offsets = np.concatenate([[0], np.cumsum(numbers[:, 1])])  # sums may wrap, and then do not grow
    if (offsets[1:] <= offsets[:-1]).any():
        raise DataError(f"{index_path}: its records do not lie one after another", hint="remove it")
    if len(numbers) == 0 or numbers[:, 1].min() < FRAMING or not np.array_equal(offsets[:-1], numbers[:, 0]):
        raise DataError(f"{index_path}: its records do not lie one after another", hint="remove it")
    return RecordIndex(offsets)


def scan(descriptor: int, checker: Checker, pread: Callable[[int, int, int], bytes] = os.pread) -> RecordIndex:
    """The index of an uncompressed file, made from the header of each record.

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


def read_exactly(descriptor: int, offset: int, size: int, pread: Callable[[int, int, int], bytes] = os.pread) -> bytes:
    """``size`` bytes at ``offset``, or less where the file ends: one call, or more where the system gives less."""
    content = pread(descriptor, size, offset)
    while len(content) < size:
        more = pread(descriptor, size - len(content), offset + len(content))
        if not more:
            break
        content += more
    return content
