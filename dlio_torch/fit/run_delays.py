"""Run delays within spans and their I/O calls: time for which a thread could have run, and no core was free for it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

Ints = npt.NDArray[np.int64]


def run_delays(spans: pd.DataFrame, chosen: pd.DataFrame) -> Ints:
    """Run delay within each span; 0 where none is recorded, and never more than the span's length.

    Args:
        spans: all spans of a recording; those named ``run_delay`` begin with what they are about, and their length is
            the delay.
        chosen: some of its spans, with columns ``rank, pid, tid, start_ns, end_ns``.

    Returns:
        Nanoseconds, int64 of ``(len(chosen),)``.
    """
    waited = np.zeros(len(chosen), np.int64)
    of_threads = spans[spans["op"] == "run_delay"].groupby(_THREAD, sort=False)
    known = of_threads.indices
    for thread, rows in chosen.groupby(_THREAD, sort=False).indices.items():
        if thread in known:
            mine, delays = chosen.iloc[rows], of_threads.get_group(thread)
            sums = sums_within(delays, (delays["end_ns"] - delays["start_ns"]).to_numpy(), mine)
            waited[rows] = np.minimum(sums, (mine["end_ns"] - mine["start_ns"]).to_numpy())
    return waited


def delays_outside_calls(delays: Ints, calls: pd.DataFrame, spans: pd.DataFrame, outside: Ints) -> Ints:
    """The part of run delays that did not fall into I/O calls, which are longer by the rest.

    A thread loses its core within a call, too.  The delay of a span is divided among its calls and the rest of it by
    how much each is longer than usual, which is the first quartile of its kind.

    Args:
        delays: ns within each span.
        calls: I/O calls of the process of the spans.
        spans: of one process.
        outside: ns of each span in which it had no call.
    """
    lengths = (calls["end_ns"] - calls["start_ns"]).to_numpy()
    sizes = np.log2(np.maximum(calls["bytes"].to_numpy(), 1)).astype(np.int64)
    kinds = pd.Series(lengths).groupby([calls["op"].astype(str).to_numpy(), sizes])
    within_calls = sums_within(calls, _excess(lengths, kinds.transform(_first_quartile).to_numpy()), spans)
    without_calls = _excess(outside, np.quantile(outside, _QUARTILE) if len(outside) else 0)
    excess = np.maximum(within_calls + without_calls, 1)
    return np.asarray(delays - within_calls * np.minimum(1.0, delays / excess), np.int64)


def sums_within(events: pd.DataFrame, values: Ints, spans: pd.DataFrame) -> Ints:
    """Sum of the values of those events that begin within each span."""
    order = np.argsort(events["start_ns"].to_numpy(), kind="stable")
    begins, sums = events["start_ns"].to_numpy()[order], np.concatenate([[0], np.cumsum(values[order])])
    low, high = (np.searchsorted(begins, spans[name].to_numpy(), side="left") for name in ("start_ns", "end_ns"))
    return np.asarray(sums[high] - sums[low], np.int64)


def _excess(lengths: Ints, usual: npt.ArrayLike) -> Ints:
    return np.asarray(np.maximum(lengths - np.asarray(usual), 0), np.int64)


def _first_quartile(lengths: pd.Series[int]) -> float:
    return float(lengths.quantile(_QUARTILE))


_THREAD = ["rank", "pid", "tid"]
_QUARTILE = 0.25
