"""How many samples each file holds, and which file a sample lies in.

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
    """The samples of each file, in the order of sample numbers.

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
            raise ValueError(f"{len(given)} counts of {self._files} files")
        self._each = int(given[0]) if len(given) and (given == given[0]).all() else None
        self._ends = np.cumsum(given) if self._each is None else None
        self.total = self.before(self._files)

    @classmethod
    def of(cls, counts: Sequence[int]) -> FileCounts:
        """These counts, of each file."""
        return counts if isinstance(counts, FileCounts) else cls(counts)

    @property
    def alike(self) -> bool:
        """Whether all files hold as many samples."""
        return self._each is not None

    def __len__(self) -> int:
        """Files."""
        return self._files

    @overload
    def __getitem__(self, file: int) -> int: ...

    @overload
    def __getitem__(self, file: slice) -> list[int]: ...

    def __getitem__(self, file: int | slice) -> int | list[int]:
        """Samples of a file, or of some files."""
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
        """Samples of each of these files; int64 of the same shape."""
        if self._each is not None:
            return np.broadcast_to(np.int64(self._each), files.shape)
        return np.diff(self._known(), prepend=0)[files]

    def before(self, file: int) -> int:
        """Samples of all files before number ``file``, which may be the one behind the last."""
        if self._each is not None or not file:
            return (self._each or 0) * file
        return int(self._known()[file - 1])

    def before_all(self, files: Numbers) -> Numbers:
        """As :meth:`before`, of many files at once."""
        if self._each is not None:
            return self._each * files
        return np.concatenate([[0], self._known()])[files]

    def largest(self) -> int:
        """Samples of the file with the most of them."""
        return self._each if self._each is not None else int(np.diff(self._known(), prepend=0).max())

    def locate(self, sample: int) -> tuple[int, int]:
        """File and position in it of a sample, 0 to ``total - 1``."""
        if self._each is not None:
            return divmod(sample, self._each)
        file = int(np.searchsorted(self._known(), sample, side="right"))
        return file, sample - self.before(file)

    def locate_all(self, samples: Numbers) -> tuple[Numbers, Numbers]:
        """As :meth:`locate`, of many samples at once."""
        if self._each is not None:
            files, rows = np.divmod(samples, self._each)
            return files, rows
        ends = self._known()
        files = np.searchsorted(ends, samples, side="right").astype(np.int64)
        return files, samples - np.where(files > 0, ends[files - 1], 0)

    def _known(self) -> Numbers:
        assert self._ends is not None
        return self._ends
