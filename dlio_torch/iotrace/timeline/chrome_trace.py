"""Writes one merged trace of all ranks, workers and threads for Perfetto and chrome://tracing.

Written in the Trace Event Format, the JSON object form: ``X`` (complete) events with ``ts`` and ``dur``
in microseconds, ``M`` (metadata) events with the names of processes and threads, ``C`` (counter) events.
Times count from the earliest event; ``otherData`` says which wall-clock time that is.

I/O calls (category ``posix``) stand on the track of the thread that made them, inside its spans.  Of very many
calls only the longest are drawn, since a viewer holds every event in memory; ``otherData`` says how many are
left out.  The events folder has them all.

Saves of checkpoints in the background are asynchronous events (``b`` and ``e``): they overlap the steps of the thread
that began them, and viewers draw each of them in a lane of its own.
"""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dlio_torch.files.atomic_file import replaced
from dlio_torch.iotrace.events.event_files import Process
from dlio_torch.iotrace.events.event_table import EventTable
from dlio_torch.iotrace.timeline.horovod_timeline import MAX_INTERVALS, Timeline, timeline_events
from dlio_torch.iotrace.timeline.kineto_trace import THREADS, foreign_events, read_profile

MAX_CALLS = 1_000_000
AMOUNTS = ("asleep", "run_delay", "kernel")
"""Spans that carry a length but no position in time, so they are not drawn (see the events of a batch)."""
BACKGROUND = "save"
"""Span that overlaps other spans of its thread."""
_CHUNK = 20_000  # events that are text at once
_Ids = dict[tuple[int, int], int]


@dataclass(frozen=True)
class Counter:
    """A value over time, drawn as a track of a process.

    Args:
        name: name of the track, for example ``batches ready``.
        rank: rank and...
        pid: ...process that the track belongs to.
        times_ns: monotonic times, the clock of the event table.
        values: the value from each of these times on.
    """

    name: str
    rank: int
    pid: int
    times_ns: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]


def write_trace(
    events: EventTable,
    path: Path,
    *,
    counters: Sequence[Counter] = (),
    profiler_traces: Sequence[Path] = (),
    horovod: Timeline | None = None,
    max_calls: int = MAX_CALLS,
) -> int:
    """Writes the gzipped trace; the file gets its name only when it is complete.

    Args:
        events: the events of a run.
        path: the trace; its folder exists.
        counters: values over time.
        profiler_traces: files of torch.profiler of the same run, moved to the same clock and added.
        horovod: Horovod's timeline of the same run, likewise; ``None``: there is none.
        max_calls: most I/O calls that are drawn.

    Returns:
        Number of events written.

    Raises:
        DataError: a file of torch.profiler is damaged.
        PreconditionError: the trace cannot be written.
    """
    frame, left_out = _longest_calls(events.frame, max_calls)
    events = replace(events, frame=frame, processes=_all_processes(events))
    ids = trace_ids(events.processes)
    to_monotonic_ns = events.anchor_monotonic_ns - events.anchor_time_ns
    profiles = [foreign_events(read_profile(file), ids, number) for number, file in enumerate(profiler_traces)]
    about: dict[str, Any] = {}
    if horovod is not None:
        profiles.append(list(timeline_events(horovod)))
        left = max(0, len(horovod.intervals) - MAX_INTERVALS)
        about["horovod"] = {"cut": horovod.cut, "unfinished": horovod.unfinished, "left_out": left}
    starts = [profile[0]["time_ns"] + to_monotonic_ns for profile in profiles if profile]
    if len(events.frame):
        starts.append(int(events.frame["start_ns"].iloc[0]))
    starts += [int(counter.times_ns[0]) for counter in counters if len(counter.times_ns)]
    origin_ns = min(starts, default=0)
    head = {
        "displayTimeUnit": "ms",
        "otherData": {
            "origin_monotonic_ns": origin_ns,
            "origin_time_ns": origin_ns - to_monotonic_ns,
            "calls_left_out": left_out,
            **about,
        },
        "traceEvents": [],
    }
    texts = _texts(events, counters, profiles, origin_ns=origin_ns, origin_time_ns=origin_ns - to_monotonic_ns)
    written = 0
    with replaced(path) as raw, gzip.GzipFile(path.stem, "wb", 3, raw, mtime=0) as file:
        file.write(json.dumps(head)[:-2].encode())  # the list stays open
        while chunk := list(itertools.islice(texts, _CHUNK)):
            file.write(((",\n" if written else "\n") + ",\n".join(chunk)).encode())
            written += len(chunk)
        file.write(b"\n]}\n")
    return written


def _longest_calls(frame: pd.DataFrame, most: int) -> tuple[pd.DataFrame, int]:
    """The table with the longest I/O calls only, and the number of omitted calls."""
    is_call = (frame["layer"] != "app").to_numpy()
    number = int(np.count_nonzero(is_call))
    if number <= most:
        return frame, 0
    duration = (frame["end_ns"] - frame["start_ns"]).to_numpy()
    calls = np.flatnonzero(is_call)
    shortest = calls[np.argpartition(duration[calls], number - most)[: number - most]]
    keep = np.ones(len(frame), bool)
    keep[shortest] = False
    return frame[keep], number - most


def _all_processes(events: EventTable) -> tuple[Process, ...]:
    """Processes of the table; processes without an entry (in logs of other tools) get plain names."""
    known = {(process.rank, process.pid): process for process in events.processes}
    tracks = events.frame[["rank", "pid", "tid"]].drop_duplicates()
    for rank, pid, tid in tracks.itertuples(index=False, name=None):
        process = known.setdefault((rank, pid), Process(rank, pid, "process", None, "", "", 0, 0, {}))
        if tid not in process.threads:
            known[rank, pid] = replace(process, threads={**process.threads, tid: f"thread {tid}"})
    return tuple(known.values())


def trace_ids(processes: Sequence[Process]) -> _Ids:
    """Process ids of a trace by (rank, pid): real ids, made distinct if processes of two machines share one."""
    ids: _Ids = {}
    used: set[int] = set()
    for process in processes:
        key = (process.rank, process.pid)
        number = process.pid
        if number < 0 or number in used:
            number = THREADS * (2 + process.rank) + process.pid
        ids[key] = number
        used.add(number)
    return ids


def name_events(processes: Sequence[Process], ids: _Ids) -> Iterator[dict[str, Any]]:
    """Metadata events that name and sort processes and threads."""
    for order, process in enumerate(processes):
        number = ids[(process.rank, process.pid)]
        name = f"rank {process.rank} {process.role}"
        if process.role != "trainer":
            name += f" ({process.pid})"
        yield _metadata("process_name", number, 0, {"name": name})
        yield _metadata("process_labels", number, 0, {"labels": process.host})
        yield _metadata("process_sort_index", number, 0, {"sort_index": order})
        for tid, thread in process.threads.items():
            yield _metadata("thread_name", number, max(tid, 0), {"name": thread})


def complete_events(frame: pd.DataFrame, ids: _Ids, origin_ns: int) -> Iterator[str]:
    """Each row of an event table as the JSON text of one ``X`` event, ``ts`` counted from ``origin_ns``.

    The layer becomes the category.
    """
    layers = [str(name) for name in frame["layer"].cat.categories]
    frame = frame[~frame["op"].isin((*AMOUNTS, BACKGROUND))]
    ops = [json.dumps(name) for name in frame["op"].cat.categories]
    files = [json.dumps(name) for name in frame["file"].cat.categories]
    for first in range(0, len(frame), _CHUNK):
        part = frame.iloc[first : first + _CHUNK]
        rows = zip(
            part["rank"].tolist(),
            part["pid"].tolist(),
            part["tid"].tolist(),
            part["layer"].cat.codes.tolist(),
            part["op"].cat.codes.tolist(),
            part["file"].cat.codes.tolist(),
            part["offset"].tolist(),
            part["bytes"].tolist(),
            (part["start_ns"] - origin_ns).tolist(),
            (part["end_ns"] - part["start_ns"]).tolist(),
            part["step"].tolist(),
            strict=True,
        )
        for rank, pid, tid, layer, op, file, offset, size, ts, dur, step in rows:
            args = [f'"step":{step}'] if step >= 0 else []
            if file >= 0:
                args.append(f'"file":{files[file]}')
            if offset >= 0:
                args.append(f'"offset":{offset}')
            if size >= 0:
                args.append(f'"bytes":{size}')
            yield (
                f'{{"ph":"X","cat":"{layers[layer]}","name":{ops[op]},"pid":{ids[(rank, pid)]},"tid":{max(tid, 0)},'
                f'"ts":{_us(ts)},"dur":{_us(dur)},"args":{{{",".join(args)}}}}}'
            )


def background_events(frame: pd.DataFrame, ids: _Ids, origin_ns: int) -> Iterator[str]:
    """Begin and end of each save in the background as JSON texts; each save has an id, and so a lane, of its own."""
    rows = frame[(frame["layer"] == "app") & (frame["op"] == BACKGROUND)].to_dict("records")
    for number, row in enumerate(rows):
        track = {"cat": BACKGROUND, "id": number, "pid": ids[(row["rank"], row["pid"])], "tid": max(row["tid"], 0)}
        event = {**track, "name": f"save of step {row['step']}", "args": {"step": row["step"], "bytes": row["bytes"]}}
        for phase, time_ns in (("b", row["start_ns"]), ("e", row["end_ns"])):
            yield json.dumps({"ph": phase, **event, "ts": (time_ns - origin_ns) / 1000})


def _us(ns: int) -> str:
    # Exact: a float of microseconds would lose nanoseconds after some days of uptime.
    return f"{ns // 1000}.{ns % 1000:03d}"


def _metadata(kind: str, pid: int, tid: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "ts": 0, "args": args}


def _texts(
    events: EventTable,
    counters: Sequence[Counter],
    profiles: Sequence[list[dict[str, Any]]],
    *,
    origin_ns: int,
    origin_time_ns: int,
) -> Iterator[str]:
    """Every event of the trace as JSON text."""
    ids = trace_ids(events.processes)
    for event in name_events(events.processes, ids):
        yield json.dumps(event)
    yield from complete_events(events.frame, ids, origin_ns)
    yield from background_events(events.frame, ids, origin_ns)
    for profile in profiles:
        for event in profile:
            time_ns = event.pop("time_ns")
            yield json.dumps(event | {"ts": (time_ns - origin_time_ns) / 1000})
    for counter in counters:
        pid = ids.get((counter.rank, counter.pid), counter.pid)
        for time_ns, value in zip(counter.times_ns.tolist(), counter.values.tolist(), strict=True):
            event = {"ph": "C", "name": counter.name, "pid": pid, "tid": 0, "args": {"value": value}}
            yield json.dumps(event | {"ts": (time_ns - origin_ns) / 1000})
