"""Groups rows of an event table by sorting codes, without a Python object per row or per group.

Figures of a process, a stream or a file need its rows in order of time.  Sorting one dense integer code per row costs a
fraction of ``DataFrame.groupby`` with a function, and its memory is one integer per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dlio_torch.iotrace.figures.intervals import grouped_lengths

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class RowGroups:
    """Assignment of rows to groups.

    Args:
        codes: for each row the number of its group, 0 to ``size - 1``.
        one: for each group one of its rows, which tells what the group's rows have in common.
    """

    codes: Ints
    representative: Ints

    @property
    def size(self) -> int:
        """Number of groups."""
        return int(self.representative.size)

    def sums(self, values: NDArray[Any]) -> Ints:
        """Exact sum of the integers of each group (a weighted ``bincount`` would use floats)."""
        sums = np.zeros(self.size, np.int64)
        np.add.at(sums, self.codes, values)
        return sums

    def counts(self) -> Ints:
        """The number of rows of each group."""
        counts: Ints = np.bincount(self.codes, minlength=self.size)
        return counts

    def split(self) -> list[Ints]:
        """The rows of each group, in the order of the table; only groups that have rows."""
        counts = self.counts()
        return np.split(np.argsort(self.codes, kind="stable"), np.cumsum(counts[counts > 0])[:-1])

    def least(self, values: NDArray[Any]) -> Ints:
        """Least value of each group."""
        least = np.full(self.size, np.iinfo(np.int64).max)
        np.minimum.at(least, self.codes, values)
        return least

    def greatest(self, values: NDArray[Any]) -> Ints:
        """Greatest value of each group."""
        greatest = np.full(self.size, np.iinfo(np.int64).min)
        np.maximum.at(greatest, self.codes, values)
        return greatest

    def sort(self, by: NDArray[Any], *, stable: bool = False) -> tuple[Ints, Ints]:
        """Sorts rows by group, then by ``by``; returns ``(order, first)``, with the index of each group's first row.

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
        """Length of the union of each group's intervals; 0 for a group without rows."""
        order, first = self.sort(start)
        lengths = np.zeros(self.size, np.int64)
        some = self.counts() > 0
        lengths[some] = grouped_lengths(start[order], end[order], first[some])
        return lengths

    def medians(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """The median of each group; NaN for a group without rows."""
        order, first = self.sort(values)
        counts = self.counts()
        medians = np.full(self.size, np.nan)
        some = counts > 0
        low, high = (first + (counts - 1) // 2)[some], (first + counts // 2)[some]
        medians[some] = (values[order[low]] + values[order[high]]) / 2
        return medians

    def part(self, rows: NDArray[Any]) -> RowGroups:
        """The same groups restricted to some of the rows; groups may become empty."""
        return RowGroups(self.codes[rows], self.representative)


def group(columns: Sequence[NDArray[Any]]) -> RowGroups:
    """Groups rows that are equal in all columns; groups are numbered by first appearance.

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
    representative = np.zeros(size, np.int64)
    representative[codes[::-1]] = np.arange(rows - 1, -1, -1)
    return RowGroups(codes.astype(np.int64, copy=False), representative)


def codes_of(column: pd.Series[Any]) -> NDArray[Any]:
    """A column of an event table as integers: codes of a categorical (-1: missing), other values unchanged."""
    codes: NDArray[Any] = (
        column.cat.codes.to_numpy() if isinstance(column.dtype, pd.CategoricalDtype) else column.to_numpy()
    )
    return codes


def _ascending(values: NDArray[Any]) -> bool:
    return bool((values[1:] >= values[:-1]).all())
