"""Breaks a rank's time down into reading, loading, training and checkpoints, as unions of intervals.

After TimeLogger (Chowdhury et al., "Initial Characterization of I/O in Large-Scale Deep Learning
Applications", NERSC and Florida State University), which logs begin and end of the components Read, Load,
Training and Checkpointing, merges the intervals of each component, and takes the length of the merged set; read
bandwidth is the bytes fetched over that of Read.  The paper does not say what a component contains.  Here:

===========  ==================================  ============================================================
category     TimeLogger                          the union, over all processes and threads of a rank, of spans
===========  ==================================  ============================================================
read         Read                                ``read``, ``open``
load         Load                                those and ``decode``, ``preprocess``, ``collate``, ``sample``: the
                                                 loader's work
wait         (none)                              ``fetch``: the trainer has no batch
copy         (none)                              ``copy``: batches on their way to the GPU
compute      (part of Training)                  ``compute``
allreduce    (part of Training)                  ``allreduce``
train        Training, without waits for data    ``compute``, ``allreduce``
checkpoint   Checkpointing                       ``checkpoint``, ``restore``, ``load``
evaluate     (none)                              ``eval_fetch``, ``eval_copy``, ``eval_compute``
posix        (none)                              not spans but every recorded I/O call, whatever its file
other        (none)                              the runtime without wait, copy, train, checkpoint and evaluate
===========  ==================================  ============================================================

No second counts twice in a category.  Loading goes on behind the training, so the categories do not add up to
the runtime; wait, copy, train, checkpoint, evaluate and other do.  What a restore reads counts as checkpoint only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dlio_torch.iotrace.events.call_names import IO_LAYERS
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.iotrace.figures.intervals import Intervals, complement, covered, difference, union
from dlio_torch.iotrace.figures.row_groups import codes_of

CATEGORIES = (
    "read", "load", "wait", "copy", "compute", "allreduce", "train", "checkpoint", "evaluate", "posix", "other",
)  # fmt: skip

_TRAINER = ("wait", "copy", "train", "checkpoint", "evaluate")
_SPANS: dict[str, tuple[str, ...]] = {
    "read": ("read", "open"),
    # The last two: DLIO's own functions around its reads, as DFTracer records them.
    "load": ("read", "open", "decode", "preprocess", "collate", "sample", "*.read_index", "*.__getitem__"),
    "wait": ("fetch",),
    "copy": ("copy",),
    "compute": ("compute",),
    "allreduce": ("allreduce",),
    "train": ("compute", "allreduce"),
    "checkpoint": ("checkpoint", "restore", "load"),
    "evaluate": ("eval_fetch", "eval_copy", "eval_compute"),
}
_COLUMNS = ("rank", "epoch", "category", "seconds", "share")


def breakdown(recording: Recording) -> pd.DataFrame:
    """Seconds of every rank and category, in the whole run and in each epoch.

    Returns:
        A row per rank, epoch and category: ``rank``; ``epoch``, from 1, or -1: the whole of what was recorded of
        the rank, the loading into memory before the first epoch included; ``category``, of :data:`CATEGORIES`;
        ``seconds``; ``share`` of the rank's runtime, or of the length of the epoch.  NaN: the recording has
        nothing of that category, which is no zero.
    """
    frame = recording.events.frame
    parts: list[pd.DataFrame] = []
    for rank, rows in by_rank(frame):
        times, (low, high) = _rank_times(rows), runtime(rows)
        epochs = rows[is_span(rows, ("epoch",))].sort_values("start_ns")
        starts = np.concatenate(([low], epochs["start_ns"].to_numpy()))
        ends = np.concatenate(([high], epochs["end_ns"].to_numpy()))
        numbers = np.concatenate(([-1], np.arange(1, len(epochs) + 1)))
        for category in CATEGORIES:
            intervals = times[category]
            inside = (
                np.full(starts.size, np.nan) if intervals is None else covered(intervals, starts, ends).astype(float)
            )
            share = inside / np.maximum(ends - starts, 1)
            columns = (np.full(starts.size, rank), numbers, category, inside * 1e-9, share)
            parts.append(pd.DataFrame(dict(zip(_COLUMNS, columns, strict=True))))
    # Within an epoch the categories stay in the order in which they were added.
    table: pd.DataFrame = pd.concat(parts) if parts else pd.DataFrame({name: [] for name in _COLUMNS})
    table = table.sort_values(["rank", "epoch"], kind="stable", ignore_index=True)
    return table


def by_rank(frame: pd.DataFrame) -> Iterator[tuple[int, pd.DataFrame]]:
    """The rows of each rank."""
    ranks = frame["rank"].to_numpy()
    for rank in np.unique(ranks):
        yield int(rank), frame[ranks == rank]


def runtime(rows: pd.DataFrame) -> tuple[int, int]:
    """Begin of the first and end of the last span of some rows, ns; of I/O calls if there are no spans.

    The making of synthetic data, and of copies of them, is left out.
    """
    spans = rows[(rows["layer"] == "app").to_numpy() & ~is_span(rows, ("generate", "stage"))]
    rows = spans if len(spans) else rows
    return int(rows["start_ns"].min()), int(rows["end_ns"].max())


def span_times(frame: pd.DataFrame, category: str) -> Intervals | None:
    """Union of the intervals of a category of spans; None if there is no such span.

    Args:
        frame: an event table.
        category: of :data:`CATEGORIES`, but ``posix`` and ``other``.
    """
    rows = frame[is_span(frame, _SPANS[category])]
    intervals = _union(rows) if len(rows) else None
    if intervals is not None and category in {"read", "load"}:
        intervals = difference(intervals, _union(frame[is_span(frame, ("restore",))]))
    return intervals


def is_span(frame: pd.DataFrame, names: Sequence[str]) -> NDArray[np.bool_]:
    """Selects spans by name; names may be glob patterns."""
    wanted = [any(fnmatchcase(str(op), name) for name in names) for op in frame["op"].cat.categories]
    matches: NDArray[np.bool_] = (frame["layer"] == "app").to_numpy() & np.array([*wanted, False])[
        codes_of(frame["op"])
    ]
    return matches


def _rank_times(rows: pd.DataFrame) -> dict[str, Intervals | None]:
    times = {category: span_times(rows, category) for category in _SPANS}
    calls = rows[rows["layer"].isin(IO_LAYERS).to_numpy()]
    times["posix"] = _union(calls) if len(calls) else None
    known = [intervals for name in _TRAINER if (intervals := times[name]) is not None]
    times["other"] = None
    if known:
        busy = union(
            np.concatenate([intervals[0] for intervals in known]), np.concatenate([intervals[1] for intervals in known])
        )
        times["other"] = complement(busy, *runtime(rows))
    return times


def _union(rows: pd.DataFrame) -> Intervals:
    return union(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
