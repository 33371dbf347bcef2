"""Compact list of many file names: one memory block, with the common prefix and suffix stored once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import overload

import numpy as np


class Names(Sequence[str]):
    """File names in a given order; each takes four bytes plus the bytes that differ from the common prefix and suffix.

    Args:
        names: at least one.
    """

    def __init__(self, names: Sequence[str]) -> None:
        begin = _beginning(names)
        end = _beginning([name[len(begin) :][::-1] for name in names])[::-1]
        self._begin, self._end = begin, end
        middles = [os.fsencode(name[len(begin) : len(name) - len(end)]) for name in names]
        self._bytes = b"".join(middles)
        ends = np.fromiter(accumulate(map(len, middles), initial=0), np.int64, len(middles) + 1)
        self._ends = ends.astype(np.uint32) if ends[-1] < 1 << 32 else ends

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, number: int) -> str: ...

    @overload
    def __getitem__(self, number: slice) -> list[str]: ...

    def __getitem__(self, number: int | slice) -> str | list[str]:
        """The name of a number, or the names of a slice."""
        if isinstance(number, slice):
            return list(self._some(range(len(self))[number]))
        return next(self._some([range(len(self))[number]]))

    def _some(self, numbers: Iterable[int]) -> Iterator[str]:
        for number in numbers:
            middle = self._bytes[int(self._ends[number]) : int(self._ends[number + 1])]
            yield f"{self._begin}{os.fsdecode(middle)}{self._end}"


def _beginning(names: Sequence[str]) -> str:
    """The common prefix of all names, which is that of the alphabetically first and last name."""
    least, most = min(names), max(names)
    same = (number for number, pair in enumerate(zip(least, most, strict=False)) if pair[0] != pair[1])
    return least[: next(same, len(least))]
