"""Computes the I/O time and the bandwidth of calls.

Definitions::

    I/O time     length of the union of the calls' intervals [start, end): of one process, or global, over
                 all processes; calls that overlap in time count once
    summed time  sum of the calls' durations; calls that overlap count each.  Per rank: / number of ranks
    bandwidth    bytes moved / I/O time of the calls that moved them (global union; of one rank for that rank)

Times are in seconds.  A failed call takes time and moves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dlio_torch.iotrace.events.call_names import CLASSES, READ, WRITE, class_codes
from dlio_torch.iotrace.figures import intervals
from dlio_torch.iotrace.figures.row_groups import group

_S = 1e-9


@dataclass(frozen=True)
class IoTime:
    """I/O time, seconds.

    Args:
        global_s: union over all processes.
        longest_s: the largest of the processes' unions.
        summed_s: sum of the durations.
        mean_per_rank_s: ``summed_s`` / number of ranks; None without ranks.
        per_process: columns rank, pid, calls, io_s (union), summed_s, share (of the run time, NaN where unknown).
    """

    global_s: float
    longest_s: float
    summed_s: float
    mean_per_rank_s: float | None
    per_process: pd.DataFrame


@dataclass(frozen=True)
class Bandwidth:
    """Bandwidth: bytes moved over the time of the calls that moved them.

    Args:
        calls: calls of the class, failed ones included.
        bytes: what they moved.
        io_s: global union of their intervals, seconds.
        bytes_per_s: the quotient, None where no time passed.
        per_rank: columns rank, calls, bytes, io_s (union over the rank's processes), bytes_per_s (NaN: no time).
    """

    calls: int
    bytes: int
    io_s: float
    bytes_per_s: float | None
    per_rank: pd.DataFrame


def io_time(frame: pd.DataFrame, *, runtime_s: float | None = None, ranks: int | None = None) -> IoTime:
    """I/O time of the calls of an event table.

    Args:
        frame: calls of any classes; which ones is the caller's choice.
        runtime_s: wall-clock time of the program, for the shares.
        ranks: number of ranks of the program; None: those that the table has.
    """
    start, end, rank, pid = (frame[name].to_numpy() for name in ("start_ns", "end_ns", "rank", "pid"))
    processes = group((rank, pid))
    io_ns = processes.unions(start, end)
    per_process = pd.DataFrame(
        {
            "rank": rank[processes.representative],
            "pid": pid[processes.representative],
            "calls": processes.counts(),
            "io_s": io_ns * _S,
            "summed_s": processes.sums(end - start) * _S,
            "share": io_ns * _S / runtime_s if runtime_s else np.full(io_ns.size, np.nan),
        }
    )
    summed = int((end - start).sum())
    number = ranks or int(per_process["rank"].nunique())
    return IoTime(
        global_s=intervals.length(intervals.union(start, end)) * _S,
        longest_s=int(io_ns.max(initial=0)) * _S,
        summed_s=summed * _S,
        mean_per_rank_s=summed * _S / number if number else None,
        per_process=per_process.sort_values(["rank", "pid"], ignore_index=True),
    )


def bandwidth(frame: pd.DataFrame) -> dict[str, Bandwidth]:
    """Bandwidth of the reads, of the writes, and of both (``all``)."""
    codes = class_codes(frame)
    read, write = codes == CLASSES.index(READ), codes == CLASSES.index(WRITE)
    return {READ: _bandwidth(frame, read), WRITE: _bandwidth(frame, write), "all": _bandwidth(frame, read | write)}


def _bandwidth(frame: pd.DataFrame, rows: NDArray[np.bool_]) -> Bandwidth:
    start, end, rank, size = (frame[name].to_numpy()[rows] for name in ("start_ns", "end_ns", "rank", "bytes"))
    size = np.maximum(size, 0)
    ranks = group((rank,))
    moved, io_s = ranks.sums(size), ranks.unions(start, end) * _S
    rate = np.full(io_s.size, np.nan)
    np.divide(moved, io_s, out=rate, where=io_s > 0)
    per_rank = pd.DataFrame(
        {"rank": rank[ranks.representative], "calls": ranks.counts(), "bytes": moved, "io_s": io_s, "bytes_per_s": rate}
    )
    total, seconds = int(size.sum()), intervals.length(intervals.union(start, end)) * _S
    return Bandwidth(
        calls=int(start.size),
        bytes=total,
        io_s=seconds,
        bytes_per_s=total / seconds if seconds > 0 else None,
        per_rank=per_rank.sort_values("rank", ignore_index=True),
    )
