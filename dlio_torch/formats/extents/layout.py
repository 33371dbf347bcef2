"""Layout of folders of raw files: the extents of the bytes that each sample reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.core.layout import ArrayLayout, Extents, FileLayout, Ints
from dlio_torch.formats.core.layout_parts import PartedLayout
from dlio_torch.formats.extents.folder_plan import file_path
from dlio_torch.formats.extents.requests import Requests


def folder_layout(folder: Path, requests: Requests, name: str) -> FileLayout:
    """The layout of a folder.

    Args:
        folder: the folder.
        requests: of the folder.
        name: of the array of a sample.

    Raises:
        DataError: a sample reads from several files.
    """
    return FileLayout(requests.num_samples, {name: RecordedExtents(folder, requests)})


class RecordedExtents(PartedLayout):
    """Layout of samples that each read one file.

    Args:
        folder: the folder.
        requests: of the folder.

    Raises:
        DataError: a sample reads from several files.
    """

    def __init__(self, folder: Path, requests: Requests) -> None:
        self.path = folder
        reads = requests.reads & (requests.request_bytes > 0)
        numbers = np.concatenate([[0], np.cumsum(reads)])
        self._first = numbers[requests.sample_first]  # number of the first read of each sample
        self._offsets, self._sizes = requests.request_offset[reads], requests.request_bytes[reads]
        self._bytes = requests.sample_bytes
        self._file = self._file_of_samples(requests.request_file[reads].astype(np.int64))

    def _file_of_samples(self, file: Ints) -> Ints:
        """File of each sample; 0 for a sample that reads nothing."""
        low, high = self._first[:-1], self._first[1:]
        files = np.zeros(len(low), np.int64)
        some = np.flatnonzero(high > low)
        files[some] = file[low[some]]
        owner = np.repeat(np.arange(len(low)), high - low)
        other = np.flatnonzero(file[self._first[0] : self._first[-1]] != files[owner])
        if len(other):
            raise DataError(
                f"{self.path}: sample {int(owner[other[0]])} reads from several files, which loader.engine=decoupled "
                "cannot do",
                hint="set loader.engine=dataloader",
            )
        return files

    def sizes(self, rows: Ints) -> Ints:
        sizes: Ints = self._bytes[rows]
        return sizes

    def part_of(self, rows: Ints) -> Ints:
        files: Ints = self._file[rows]
        return files

    def part(self, number: int) -> tuple[ArrayLayout, int]:
        return _FileExtents(self.path / file_path(number), self), 0

    def extents(self, rows: Ints, into: Ints) -> Extents:
        """The extents of the samples at ``rows``, one for each read."""
        counts = self._first[rows + 1] - self._first[rows]
        before = np.cumsum(counts) - counts
        reads = np.arange(int(counts.sum())) + np.repeat(self._first[rows] - before, counts)
        lengths = self._sizes[reads]
        ends = np.concatenate([[0], np.cumsum(lengths)])
        inside = ends[:-1] - np.repeat(ends[before], counts)
        return Extents(self._offsets[reads], lengths, np.repeat(into, counts) + inside)


class _FileExtents(ArrayLayout):
    """Layout of the samples that read one of the files."""

    def __init__(self, path: Path, samples: RecordedExtents) -> None:
        self.path = path
        self._samples = samples

    def sizes(self, rows: Ints) -> Ints:
        return self._samples.sizes(rows)

    def plan(self, rows: Ints, into: Ints) -> Extents:
        return self._samples.extents(rows, into)
