"""Rows of an event table in groups, by sorting codes: no Python object per row or per group.

The figures of a process, a stream or a file need its rows side by side, in order of time.  Sorting one
dense integer code per row costs a fraction of what ``DataFrame.groupby`` with a function costs, and its
memory is one integer per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dlio_torch.analysis.intervals import grouped_lengths

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Groups:
    """Which rows belong together.

    Args:
        codes: for each row the number of its group, 0 to ``size - 1``.
        one: for each group one of its rows, which tells what the group's rows have in common.
    """

    codes: Ints
    one: Ints

    @property
    def size(self) -> int:
        """Number of groups."""
        return int(self.one.size)

    def sums(self, values: NDArray[Any]) -> Ints:
        """The sum of integers of each group, exact (a weighted ``bincount`` would go through floats)."""
        found = np.zeros(self.size, np.int64)
        np.add.at(found, self.codes, values)
        return found

    def counts(self) -> Ints:
        """The number of rows of each group."""
        found: Ints = np.bincount(self.codes, minlength=self.size)
        return found

    def least(self, values: NDArray[Any]) -> Ints:
        """The least value of each group."""
        found = np.full(self.size, np.iinfo(np.int64).max)
        np.minimum.at(found, self.codes, values)
        return found

    def greatest(self, values: NDArray[Any]) -> Ints:
        """The greatest value of each group."""
        found = np.full(self.size, np.iinfo(np.int64).min)
        np.maximum.at(found, self.codes, values)
        return found

    def sort(self, by: NDArray[Any], *, stable: bool = False) -> tuple[Ints, Ints]:
        """``(order, first)``: rows by group, then by ``by``; each group's first place in it.

        Args:
            by: one value per row.
            stable: whether equal values stay in the order of the table.
        """
        codes = self.codes.astype(np.uint16) if self.size <= 2**16 else self.codes  # NumPy sorts 16 bits by radix
        if _ascending(by):
            order = np.argsort(codes, kind="stable")
        else:
            order = np.argsort(by, kind="stable" if stable else None)
            order = order[np.argsort(codes[order], kind="stable")]
        counts = self.counts()
        return order, np.cumsum(counts) - counts

    def unions(self, start: NDArray[Any], end: NDArray[Any]) -> Ints:
        """For each group the length of the union of its rows' intervals; 0 for a group without rows."""
        order, first = self.sort(start)
        found = np.zeros(self.size, np.int64)
        some = self.counts() > 0
        found[some] = grouped_lengths(start[order], end[order], first[some])
        return found

    def medians(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """The median of each group; NaN for a group without rows."""
        order, first = self.sort(values)
        counts = self.counts()
        found = np.full(self.size, np.nan)
        some = counts > 0
        low, high = (first + (counts - 1) // 2)[some], (first + counts // 2)[some]
        found[some] = (values[order[low]] + values[order[high]]) / 2
        return found

    def part(self, rows: NDArray[Any]) -> Groups:
        """The same groups of some of the rows; groups may lose all of theirs."""
        return Groups(self.codes[rows], self.one)


def group(columns: Sequence[NDArray[Any]]) -> Groups:
    """Rows that are equal in all columns make a group; groups are numbered by first appearance.

    Args:
        columns: at least one, integers, all of one length.
    """
    rows = len(columns[0])
    codes, size = np.zeros(rows, np.int64), min(rows, 1)
    for column in columns:
        if not rows or column.min() == column.max():
            continue
        more, values = pd.factorize(column)
        # Both factors are at most the number of rows, so the product fits.
        codes = pd.factorize(codes * len(values) + more)[0].astype(np.int64, copy=False) if size > 1 else more
        size = int(codes.max()) + 1
    one = np.zeros(size, np.int64)
    one[codes[::-1]] = np.arange(rows - 1, -1, -1)
    return Groups(codes.astype(np.int64, copy=False), one)


def codes_of(column: pd.Series[Any]) -> NDArray[Any]:
    """A column of an event table as integers: the codes of a categorical (-1: missing), other values as they are."""
    found: NDArray[Any] = (
        column.cat.codes.to_numpy() if isinstance(column.dtype, pd.CategoricalDtype) else column.to_numpy()
    )
    return found


def _ascending(values: NDArray[Any]) -> bool:
    return bool((values[1:] >= values[:-1]).all())
