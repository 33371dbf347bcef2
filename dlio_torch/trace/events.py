"""Reads what :mod:`dlio_torch.trace.spans` wrote: one table of events for all processes of a run.

The columns are those of every event table of the package, whatever the source::

    rank pid tid          int32, the process and thread
    layer op file         categorical; layer is "app" for spans, file may be missing (NaN)
    offset bytes          int64, -1: not known
    start_ns end_ns       int64, monotonic clock of the reference process
    step                  int32, -1: none

Damaged and truncated files are read as far as they go; what was left out is named in ``skipped``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dlio_torch.trace.spans import HEADER, MAGIC, RECORD, VERSION

COLUMNS = ("rank", "pid", "tid", "layer", "op", "file", "offset", "bytes", "start_ns", "end_ns", "step")

_DTYPE = np.dtype(
    [
        ("start_ns", "<i8"),
        ("end_ns", "<i8"),
        ("offset", "<i8"),
        ("bytes", "<i8"),
        ("step", "<i4"),
        ("file", "<u4"),
        ("tid", "<u4"),
        ("op", "<u4"),
    ]
)
assert _DTYPE.itemsize == RECORD.size


@dataclass(frozen=True)
class Process:
    """One process that recorded events.

    Args:
        rank: its rank.
        pid: its process id.
        role: ``trainer``, ``loader worker <n>`` or another name.
        start_method: ``fork``, ``spawn``, ``forkserver``, or None where it is no child of multiprocessing.
        host: name of its machine.
        clock: names its monotonic clock; equal names, same clock.
        monotonic_ns: one reading of that clock...
        time_ns: ...and the wall-clock time (since 1970) at that moment.
        threads: names by thread id.
    """

    rank: int
    pid: int
    role: str
    start_method: str | None
    host: str
    clock: str
    monotonic_ns: int
    time_ns: int
    threads: dict[int, str]


@dataclass(frozen=True)
class Skipped:
    """Something that could not be read, and why."""

    path: Path
    reason: str


@dataclass(frozen=True)
class EventTable:
    """All events of a run.

    Args:
        frame: one row per event, sorted by ``start_ns``; columns as in the module's text.
        processes: who recorded, by rank, trainer first.
        skipped: what could not be read.
        anchor_monotonic_ns: one reading of the clock of ``start_ns`` (0 without processes)...
        anchor_time_ns: ...and the wall-clock time (since 1970) at that moment.
    """

    frame: pd.DataFrame
    processes: tuple[Process, ...]
    skipped: tuple[Skipped, ...]
    anchor_monotonic_ns: int = 0
    anchor_time_ns: int = 0


def read_events(directory: Path | str, rank: int | None = None) -> EventTable:
    """All spans in an events folder, those of living processes included.

    Times of machines with other clocks are moved to the clock of the first process, through both
    anchors; they are then as exact as the machines' wall clocks.

    Args:
        directory: the events folder; a missing one gives an empty table.
        rank: this rank only.
    """
    pattern = "rank*.spans" if rank is None else f"rank{rank}-*.spans"
    parts: list[tuple[Process, np.ndarray[Any, Any], list[str | None]]] = []
    skipped: list[Skipped] = []
    for path in sorted(Path(directory).glob(pattern)):
        try:
            process, names, notes = _read_names(path.with_suffix(".names"))
            records, more = _read_records(path, names)
        except (_Unreadable, OSError) as error:
            skipped.append(Skipped(path, str(error)))
            continue
        skipped += [Skipped(path.with_suffix(".names"), note) for note in notes]
        skipped += [Skipped(path, note) for note in more]
        parts.append((process, records, names))
    parts.sort(key=lambda part: _process_order(part[0]))
    processes = [part[0] for part in parts]
    if not parts:
        return EventTable(_frame([]), (), tuple(skipped))
    reference = processes[0]
    first_of_clock: dict[str, Process] = {}
    for process, records, _names in parts:
        clock = first_of_clock.setdefault(process.clock, process)
        shift = (clock.time_ns - clock.monotonic_ns) - (reference.time_ns - reference.monotonic_ns)
        if clock.clock != reference.clock:
            records["start_ns"] += shift
            records["end_ns"] += shift
    return EventTable(_frame(parts), _merged(processes), tuple(skipped), reference.monotonic_ns, reference.time_ns)


class _Unreadable(Exception):
    """A file gives nothing; the message says why."""


def _read_names(path: Path) -> tuple[Process, list[str | None], list[str]]:
    """The process, the strings by id (None where a line is missing), and notes on what was left out."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError as error:
        raise _Unreadable("its table of names is missing") from error
    notes: list[str] = []
    if lines.pop() != b"":
        notes.append("the last line is cut off")
    head: dict[str, Any] | None = None
    strings: dict[int, str] = {}
    threads: dict[int, str] = {}
    damaged = 0
    for line in lines:
        try:
            entry = json.loads(line)
            if "id" in entry:
                strings[int(entry["id"])] = str(entry["name"])
            elif "tid" in entry:
                threads[int(entry["tid"])] = str(entry["thread"])
            elif head is None:
                head = {key: entry[key] for key in _HEAD}
        except (ValueError, KeyError, TypeError):
            damaged += 1
    if head is None:
        raise _Unreadable("its table of names does not say which process it belongs to")
    if damaged:
        notes.append(f"{damaged} lines are damaged")
    if strings and max(strings) > len(strings) + damaged:
        notes.append(f"{max(strings) - len(strings)} names are missing")
    # Ids count from 1 without gaps; an absurd id in a damaged line must not make an absurd list.
    names = [strings.get(number) for number in range(1 + len(strings) + damaged)]
    return Process(**head, threads=threads), names, notes


_HEAD = ("rank", "pid", "role", "start_method", "host", "clock", "monotonic_ns", "time_ns")


def _read_records(path: Path, names: Sequence[str | None]) -> tuple[np.ndarray[Any, Any], list[str]]:
    """The usable records, writable, with notes on what was left out."""
    size = path.stat().st_size
    if size < HEADER.size:
        raise _Unreadable(f"it ends within its header, after {size} bytes")
    with open(path, "rb") as file:
        magic, version, record_size = HEADER.unpack(file.read(HEADER.size))[:3]
        if magic == bytes(len(MAGIC)):
            raise _Unreadable("its header is empty: the process ended while it made the file")
        if magic != MAGIC:
            raise _Unreadable("it is no span file")
        if version != VERSION or record_size != RECORD.size:
            raise _Unreadable(f"its version is {version}, this program reads {VERSION}")
        records = np.fromfile(file, dtype=_DTYPE)
    notes: list[str] = []
    if (size - HEADER.size) % RECORD.size:
        notes.append("the last record is cut off")
    written = records["op"] != 0
    torn = int(np.count_nonzero(~written & (records["start_ns"] != 0)))
    if torn:
        notes.append(f"{torn} records were cut short when the process ended")
    records = records[written]
    known = np.array([name is not None for name in names])
    ops, files = records["op"], records["file"]
    good = (records["start_ns"] > 0) & (records["end_ns"] >= records["start_ns"])
    good &= (ops < len(names)) & (files < len(names))
    good[good] &= known[ops[good]] & (known[files[good]] | (files[good] == 0))
    if not good.all():
        notes.append(f"{int(np.count_nonzero(~good))} records are damaged")
    return records[good], notes


def _frame(parts: Sequence[tuple[Process, np.ndarray[Any, Any], list[str | None]]]) -> pd.DataFrame:
    """The table; strings become codes into the categories of all processes, never one object per row."""
    total = sum(len(records) for _, records, _ in parts)
    columns = {name: np.empty(total, np.int64) for name in ("offset", "bytes", "start_ns", "end_ns")}
    columns |= {name: np.empty(total, np.int32) for name in ("rank", "pid", "tid", "step", "op", "file")}
    op_ids: dict[str, int] = {}
    file_ids: dict[str, int] = {}
    at = 0
    for process, records, names in parts:
        rows = slice(at, at + len(records))
        at += len(records)
        columns["rank"][rows] = process.rank
        columns["pid"][rows] = process.pid
        for name in ("tid", "step", "offset", "bytes", "start_ns", "end_ns"):
            columns[name][rows] = records[name]
        columns["op"][rows] = _recode(records["op"], names, op_ids)
        columns["file"][rows] = _recode(records["file"], names, file_ids)
    order = np.argsort(columns["start_ns"], kind="stable")
    columns = {name: values[order] for name, values in columns.items()}
    categorical = {
        "layer": pd.Categorical.from_codes(np.zeros(total, np.int8), categories=pd.Index(["app"])),
        "op": pd.Categorical.from_codes(columns["op"], categories=pd.Index(list(op_ids), dtype=object)),
        "file": pd.Categorical.from_codes(columns["file"], categories=pd.Index(list(file_ids), dtype=object)),
    }
    frame: pd.DataFrame = pd.DataFrame({name: categorical.get(name, columns.get(name)) for name in COLUMNS}, copy=False)
    return frame


def _recode(
    local: np.ndarray[Any, Any], names: Sequence[str | None], ids: dict[str, int]
) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Codes of all processes for the ids of one; -1 for none."""
    codes = np.full(len(names), -1, np.int32)
    for number in np.unique(local).tolist():
        name = names[number]
        if name is not None:
            codes[number] = ids.setdefault(name, len(ids))
    found: np.ndarray[Any, np.dtype[np.int32]] = codes[local]
    return found


def _process_order(process: Process) -> tuple[int, bool, list[int | str], int]:
    words = [int(word) if word.isdigit() else word for word in re.split(r"(\d+)", process.role)]
    return process.rank, process.role.startswith("loader worker"), words, process.pid


def _merged(processes: Sequence[Process]) -> tuple[Process, ...]:
    """One entry per process where one has several files."""
    merged: dict[tuple[int, int], Process] = {}
    for process in processes:
        key = (process.rank, process.pid)
        first = merged.get(key)
        merged[key] = process if first is None else replace(first, threads=first.threads | process.threads)
    return tuple(merged.values())
