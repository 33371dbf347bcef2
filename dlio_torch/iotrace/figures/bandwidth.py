"""Computes the bandwidth over time.

The bytes of a call are spread evenly over the interval in which it moved them.  For a call of ``b`` bytes
with the interval [s, e) a bin [x, y) gets::

    b * |[s, e) intersected with [x, y)| / (e - s)

so that the sum over bins is the sum of bytes.  A call that took no time counts in the bin that it starts in.
The same spreading, with a call's duration in place of its bytes, gives the mean number of calls in progress.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dlio_torch.iotrace.events.call_names import CLASSES, READ, WRITE, class_codes
from dlio_torch.iotrace.figures import intervals

_S = 1e-9
_Ints = NDArray[np.int64]
_Floats = NDArray[np.float64]


def over_time(frame: pd.DataFrame, bins: int = 200, *, window: tuple[int, int] | None = None) -> pd.DataFrame:
    """Computes the I/O in time bins of equal length (to the nanosecond).

    Args:
        frame: an event table, sorted or not.
        bins: how many; fewer where the window has fewer nanoseconds.
        window: begin and end, ns of the table's clock; None: from the first start to the last end.  What
            lies outside does not count, of a call that crosses its edge neither.

    Returns:
        One row per bin: start_ns, end_ns; start_s, end_s (since the window's begin); read_bytes,
        write_bytes; read_bytes_per_s, write_bytes_per_s; reads, writes (calls that started in the bin,
        failed ones too); busy (share of the bin in which at least one call of the table, of any class, was
        in progress); in_flight (mean number of reads and writes in progress).  No rows for an empty table
        without a window.

    Raises:
        ValueError: no bins, or a window that ends before it begins.
    """
    if bins < 1:
        raise ValueError(f"bins={bins}: the number of bins must be at least 1")
    start, end = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
    if window is None:
        window = (int(start.min()), int(end.max())) if start.size else (0, 0)
        bins = bins if start.size else 0
    low, high = window
    if high < low:
        raise ValueError(f"window={window} ends before it begins")
    edges = _edges(low, max(high, low + 1), bins)
    width = np.diff(edges)
    columns: dict[str, NDArray[Any]] = {"start_ns": edges[:-1], "end_ns": edges[1:]}
    columns |= {"start_s": (edges[:-1] - low) * _S, "end_s": (edges[1:] - low) * _S}
    codes = class_codes(frame)
    in_flight = np.zeros(width.size)
    for name in (READ, WRITE):
        rows = codes == CLASSES.index(name)
        first, last = start[rows], end[rows]
        columns[f"{name}_bytes"] = spread(first, last, np.maximum(frame["bytes"].to_numpy()[rows], 0), edges)
        columns[f"{name}_bytes_per_s"] = columns[f"{name}_bytes"] / (width * _S)
        columns[f"{name}s"] = spread(first, first, np.ones(first.size), edges).astype(np.int64)
        in_flight += spread(first, last, last - first, edges)
    columns["busy"] = intervals.covered(intervals.union(start, end), edges[:-1], edges[1:]) / width
    columns["in_flight"] = in_flight / width
    table: pd.DataFrame = pd.DataFrame({name: columns[name] for name in COLUMNS})
    return table


COLUMNS = (
    "start_ns",
    "end_ns",
    "start_s",
    "end_s",
    "read_bytes",
    "write_bytes",
    "read_bytes_per_s",
    "write_bytes_per_s",
    "reads",
    "writes",
    "busy",
    "in_flight",
)


def spread(start: _Ints, end: _Ints, amount: NDArray[np.int64] | _Floats, edges: _Ints) -> _Floats:
    """Spreads amounts evenly over their intervals, and sums them in bins.

    Args:
        start: begins of the intervals.
        end: their ends.
        amount: what each of them has, not negative.
        edges: of the bins, ascending, ns.

    Returns:
        One sum per bin.
    """
    size = edges.size - 1
    if size < 1:
        return np.zeros(0)
    # The last bin takes also what happens at the very end and lasts no time.
    inside = ((start < edges[-1]) & (end > edges[0])) | ((start == end) & (start >= edges[0]) & (start <= edges[-1]))
    if not inside.all():
        start, end, amount = start[inside], end[inside], amount[inside]
    first = np.searchsorted(edges, start, side="right") - 1
    last = np.searchsorted(edges, end, side="left") - 1
    np.clip(first, 0, size - 1, out=first, where=start == end)
    np.clip(last, first, None, out=last)
    within = first == last
    within &= (first >= 0) & (last < size)
    total = np.bincount(first[within], weights=amount[within], minlength=size).astype(float)
    # The few others cross an edge: a part in their first and last bin, and a steady rate in those between.
    start, end, amount, first, last = (values[~within] for values in (start, end, amount, first, last))
    rate = amount / (end - start)
    head, tail = first >= 0, last < size
    total += np.bincount(first[head], weights=((edges[first[head] + 1] - start[head]) * rate[head]), minlength=size)
    total += np.bincount(last[tail], weights=((end[tail] - edges[last[tail]]) * rate[tail]), minlength=size)
    begin, stop = np.maximum(first + 1, 0), np.minimum(last, size)
    change = np.bincount(begin, weights=rate, minlength=size + 1) - np.bincount(stop, weights=rate, minlength=size + 1)
    count = np.bincount(begin, minlength=size + 1) - np.bincount(stop, minlength=size + 1)
    # Sums of floats that cancel leave dust; where nothing is under way there is exactly nothing.
    steady = np.where(np.cumsum(count)[:-1] > 0, np.maximum(np.cumsum(change)[:-1], 0), 0)
    binned: _Floats = total + steady * np.diff(edges)
    return binned


def _edges(low: int, high: int, bins: int) -> _Ints:
    """Edges of the bins: ``bins + 1`` strictly ascending integers from ``low`` to ``high``, as even as possible."""
    if not bins:
        return np.zeros(1, np.int64)
    bins = min(bins, high - low)
    whole, rest = divmod(high - low, bins)
    steps = np.arange(bins + 1, dtype=np.int64)
    return low + steps * whole + steps * rest // bins
