"""Sample counts of files, and the mapping from sample numbers to files.

Of files that are alike, as all generated ones are, two numbers say everything: half a million of them cost a rank no
more than one.  Of others each has an entry of eight bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]


class FileCounts(Sequence[int]):
    """Number of samples of each file, in the order of sample numbers.

    Args:
        counts: of each file; of a single one where all files are alike.
        files: how many there are; ``None``: as many as ``counts``.

    Attributes:
        total: samples of all files.
    """

    def __init__(self, counts: Sequence[int] | Numbers, files: int | None = None) -> None:
        given = np.asarray(counts, np.int64)
        self._files = len(given) if files is None else files
        if len(given) not in (1, self._files):
            raise ValueError(f"{len(given)} sample counts were given for {self._files} files")
        self._each = int(given[0]) if len(given) and (given == given[0]).all() else None
        self._ends = np.cumsum(given) if self._each is None else None
        self.total = self.before(self._files)

    @classmethod
    def of(cls, counts: Sequence[int]) -> FileCounts:
        """These counts, of each file."""
        return counts if isinstance(counts, FileCounts) else cls(counts)

    @property
    def alike(self) -> bool:
        """Whether all files hold the same number of samples."""
        return self._each is not None

    def __len__(self) -> int:
        """Number of files."""
        return self._files

    @overload
    def __getitem__(self, file: int) -> int: ...

    @overload
    def __getitem__(self, file: slice) -> list[int]: ...

    def __getitem__(self, file: int | slice) -> int | list[int]:
        """Number of samples of a file, or of a slice of files."""
        if isinstance(file, slice):
            some: list[int] = self.array(np.arange(self._files)[file]).tolist()
            return some
        number = range(self._files)[file]
        return self.before(number + 1) - self.before(number)

    def __eq__(self, other: object) -> bool:
        """Whether another sequence holds the same numbers."""
        return isinstance(other, Sequence) and len(self) == len(other) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def array(self, files: Numbers) -> Numbers:
        """Number of samples of each of these files; int64 of the same shape."""
        if self._each is not None:
            return np.broadcast_to(np.int64(self._each), files.shape)
        return np.diff(self._known(), prepend=0)[files]

    def before(self, file: int) -> int:
        """Number of samples in all files before file number ``file``; for the number of files, all samples."""
        if self._each is not None or not file:
            return (self._each or 0) * file
        return int(self._known()[file - 1])

    def before_all(self, files: Numbers) -> Numbers:
        """Same as :meth:`before`, for many files at once."""
        if self._each is not None:
            return self._each * files
        return np.concatenate([[0], self._known()])[files]

    def largest(self) -> int:
        """Largest number of samples in a file."""
        return self._each if self._each is not None else int(np.diff(self._known(), prepend=0).max())

    def locate(self, sample: int) -> tuple[int, int]:
        """File number of a sample, and its position in that file; samples are 0 to ``total - 1``."""
        if self._each is not None:
            return divmod(sample, self._each)
        file = int(np.searchsorted(self._known(), sample, side="right"))
        return file, sample - self.before(file)

    def locate_all(self, samples: Numbers) -> tuple[Numbers, Numbers]:
        """Same as :meth:`locate`, for many samples at once."""
        if self._each is not None:
            files, rows = np.divmod(samples, self._each)
            return files, rows
        ends = self._known()
        files = np.searchsorted(ends, samples, side="right").astype(np.int64)
        return files, samples - np.where(files > 0, ends[files - 1], 0)

    def _known(self) -> Numbers:
        assert self._ends is not None
        return self._ends
