"""Computes all I/O figures of a recording as one structure of plain values.

Each part has its definitions in the text of its module: :mod:`~dlio_torch.iotrace.figures.call_selection` (which calls
count), :mod:`~dlio_torch.iotrace.figures.io_time` (I/O time, bandwidth),
:mod:`~dlio_torch.iotrace.figures.transfer_sizes`,
:mod:`~dlio_torch.iotrace.figures.access_order` (sequential, consecutive, jumps),
:mod:`~dlio_torch.iotrace.figures.bandwidth` (over
time), :mod:`~dlio_torch.iotrace.figures.group_figures` (files, ranks, processes),
:mod:`~dlio_torch.iotrace.figures.counter_sums` (counters), :mod:`~dlio_torch.iotrace.figures.untraced_io`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from dlio_torch.iotrace.events.call_names import CLASSES, READ, WRITE, class_codes
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.iotrace.figures import access_order, counter_sums, intervals, io_tables
from dlio_torch.iotrace.figures.bandwidth import over_time
from dlio_torch.iotrace.figures.call_selection import layers_of, matching, select, select_frame
from dlio_torch.iotrace.figures.captions import CAPTIONS
from dlio_torch.iotrace.figures.io_time import Bandwidth, IoTime, bandwidth, io_time
from dlio_torch.iotrace.figures.transfer_sizes import DARSHAN_LABELS, Sizes, sizes_by_class, transfer_sizes
from dlio_torch.iotrace.figures.untraced_io import untraced

__all__ = [
    "CAPTIONS",
    "Bandwidth",
    "IoTime",
    "Sizes",
    "analyse",
    "bandwidth",
    "io_time",
    "matching",
    "select",
    "select_frame",
    "sizes_by_class",
    "transfer_sizes",
]

SCHEMA = "dlio_torch.io"
VERSION = "1"

_JUMP_PERCENTILES = (1, 5, 25, 50, 75, 95, 99)


def analyse(recording: Recording, *, bins: int = 200, top_files: int = 100) -> dict[str, Any]:
    """Computes all I/O figures of a recording as plain values for JSON; None for values that were not measured.

    Args:
        recording: of any kind.
        bins: of the rates over time.
        top_files: rows of the table of files, those with the most bytes; the number of all is given.

    Returns:
        ``schema``, ``version``; ``source`` (what the recording is); ``layers`` (those that count, see
        :mod:`dlio_torch.iotrace.figures.call_selection`); ``coarse`` (True: there are counters only) and ``why``
        there is nothing in ``io`` (None where there is); ``io`` (figures of the calls that count: ``calls``,
        ``classes``, ``io_time``, ``sizes``, ``bandwidth``, ``shares``, ``jumps``); ``by_layer`` (the same of
        each layer by itself, where there are several); ``counters`` (sums by layer); ``over_time`` (columns
        by name); ``files`` (``count`` of the files; ``rows``, one per layer and file,
        of which there are ``rows_in_all`` and here ``rows_given``); ``ranks`` and
        ``processes`` (rows); ``untraced``; ``definitions``.
    """
    frame = select(recording)
    layers = layers_of(frame)
    counters = None if recording.counters is None else counter_sums.by_layer(recording.counters)
    everything = layers_of(recording.events.frame)
    process = access_order.Followed(frame)
    files = io_tables.files(recording, followed=process)
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "source": _source(recording),
        "layers": list(layers),
        "coarse": counters is not None and not len(frame),
        "why": None if len(frame) else _why_nothing(recording),
        "io": _figures(frame, recording, process) if len(frame) else None,
        "by_layer": {name: _layer(recording, name) for name in everything} if len(everything) > 1 else {},
        "counters": counters,
        "over_time": _columns(over_time(frame, bins)) if len(frame) else None,
        "files": {
            "count": int(files["file"].nunique()),
            "rows_in_all": len(files),
            "rows_given": min(len(files), top_files),
            "rows": _rows(files.head(top_files)),
        },
        "ranks": _rows(io_tables.ranks(recording, followed=process)),
        "processes": _rows(io_tables.ranks(recording, per="process", followed=process)),
        "untraced": untraced(recording),
        "definitions": dict(CAPTIONS),
    }


def _source(recording: Recording) -> dict[str, Any]:
    return {
        "path": str(recording.path),
        "kind": recording.kind,
        "world_size": recording.world_size,
        "runtime_s": recording.runtime_s,
        "trusted_times": recording.trusted_times,
        "sees": [name for name in CLASSES if name in recording.sees],
        "notes": list(recording.notes),
    }


def _why_nothing(recording: Recording) -> str:
    if recording.counters is not None:
        return "the log contains counters only, no single calls"
    return "the recorded program made no I/O call" if recording.sees else "I/O calls were not recorded"


def _layer(recording: Recording, layer: str) -> dict[str, Any]:
    frame = select(recording, layers=layer)
    return _figures(frame, recording, access_order.Followed(frame))


def _figures(frame: pd.DataFrame, recording: Recording, process: access_order.Followed) -> dict[str, Any]:
    whole = io_time(frame, runtime_s=recording.runtime_s, ranks=recording.world_size)
    sizes, speeds = sizes_by_class(frame), bandwidth(frame)
    stream = access_order.Followed(frame, "stream")
    seen = {READ: READ in recording.sees, WRITE: WRITE in recording.sees, "all": True}
    return {
        "calls": len(frame),
        "classes": _classes(frame, recording),
        "io_time": _time(whole),
        "sizes": {name: _sizes(values) if seen[name] else None for name, values in sizes.items()},
        "bandwidth": {name: _bandwidth(values) if seen[name] else None for name, values in speeds.items()},
        "shares": {"process": _shares(process, seen), "stream": _shares(stream, seen)},
        "jumps": _jumps(stream.jumps()),
    }


def _classes(frame: pd.DataFrame, recording: Recording) -> dict[str, Any]:
    """Calls, I/O time and failed calls by class; None for a class that the source does not record."""
    codes = class_codes(frame)
    start, end, size = (frame[name].to_numpy() for name in ("start_ns", "end_ns", "bytes"))
    by_class: dict[str, Any] = dict.fromkeys(CLASSES)
    for code, name in enumerate(CLASSES):
        if name not in recording.sees:
            continue
        rows = np.flatnonzero(codes == code)
        first, last = start[rows], end[rows]
        by_class[name] = {
            "calls": int(rows.size),
            "failed": int((size[rows] < 0).sum()) if name in (READ, WRITE) else None,
            "io_s": intervals.length(intervals.union(first, last)) * 1e-9,
            "summed_s": int((last - first).sum()) * 1e-9,
        }
    return by_class


def _time(time: IoTime) -> dict[str, Any]:
    shares = time.per_process["share"].to_numpy()
    return {
        "global_s": time.global_s,
        "longest_process_s": time.longest_s,
        "summed_s": time.summed_s,
        "mean_per_rank_s": time.mean_per_rank_s,
        "mean_share_of_runtime": _plain(shares.mean()) if shares.size else None,
    }


def _sizes(sizes: Sizes) -> dict[str, Any]:
    return {**sizes.as_dict(), "darshan": dict(zip(DARSHAN_LABELS, sizes.darshan, strict=True))}


def _bandwidth(speed: Bandwidth) -> dict[str, Any]:
    return {
        "calls": speed.calls,
        "bytes": speed.bytes,
        "io_s": speed.io_s,
        "bytes_per_s": speed.bytes_per_s,
        "per_rank": _rows(speed.per_rank),
    }


def _shares(followed: access_order.Followed, seen: Mapping[str, bool]) -> dict[str, Any]:
    return {
        name: {"accesses": share.accesses, "sequential": share.sequential, "consecutive": share.consecutive}
        if seen[name]
        else None
        for name, share in access_order.shares_of(followed.counts()).items()
    }


def _jumps(jumps: np.ndarray[Any, np.dtype[np.int64]]) -> dict[str, Any] | None:
    """Figures of the jumps of streams: shares of backward, zero and forward jumps, and percentiles in bytes."""
    if not jumps.size:
        return None
    values = np.percentile(jumps, _JUMP_PERCENTILES)
    return {
        "count": int(jumps.size),
        "back": float((jumps < 0).mean()),
        "none": float((jumps == 0).mean()),
        "ahead": float((jumps > 0).mean()),
        "percentiles": {f"p{name}": float(value) for name, value in zip(_JUMP_PERCENTILES, values, strict=True)},
    }


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): _plain(value) for key, value in row.items()} for row in table.to_dict("records")]


def _columns(table: pd.DataFrame) -> dict[str, list[Any]]:
    return {str(name): [_plain(value) for value in table[name].tolist()] for name in table}


def _plain(value: Any) -> Any:
    """A value as plain value for JSON; None for NaN and missing values."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is pd.NA or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value
