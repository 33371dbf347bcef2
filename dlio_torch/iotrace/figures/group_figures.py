"""Computes figures of groups of I/O calls: of files, ranks or processes.

Definitions, for the calls of one group::

    failed           reads and writes that moved no known number of bytes (bytes is -1)
    mean, median     of the sizes of its reads (writes) that did not fail
    io_s             length of the union of the intervals of its calls, over all its processes
    summed_s         sum of their durations
    sequential, consecutive
                     shares of its reads and writes together, each followed per process and file
                     (:mod:`dlio_torch.iotrace.figures.access_order`)
    distinct_bytes_read
                     length of the union of the byte ranges [offset, offset + bytes) of its reads; not known
                     where the offset of one of them is not.  Of groups of one file only
    reuse            bytes read / distinct bytes read; 1: no byte was read twice

``<NA>`` and NaN: not measured, or not defined because there is nothing to divide by.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dlio_torch.iotrace.events.call_names import CLASSES, OPEN, READ, SEEK, WRITE, class_codes
from dlio_torch.iotrace.figures.access_order import Followed
from dlio_torch.iotrace.figures.row_groups import RowGroups, codes_of, group

COUNTED = {"opens": OPEN, "reads": READ, "writes": WRITE, "seeks": SEEK}
"""Columns that count the calls of one class."""

INTEGERS = (
    *("ranks", "processes", "files", "calls", "failed"),
    *COUNTED,
    *("bytes_read", "bytes_written", "distinct_bytes_read", "distinct_bytes_written", "first_ns", "last_ns"),
)
FLOATS = (
    *("read_mean_bytes", "read_median_bytes", "write_mean_bytes", "write_median_bytes"),
    *("sequential", "consecutive", "io_s", "summed_s", "reuse"),
)

_S = 1e-9


def figures(
    frame: pd.DataFrame, groups: RowGroups, followed: Followed, sees: frozenset[str], *, one_file: bool
) -> pd.DataFrame:
    """Computes one row per group with the columns :data:`INTEGERS` (Int64) and :data:`FLOATS` (float64).

    Args:
        frame: an event table.
        groups: of its rows.
        followed: its accesses, per process.
        sees: classes that its source records; columns of the others are not measured.
        one_file: whether each group is of one file: distinct bytes of several ones are not measured.
    """
    start, end = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
    classes = class_codes(frame)
    columns: dict[str, Any] = {
        "ranks": _distinct(groups, frame, ("rank",)),
        "processes": _distinct(groups, frame, ("rank", "pid")),
        "files": _distinct(groups, frame, ("file",)),
        "calls": groups.counts(),
        "failed": np.zeros(groups.size, np.int64),
        "io_s": groups.unions(start, end) * _S,
        "summed_s": groups.sums(end - start) * _S,
        "first_ns": groups.least(start),
        "last_ns": groups.greatest(end),
    }
    for name, kind in COUNTED.items():
        columns[name] = groups.part(classes == CLASSES.index(kind)).counts()
    for kind, moved in ((READ, "bytes_read"), (WRITE, "bytes_written")):
        rows = np.flatnonzero(classes == CLASSES.index(kind))
        size, offset = frame["bytes"].to_numpy()[rows], frame["offset"].to_numpy()[rows]
        columns["failed"] += groups.part(rows[size < 0]).counts()
        rows, size, offset = rows[size >= 0], size[size >= 0], offset[size >= 0]
        part = groups.part(rows)
        columns[moved] = part.sums(size)
        columns[f"{kind}_mean_bytes"] = quotient(columns[moved], part.counts())
        columns[f"{kind}_median_bytes"] = part.medians(size)
        if one_file:
            distinct = part.unions(offset, offset + size).astype(float)
            distinct[part.part((offset < 0) & (size > 0)).counts() > 0] = np.nan
            columns[f"distinct_{moved}"] = distinct
            if kind == READ:
                columns["reuse"] = quotient(columns[moved], distinct)
    accesses = groups.part(followed.rows).counts()
    columns["sequential"] = quotient(groups.part(followed.rows[followed.sequential]).counts(), accesses)
    columns["consecutive"] = quotient(groups.part(followed.rows[followed.consecutive]).counts(), accesses)
    return typed(_only_seen(pd.DataFrame(columns), sees))


def typed(table: pd.DataFrame) -> pd.DataFrame:
    """The table with typed columns; absent columns are added as not measured."""
    lacking = [name for name in (*INTEGERS, *FLOATS) if name not in table]
    table = table.assign(**dict.fromkeys(lacking, np.nan))
    whole: pd.DataFrame = table.astype(dict.fromkeys(INTEGERS, "Int64") | dict.fromkeys(FLOATS, "float64"))
    return whole


def quotient(part: NDArray[Any], whole: NDArray[Any]) -> NDArray[np.float64]:
    """Elementwise quotient; NaN for a divisor of 0."""
    shares = np.full(len(part), np.nan)
    np.divide(part, whole, out=shares, where=whole > 0)
    return shares


def _distinct(groups: RowGroups, frame: pd.DataFrame, columns: tuple[str, ...]) -> NDArray[np.int64]:
    """Number of distinct values of each group in the columns; missing files (code -1) do not count."""
    values = [codes_of(frame[name]) for name in columns]
    pairs = group([groups.codes, *values])
    representative = (
        pairs.representative if columns != ("file",) else pairs.representative[values[0][pairs.representative] >= 0]
    )
    return groups.part(representative).counts()


def _only_seen(table: pd.DataFrame, sees: frozenset[str]) -> pd.DataFrame:
    unseen = [name for name, kind in COUNTED.items() if kind not in sees]
    if READ not in sees:
        unseen += ["bytes_read", "distinct_bytes_read", "reuse"]
    if WRITE not in sees:
        unseen += ["bytes_written", "distinct_bytes_written"]
    rest: pd.DataFrame = table.assign(**dict.fromkeys(unseen, np.nan))
    return rest
