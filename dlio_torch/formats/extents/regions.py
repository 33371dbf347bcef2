"""Regions of recorded files that a smaller data set keeps, and their new offsets.

Bytes that only left-out samples read are cut out.  Of the gaps beside them, which no sample reads, one of mean length
stays; a gap between two kept reads stays as it is.  What is cut is a multiple of a page, so that each remaining request
keeps its position within a page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.formats.extents.requests import PAGE, Ints, RequestCall, Requests

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Pieces:
    """Contiguous bytes of recorded files, in the order of files and offsets; int64 arrays of ``(pieces,)``.

    Attributes:
        file: number of the recorded file.
        offset: first byte there.
        size: bytes.
    """

    file: Ints
    offset: Ints
    size: Ints


class Regions:
    """Regions of all files, side by side on one axis, on which a byte between two files separates them.

    Args:
        requests: the recording.
        kept: requests whose bytes stay.
    """

    def __init__(self, requests: Requests, kept: Flags) -> None:
        self._sizes = sizes = requests.file_bytes
        self._base = np.cumsum(sizes + 1) - (sizes + 1)
        file, files = requests.request_file, len(sizes)
        within = np.minimum(requests.request_offset, sizes[file])
        self._beyond = requests.request_offset - within  # of a seek
        maps = requests.request_call == RequestCall.MMAP  # a map needs a byte
        spans = np.where(requests.reads, requests.request_bytes, maps)
        begins = self._base[file] + within
        points = np.concatenate([self._base, self._base + sizes, begins, begins + spans])
        borders, index = np.unique(points, return_inverse=True)
        self._low, self._high, self._begin, end = np.split(index, np.cumsum([files, files, len(file)]))
        self._borders = np.append(borders, borders[-1:] + 1)
        self._separate(self._covered(self._begin[kept], end[kept]), self._covered(self._begin, end))
        self._first_border = self._low[file]

    def _covered(self, begin: Ints, end: Ints) -> Flags:
        """Whether some request between these borders reads each section."""
        count = len(self._borders)
        open_requests = np.cumsum(np.bincount(begin, minlength=count) - np.bincount(end, minlength=count))
        flags: Flags = open_requests[:-1] > 0
        return flags

    def _separate(self, stays: Flags, covered: Flags) -> None:
        """Joins neighbouring sections that no kept request reads to regions, and cuts whole pages out of each."""
        starts, lengths = self._borders[:-1], np.diff(self._borders)
        file = np.searchsorted(self._base, starts, "right") - 1
        between = starts == self._base[file] + self._sizes[file]
        fixed, left_out = stays | between, covered & ~stays
        begins_region = fixed | np.append(True, fixed[:-1])[: len(fixed)]
        first = np.flatnonzero(begins_region)
        self._starts, self._between, self._file = starts[first], between[first], file[first]
        reads, gaps = (_sums(lengths * chosen, first) for chosen in (left_out, ~fixed & ~left_out))
        blocks = _sums(left_out & ~np.append(False, left_out[:-1])[: len(fixed)], first)  # contiguous left-out reads
        pages = (reads + gaps - gaps // (blocks + 1)) // PAGE
        self._left = reads + gaps + _sums(lengths * fixed, first) - pages * PAGE
        self._new = np.cumsum(self._left) - self._left
        self._new_borders = self._moved(starts, np.cumsum(begins_region) - 1)

    def _moved(self, positions: Ints, region: Ints) -> Ints:
        """New positions on the axis; ``region``: in which each of them lies."""
        moved: Ints = self._new[region] + np.minimum(positions - self._starts[region], self._left[region])
        return moved

    def sizes(self) -> Ints:
        """Bytes that are left of each file."""
        sizes: Ints = self._new_borders[self._high] - self._new_borders[self._low]
        return sizes

    def offsets(self) -> Ints:
        """New offset of each request; beyond the end of its file the distance to it stays."""
        new = self._new_borders
        offsets: Ints = new[self._begin] - new[self._first_border] + self._beyond
        return offsets

    def offsets_of(self, file: npt.NDArray[np.integer], offset: Ints) -> Ints:
        """New offsets of bytes of files."""
        positions = self._base[file] + offset
        region = np.searchsorted(self._starts, positions, "right") - 1
        offsets: Ints = self._moved(positions, region) - self._new_borders[self._low[file]]
        return offsets

    def pieces(self, files: Flags) -> Pieces:
        """The bytes that are left of some files, as few pieces as there are.

        Args:
            files: whether each file is among them.
        """
        chosen = np.flatnonzero(files[self._file] & ~self._between & (self._left > 0))
        file, size = self._file[chosen], self._left[chosen]
        offset = self._starts[chosen] - self._base[file]
        # A region continues the one before it in the same file, unless bytes were cut out between them.
        joins = np.zeros(len(chosen), np.bool_)
        joins[1:] = (file[1:] == file[:-1]) & (offset[1:] == offset[:-1] + size[:-1])
        first = np.flatnonzero(~joins)
        total = np.add.reduceat(size, first) if len(first) else size
        return Pieces(file[first], offset[first], total)


def _sums(values: npt.NDArray[Any], first: Ints) -> Ints:
    """Sums of the values of each region, which begins at position ``first``."""
    sums: Ints = np.add.reduceat(values, first, dtype=np.int64) if len(first) else np.zeros(0, np.int64)
    return sums
