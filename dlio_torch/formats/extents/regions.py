"""Regions of recorded files that a smaller data set keeps, and their new offsets.

Bytes that only left-out samples read are cut out.  Bytes that no sample reads shrink in the proportion of the read
ones.  What is cut is a multiple of a page, so that each remaining request keeps its position within a page.
"""

from __future__ import annotations

from dataclasses import dataclass

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
        self._sizes = requests.file_bytes
        self._base = np.concatenate([[0], np.cumsum(self._sizes + 1)[:-1]]).astype(np.int64)[: len(self._sizes)]
        begins = self._base[requests.request_file] + requests.request_offset
        maps = requests.request_call == RequestCall.MMAP  # a map needs a byte
        spans = np.where(requests.reads, requests.request_bytes, maps)
        borders = np.unique(np.concatenate([self._base, self._base + self._sizes, begins, begins + spans]))
        self._borders = np.append(borders, borders[-1] + 1) if len(borders) else borders
        covered = self._covered(begins, spans)
        self._separate(self._covered(begins[kept], spans[kept]), covered)

    def _covered(self, begins: Ints, spans: Ints) -> Flags:
        """Whether some request reads each section between two borders."""
        count = len(self._borders)
        low, high = (np.searchsorted(self._borders, positions) for positions in (begins, begins + spans))
        open_requests = np.cumsum(np.bincount(low, minlength=count) - np.bincount(high, minlength=count))
        flags: Flags = open_requests[:-1] > 0
        return flags

    def _separate(self, stays: Flags, covered: Flags) -> None:
        """Joins neighbouring sections that are not read to regions, and cuts whole pages out of each."""
        starts, lengths = self._borders[:-1], np.diff(self._borders)
        file = np.searchsorted(self._base, starts, "right") - 1
        between = starts == self._base[file] + self._sizes[file]
        share = _share(file, lengths, stays, covered, len(self._base))[file]
        cut = np.where(stays | between, 0.0, np.where(covered, 1.0, 1.0 - share)) * lengths
        fixed = stays | between
        first = np.flatnonzero(fixed | np.append(True, fixed[:-1])) if len(starts) else np.zeros(0, np.int64)
        self._starts, self._between, self._file = starts[first], between[first], file[first]
        whole = np.add.reduceat(lengths, first) if len(first) else lengths
        pages = (np.add.reduceat(cut, first) if len(first) else cut) // PAGE
        self._left = whole - pages.astype(np.int64) * PAGE
        self._new = np.cumsum(self._left) - self._left

    def _moved(self, positions: Ints) -> Ints:
        """New positions on the axis."""
        region = np.searchsorted(self._starts, positions, "right") - 1
        moved: Ints = self._new[region] + np.minimum(positions - self._starts[region], self._left[region])
        return moved

    def sizes(self) -> Ints:
        """Bytes that are left of each file."""
        sizes: Ints = self._moved(self._base + self._sizes) - self._moved(self._base)
        return sizes

    def offsets(self, file: npt.NDArray[np.integer], offset: Ints) -> Ints:
        """New offsets in the files; beyond the end of a file the distance to it stays."""
        within = np.minimum(offset, self._sizes[file])
        base = self._base[file]
        offsets: Ints = self._moved(base + within) - self._moved(base) + offset - within
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


def _share(file: Ints, lengths: Ints, stays: Flags, covered: Flags, files: int) -> npt.NDArray[np.float64]:
    """Share of the read bytes of each file that stays; 1 where nothing is read."""
    total = np.bincount(file, lengths * covered, files)
    left = np.bincount(file, lengths * stays, files)
    return np.where(total > 0, left / np.maximum(total, 1), 1.0)
