"""Measures components that depend on time, see :mod:`dlio_torch.iotrace.fidelity.measures`."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dlio_torch.iotrace.events.call_names import READ, WRITE
from dlio_torch.iotrace.fidelity import distances
from dlio_torch.iotrace.fidelity.measures import (
    MeasuredComponent,
    Measurements,
    Missing,
    Terms,
    between,
    lacking,
)
from dlio_torch.iotrace.fidelity.sides import Side
from dlio_torch.iotrace.figures.io_time import bandwidth
from dlio_torch.iotrace.figures.row_groups import group
from dlio_torch.units import format_duration, format_rate, percent

_S = 1e-9
_SHORTEST_S = 1.0
"""Seconds below which the shares of repeated runs differ by more than their limits."""


def storage(a: Side, b: Side, terms: Terms) -> Measurements:
    """Compares durations of calls and bandwidth, which requires the same storage on both sides."""
    if terms.other_storage is not None:
        for name in (f"{name} {figure}" for figure in ("durations", "bandwidth") for name in (READ, WRITE)):
            yield Missing(name, terms.other_storage)
        return
    speeds = [bandwidth(side.calls) for side in (a, b)]
    for name in (READ, WRITE):
        key = f"{name} durations"
        rows = [side.transfers(name) for side in (a, b)]
        absent = lacking(key, a, b, name, [int(np.count_nonzero(chosen)) for chosen in rows])
        if absent is not None:
            yield from absent
            continue
        took = [
            (side.calls["end_ns"].to_numpy() - side.calls["start_ns"].to_numpy())[chosen]
            for side, chosen in zip((a, b), rows, strict=True)
        ]
        shown = [f"median {format_duration(float(np.median(durations)) * _S)}" for durations in took]
        counts = took[0].size, took[1].size
        floor = distances.ks_floor(*counts)
        medians = float(np.median(took[0])), float(np.median(took[1]))
        yield MeasuredComponent(key, distances.ks(*took), between(*shown), floor, counts, values=medians)
        rate_a, rate_b = (speed[name].bytes_per_s for speed in speeds)
        if rate_a and rate_b:
            shown = [format_rate(rate_a), format_rate(rate_b)]
            distance = distances.relative(rate_a, rate_b)
            yield MeasuredComponent(f"{name} bandwidth", distance, between(*shown), values=(rate_a, rate_b))


def readers(a: Side, b: Side, terms: Terms) -> Measurements:
    """Compares the number of threads of a rank that read at the same time."""
    if not terms.both.threads or a.coarse or b.coarse:
        yield Missing("readers", "threads are not distinguished on one of the sides")
        return
    of_a, of_b = _readers(a), _readers(b)
    if of_a and of_b:
        shown = [f"{threads:.3g} threads per rank read at the same time" for threads in (of_a, of_b)]
        yield MeasuredComponent("readers", distances.relative(of_a, of_b), between(*shown), values=(of_a, of_b))


def compute(a: Side, b: Side, terms: Terms) -> Measurements:
    """Compares the share of I/O that overlaps compute, and the share of time with exposed I/O."""
    del terms
    names = ("overlap", "exposed I/O")
    rows = [_of_rank(side) for side in (a, b)]
    for side, row in zip((a, b), rows, strict=True):
        if row is None:
            for name in names:
                yield Missing(name, f"{side.label} contains no record of compute")
            return
    took = [_measured(side) for side in (a, b)]
    if min(took) < _SHORTEST_S:
        shown = between(*(format_duration(seconds) for seconds in took))
        for name in names:
            yield Missing(
                name, (f"the measured time is too short ({shown}; at least {format_duration(_SHORTEST_S)} is needed)")
            )
        return
    for name, column in (("overlap", "overlap"), ("exposed I/O", "exposed_share")):
        of_a, of_b = (float("nan") if row is None else float(row[column]) for row in rows)
        if np.isnan(of_a) or np.isnan(of_b):
            yield Missing(name, f"not measured for {a.label if np.isnan(of_a) else b.label}")
            continue
        shown = between(percent(of_a), percent(of_b))
        yield MeasuredComponent(name, min(1.0, abs(of_a - of_b)), shown, values=(of_a, of_b))


def _readers(side: Side) -> float:
    """Threads of a rank that read at the same time: median over the bytes read, mean over ranks."""
    calls = side.calls[side.is_class(READ)]
    ranks = np.unique(calls["rank"].to_numpy())
    return float(np.mean([_at_one_time(calls[calls["rank"] == rank]) for rank in ranks])) if ranks.size else 0.0


def _at_one_time(calls: pd.DataFrame) -> int:
    """Number of threads that are between their first and last read when the median byte is read."""
    start, end = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()
    threads = group([calls[name].to_numpy() for name in ("pid", "tid")])
    begun = np.searchsorted(np.sort(threads.least(start)), start, side="right")
    over = np.searchsorted(np.sort(threads.greatest(end)), start, side="left")
    readers = begun - over
    order = np.argsort(readers, kind="stable")
    weights = np.cumsum(np.maximum(calls["bytes"].to_numpy(), 0)[order], dtype=float)
    if not weights[-1]:
        weights = np.arange(1.0, order.size + 1)
    return int(readers[order][np.searchsorted(weights, weights[-1] / 2, side="right")])


def _measured(side: Side) -> float:
    """Measured time of this rank, or the longest measured time of all ranks, seconds."""
    assert side.overlap is not None
    ranks = side.overlap["rank"]
    chosen = ranks >= 0 if side.rank is None else ranks == side.rank
    return float(side.overlap.loc[chosen, "measured_s"].max())


def _of_rank(side: Side) -> pd.Series[float] | None:
    """The row of this rank, or of all ranks."""
    if side.overlap is None:
        return None
    row = side.overlap[side.overlap["rank"] == (-1 if side.rank is None else side.rank)]
    return None if row.empty else row.iloc[0]
