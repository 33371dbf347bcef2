"""Index files (``.idx``) of Megatron-LM: offset and length of each sequence in the ``.bin`` file.

Layout (megatron/core/datasets/indexed_dataset.py, all little-endian): ``MMIDIDX`` and two zero bytes, version 1 (u64),
a code for the type of the elements (u8), the number of sequences and of document boundaries (u64 each): 34
bytes; then for each sequence its elements (i32), for each sequence its first byte (i64), and the
number of the sequence at which each document begins, with the end of the last one (i64).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError
from dlio_torch.files.atomic_file import written_whole
from dlio_torch.formats.core.buffered_file import refusing
from dlio_torch.formats.indexed_binary.facts import INDEX_MAGIC
from dlio_torch.supervision.crashes import report_truncated_maps

SUFFIX = ".idx"
CODES = {
    "uint8": 1,
    "int8": 2,
    "int16": 3,
    "int32": 4,
    "int64": 5,
    "float64": 6,
    "float32": 7,
    "uint16": 8,
}
"""Type codes of an index by NumPy's names of element types."""
MAX_LENGTH = (1 << 31) - 1
"""Maximum number of elements of a sequence."""

_HEADER = struct.Struct("<9sQBQQ")
_VERSION = 1
_BLOCK = 1 << 20  # entries that are handled at a time


@dataclass(frozen=True)
class SequenceIndex:
    """Memory-mapped index of sequences.

    Attributes:
        path: of the ``.idx``.
        dtype: type of the elements.
        lengths: elements of each sequence.
        pointers: first byte of each sequence.
        documents: sequences at which documents begin, and the end of the last one.
    """

    path: Path
    dtype: np.dtype[np.generic]
    lengths: npt.NDArray[np.int32]
    pointers: npt.NDArray[np.int64]
    documents: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.lengths)

    def end(self) -> int:
        """The byte after the last sequence; 0 if there is none."""
        return self._end(len(self) - 1) if len(self) else 0

    def _end(self, sequence: int) -> int:
        return int(self.pointers[sequence]) + int(self.lengths[sequence]) * self.dtype.itemsize

    def check(self, size: int) -> None:
        """Check that every sequence lies inside a ``.bin`` file of ``size`` bytes.

        Raises:
            DataError: names the first one that does not.
        """
        for low in range(0, len(self), _BLOCK):
            pointers = self.pointers[low : low + _BLOCK]
            lengths = self.lengths[low : low + _BLOCK].astype(np.int64)
            room = size - pointers  # of a pointer beyond the end negative, of a negative one too large
            wrong = np.flatnonzero((pointers < 0) | (lengths < 0) | (lengths * self.dtype.itemsize > room))
            if len(wrong):
                index = int(wrong[0])
                raise DataError(
                    f"{self.path}: sequence {low + index} has {lengths[index]} elements from byte {pointers[index]} "
                    f"on, beyond the {size} bytes of the .bin file",
                    hint="the .idx and .bin files are damaged or do not belong together; generate or fetch both again",
                )


def read_index(path: Path) -> SequenceIndex:
    """Map an index file as Megatron-LM does, after checking its counts against its size.

    Raises:
        DataError: missing, or no index.
    """
    with refusing(path):
        with path.open("rb") as stream:
            header = stream.read(_HEADER.size)
        if len(header) < _HEADER.size or not header.startswith(INDEX_MAGIC):
            raise DataError(
                f"{path} is not an index of Megatron-LM: the file does not begin with MMIDIDX",
                hint="generate or fetch the file again",
            )
        _, version, code, sequences, documents = _HEADER.unpack(header)
        names = {number: name for name, number in CODES.items()}
        if version != _VERSION or code not in names:
            raise DataError(
                f"{path}: the index has version {version} and element type {code}, but only version {_VERSION} and "
                "types 1 to 8 are supported",
                hint="the file is damaged or of a newer version; generate or fetch the file again",
            )
        size = path.stat().st_size
        promised = _HEADER.size + 12 * sequences + 8 * documents
        if size not in (promised, promised + sequences):  # a mode for each sequence may follow
            raise DataError(
                f"{path}: the header counts {sequences} sequences and {documents} document boundaries, which need "
                f"{promised} bytes, but the file has {size} bytes",
                hint="the file is damaged or incomplete; generate or fetch the file again",
            )
        report_truncated_maps()
        mapped = np.memmap(str(path), mode="r", order="C").data
        offset = _HEADER.size
        lengths = np.frombuffer(mapped, "<i4", sequences, offset)
        offset += lengths.nbytes
        pointers = np.frombuffer(mapped, "<i8", sequences, offset)
        offset += pointers.nbytes
        return SequenceIndex(
            path, np.dtype(names[code]), lengths, pointers, np.frombuffer(mapped, "<i8", documents, offset)
        )


def write_index(
    path: Path, dtype: np.dtype[np.generic], sequences: int, lengths: Callable[[], Iterable[npt.NDArray[np.int64]]]
) -> None:
    """Write an index of adjacent sequences, each of which is one document.

    Args:
        path: of the ``.idx``; appears when it is complete.
        dtype: type of the elements, one of :data:`CODES`.
        sequences: their number.
        lengths: gives the elements of each sequence in blocks, from the first one on, each time it is called.
    """
    with written_whole(path) as file:
        file.write(_HEADER.pack(INDEX_MAGIC, _VERSION, CODES[dtype.name], sequences, sequences + 1))
        for block in lengths():
            file.write(block.astype("<i4").tobytes())
        start = 0
        for block in lengths():
            ends = start + np.cumsum(block) * dtype.itemsize
            file.write(np.concatenate([[start], ends[:-1]]).astype("<i8").tobytes())
            start = int(ends[-1])
        for low in range(0, sequences + 1, _BLOCK):
            file.write(np.arange(low, min(low + _BLOCK, sequences + 1), dtype="<i8").tobytes())
