"""Layout of samples that are cut from shuffled documents of a ``.bin`` file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError
from dlio_torch.formats.core.layout import ArrayLayout, Extents, Ints
from dlio_torch.formats.indexed_binary.gpt_index import GptIndex
from dlio_torch.formats.indexed_binary.index import SequenceIndex


class DocumentLayout(ArrayLayout):
    """Layout in which a sample is one extent of each document that it crosses; the token after it is not read.

    Args:
        path: the ``.bin``.
        index: its documents.
        gpt: which of them make which sample.
        size: bytes of a sample.
    """

    def __init__(self, path: Path, index: SequenceIndex, gpt: GptIndex, size: int) -> None:
        self.path = path
        self._index, self._gpt, self._size = index, gpt, size

    def sizes(self, rows: Ints) -> Ints:
        return np.full(len(rows), self._size, np.int64)

    def plan(self, rows: Ints, into: Ints) -> Extents:
        index, gpt, itemsize = self._index, self._gpt, self._index.dtype.itemsize
        try:
            slots = gpt.shuffle[rows].astype(np.int64)
            begins, ends = _taken(gpt.samples, slots), _taken(gpt.samples, slots + 1)
            counts = ends[:, 0] - begins[:, 0] + 1
            sample = np.repeat(np.arange(len(rows)), counts)
            number = np.arange(len(sample)) - np.repeat(np.cumsum(counts) - counts, counts)
            document = _taken(gpt.documents, begins[sample, 0] + number)
            low = np.where(number == 0, begins[sample, 1], 0)
            high = np.where(number == counts[sample] - 1, ends[sample, 1], _taken(index.lengths, document))
            offsets = index.pointers[document] + low * itemsize
        except (IndexError, ValueError, MemoryError) as error:
            raise self._damaged() from error
        lengths = (high - low) * itemsize
        before = np.cumsum(lengths) - lengths  # bytes of all extents before
        first = np.cumsum(counts) - counts
        totals = np.add.reduceat(lengths, first) if len(rows) else lengths
        if (lengths < 0).any() or (offsets < 0).any() or (totals != self._size).any():
            raise self._damaged()
        kept = lengths > 0
        to = into[sample] + before - before[first][sample]
        return Extents(offsets[kept], lengths[kept], to[kept])

    def _damaged(self) -> DataError:
        return DataError(
            f"{self.path}: the index of samples contradicts the documents of the file",
            hint="remove the *-GPTDataset-train-* files in the same folder and generate the data again",
        )


def _taken(array: npt.NDArray[np.integer[Any]], positions: Ints) -> Ints:
    """Returns ``array[positions]`` as int64; raises for a negative position.

    Raises:
        IndexError: a position is outside.
    """
    if len(positions) and positions.min() < 0:
        raise IndexError("a position is negative")
    return array[positions].astype(np.int64)
