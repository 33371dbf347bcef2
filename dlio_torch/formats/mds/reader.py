"""Reader of MDS shards, with the calls of MosaicML Streaming's ``MDSReader.get_sample_data``."""

from __future__ import annotations

import numpy as np

from dlio_torch.formats.core.batch import BatchBuffer
from dlio_torch.formats.core.buffered_file import refusing
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.core.stacking import check_range
from dlio_torch.formats.mds.sample_columns import SampleColumns
from dlio_torch.formats.mds.shard import WORD


class MdsReader(Reader):
    """Reader that opens the shard for each sample, reads its two offsets, and then the sample.

    Args:
        columns: the fields in a sample.
        num_samples: of the shard.
    """

    num_samples: int

    def __init__(self, columns: SampleColumns, num_samples: int) -> None:
        self._columns = columns
        self.num_samples = num_samples

    def read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        check_range(self._columns.path, self.num_samples, first, count)
        for i in range(count):
            sample = self._sample(first + i)
            self._columns.put(sample, first + i, buffer, position + i)

    def _sample(self, row: int) -> bytes:
        path = self._columns.path
        with refusing(path), open(path, "rb", 0) as file:
            file.seek(WORD * (1 + row))
            pair = file.read(2 * WORD)
            if len(pair) < 2 * WORD:
                raise self._columns.damaged(row, "the file ends before its offsets")
            begin, end = np.frombuffer(pair, "<u4").tolist()
            if end < begin:
                raise self._columns.damaged(row, f"it ends at byte {end}, before it begins at byte {begin}")
            file.seek(begin)
            sample = file.read(end - begin)
            if len(sample) < end - begin:
                raise self._columns.damaged(row, f"the file ends before its last byte, {end}")
            return sample

    def close(self) -> None:
        """Does nothing: no file is open between two samples."""
