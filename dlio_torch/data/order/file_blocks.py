"""Blocks of files: runs of consecutive samples of a file that a stream reads like files of their own."""

from __future__ import annotations

import numpy as np

from dlio_torch.data.dataset.file_counts import FileCounts


class FileBlocks:
    """Blocks of all files, numbered in the order of samples; the last block of a file may be smaller.

    Args:
        files: samples of each file.
        size: samples of a block, at least 1.

    Attributes:
        counts: samples of each block.
    """

    def __init__(self, files: FileCounts, size: int) -> None:
        samples = files.array(np.arange(len(files)))
        self._size = size
        self._ends = np.cumsum(-(-samples // size))  # number of blocks up to the end of each file
        counts = np.full(int(self._ends[-1]) if len(files) else 0, size, np.int64)
        rest = samples % size
        counts[self._ends[rest > 0] - 1] = rest[rest > 0]
        self.counts = FileCounts(counts)

    def place(self, block: int) -> tuple[int, int]:
        """Number of the file of a block, and the first of the block's samples in it."""
        file = int(np.searchsorted(self._ends, block, side="right"))
        before = int(self._ends[file - 1]) if file else 0
        return file, (block - before) * self._size
