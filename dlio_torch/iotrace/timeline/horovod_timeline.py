"""Reads Horovod's timeline, also that of a killed run, and converts its clock.

Rank 0 writes it in the Trace Event Format with a process for each tensor.  ``ts`` counts microseconds of
CLOCK_MONOTONIC from Horovod's initialisation, and the first record holds the wall-clock time of that moment
(``timeline.cc`` of Horovod 0.28.1).  So a time is exact within the run to a microsecond, and its place on the run's
clock as far as the wall clock was not adjusted between Horovod's initialisation and the first span of the run.

For each tensor: ``NEGOTIATE_ALLREDUCE`` from the first rank that has it ready to the last, with a mark for each; then
``ALLREDUCE``, and inside it the wait in Horovod's queue, the copies into and out of the fusion buffer, and the
exchange itself (``GLOO_ALLREDUCE``, ``MPI_ALLREDUCE``, ``NCCL_ALLREDUCE``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlio_torch.errors import DataError
from dlio_torch.iotrace.timeline.kineto_trace import THREADS

MAX_INTERVALS = 1_000_000
PID = THREADS * 1024 - 1
"""Process id of Horovod's tracks in the merged trace; no rank's process and no device has it."""
_START = "start_time_since_epoch_in_micros"


@dataclass(frozen=True)
class Interval:
    """An operation of Horovod on a tensor, with its begin and end.

    Attributes:
        tensor: name of the tensor.
        op: what was done, in Horovod's words; ``rank <r> ready`` for a mark.
        start_ns: wall-clock time.
        end_ns: wall-clock time; of a mark that of its start.
        about: what Horovod tells of the tensor, type and shape.
    """

    tensor: str
    op: str
    start_ns: int
    end_ns: int
    about: dict[str, Any]


@dataclass(frozen=True)
class Timeline:
    """Horovod's timeline, complete or cut off.

    Attributes:
        intervals: in the order in which they ended.
        unfinished: intervals that have no end in the file; they are left out.
        cut: whether the file ends in the middle, as a killed run leaves it.
    """

    intervals: tuple[Interval, ...]
    unfinished: int
    cut: bool


def read_timeline(path: Path) -> Timeline:
    """Reads a timeline.

    Raises:
        DataError: the file cannot be read, or does not begin as a timeline does.
    """
    try:
        records, cut = _records(path.read_text(encoding="utf-8", errors="replace"))
        start_us = int(next(record["args"][_START] for record in records if _START in record.get("args", ())))
    except OSError as error:
        raise DataError(
            (f"the Horovod timeline {path} cannot be read: {error.strerror}"),
            hint=("repeat the run: it ended before it wrote the timeline"),
        ) from error
    except (StopIteration, TypeError, ValueError):
        raise DataError(f"{path} is not a timeline of Horovod", hint="remove the file or repeat the run") from None
    tensors: dict[int, str] = {}
    running: dict[int, list[dict[str, Any]]] = {}
    intervals: list[Interval] = []

    def add(tensor: int, op: str, start_us_: int, end_us: int, about: dict[str, Any]) -> None:
        start, end = (start_us + start_us_) * 1000, (start_us + end_us) * 1000
        intervals.append(Interval(tensors.get(tensor, str(tensor)), op, start, end, about))

    try:
        for record in records:
            kind, tensor = record.get("ph"), record.get("pid", -1)
            if kind == "M" and record.get("name") == "process_name" and "name" in record["args"]:
                tensors[tensor] = str(record["args"]["name"])
            elif kind == "B":
                running.setdefault(tensor, []).append(record)
            elif kind == "X":
                add(tensor, f"rank {record['name']} ready", record["ts"], record["ts"] + record["dur"], {})
            elif kind == "E" and running.get(tensor):  # Horovod ends a barrier twice
                begun = running[tensor].pop()
                add(tensor, begun["name"], begun["ts"], record["ts"], record.get("args", {}))
    except (KeyError, TypeError) as error:
        raise DataError(
            f"{path} is damaged: a record lacks {error}", hint=("remove the file or repeat the run")
        ) from None
    return Timeline(tuple(intervals), sum(map(len, running.values())), cut)


def _records(text: str) -> tuple[list[dict[str, Any]], bool]:
    """Records of a JSON array up to its end or to a damaged place, and whether the end is missing."""
    try:
        whole = json.loads(text)
        return [record for record in whole if isinstance(record, dict)], False
    except ValueError:
        pass
    decode, records, position = json.JSONDecoder().raw_decode, [], text.find("[") + 1
    while position and (position := _beyond(text, position)) < len(text):
        try:
            record, position = decode(text, position)
        except ValueError:
            break
        if not isinstance(record, dict):
            break
        records.append(record)
    return records, True


def _beyond(text: str, position: int) -> int:
    """Position of the next record, after commas and white space."""
    while position < len(text) and text[position] in ", \t\r\n":
        position += 1
    return position


def timeline_events(timeline: Timeline, most: int = MAX_INTERVALS) -> Iterator[dict[str, Any]]:
    """The intervals as events for a merged trace, each with its wall time as ``time_ns``; a track per tensor.

    Args:
        timeline: what was read.
        most: of more intervals only the first ones are drawn.
    """
    tracks: dict[str, int] = {}
    kept = sorted(timeline.intervals[:most], key=lambda interval: interval.start_ns)
    if not kept:
        return
    mark = {"ph": "M", "pid": PID, "ts": 0, "time_ns": kept[0].start_ns}
    yield mark | {"tid": 0, "name": "process_name", "args": {"name": "Horovod on rank 0"}}
    for interval in kept:
        if interval.tensor not in tracks:
            tracks[interval.tensor] = len(tracks) + 1
            yield mark | {"tid": tracks[interval.tensor], "name": "thread_name", "args": {"name": interval.tensor}}
        yield {
            "ph": "X",
            "cat": "horovod",
            "name": interval.op,
            "pid": PID,
            "tid": tracks[interval.tensor],
            "dur": (interval.end_ns - interval.start_ns) / 1000,
            "args": interval.about,
            "time_ns": interval.start_ns,
        }
