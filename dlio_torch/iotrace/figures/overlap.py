"""Overlap of I/O and compute, as intersections of time intervals.

With IO and C the merged intervals of a rank's I/O and of its compute::

    overlap      |IO and C| / |IO|
    exposed I/O  |IO without C|

Each rank's I/O is held against its own compute; figures over all ranks are sums of the ranks'.

IO is the recorded calls of all classes, of the data files where the recording has spans that name these
(``read``, ``open``) and of all files where it has not; ``source`` says so.  Without recorded calls it is the
spans ``read`` and ``open``, which contain decoding, too.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable

import numpy as np
import pandas as pd

from dlio_torch.iotrace.events.call_names import IO_LAYERS
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.iotrace.figures.breakdown import by_rank, is_span, runtime, span_times
from dlio_torch.iotrace.figures.intervals import Intervals, intersection, length, union
from dlio_torch.iotrace.figures.row_groups import codes_of

DATA_CALLS = "calls on data files"
ALL_CALLS = "calls on all files"
READ_SPANS = "read spans"


def overlap(recording: Recording) -> pd.DataFrame | None:
    """Overlap of I/O and compute, and exposed I/O, of each rank and of all ranks.

    Returns:
        A row per rank that has both I/O and compute, and one with ``rank`` -1 for all of them; None where no
        rank has.  ``source`` (see the module's text); ``io_s``, ``compute_s``, ``overlap_s`` and ``exposed_s`` in
        seconds; ``overlap``, share of ``io_s`` (NaN without I/O); ``measured_s``, the rank's runtime;
        ``exposed_share`` of that.
    """
    frame = recording.events.frame
    io_and_source = io_rows(frame)
    if io_and_source is None:
        return None
    io, source = io_and_source
    rows = []
    for rank, of_rank in by_rank(frame):
        compute = span_times(of_rank, "compute")
        low, high = runtime(of_rank)
        mine = io[io["rank"].to_numpy() == rank]
        if compute is None or not len(mine):
            continue
        times = intersection(_union(mine), (np.array([low]), np.array([high])))
        io_ns, both_ns = length(times), length(intersection(times, compute))
        rows.append((rank, io_ns, length(compute), both_ns, io_ns - both_ns, high - low))
    if not rows:
        return None
    columns = ("rank", "io_s", "compute_s", "overlap_s", "exposed_s", "measured_s")
    figures = np.array([*rows, (-1, *(sum(row[column] for row in rows) for column in range(1, len(columns))))])
    table: pd.DataFrame = pd.DataFrame({name: figures[:, number] * 1e-9 for number, name in enumerate(columns)})
    table["rank"] = figures[:, 0]
    table.insert(1, "source", source)
    table["overlap"] = table["overlap_s"] / table["io_s"].replace(0, np.nan)
    table["exposed_share"] = table["exposed_s"] / table["measured_s"]
    return table


def io_rows(frame: pd.DataFrame) -> tuple[pd.DataFrame, str] | None:
    """The I/O rows of an event table, and their kind; None if there are none."""
    spans = frame[is_span(frame, ("read", "open"))]
    calls = frame[frame["layer"].isin(IO_LAYERS).to_numpy()]
    if not len(calls):
        return (spans, READ_SPANS) if len(spans) else None
    named = spans["file"].cat.remove_unused_categories().cat.categories
    if not len(named):
        return calls, ALL_CALLS
    return calls[np.append(_same(calls["file"].cat.categories, named), False)[codes_of(calls["file"])]], DATA_CALLS


def _same(paths: Iterable[str], named: Iterable[str]) -> list[bool]:
    """Whether each absolute path is one of ``named``, whose relative paths start at an unknown folder."""
    ends = {re.sub(r"^(\.{0,2}/)+", "", posixpath.normpath(name)) for name in named}
    matches = []
    for path in paths:
        parts = str(path).strip("/").split("/")
        matches.append(any("/".join(parts[first:]) in ends for first in range(len(parts))))
    return matches


def _union(rows: pd.DataFrame) -> Intervals:
    return union(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
