"""Reads the files of an events folder, one process at a time; of damaged files, the usable part.

Damaged and truncated files are read as far as they go.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dlio_torch.iotrace.events.call_names import printable
from dlio_torch.iotrace.events.posix_accounts import HEADER_BYTES, ProcessIo, UnrecordedProcess, parse_header
from dlio_torch.iotrace.events.span_format import HEADER, MAGIC, RECORD, VERSION

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
    """A process that recorded events.

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


class Unreadable(Exception):
    """Raised if an event file cannot be read; the message gives the reason."""


@dataclass
class EventFile:
    """Content of one event file of a process.

    Args:
        layer: of its events, ``app`` or ``posix``.
        process: who wrote it.
        records: its events, writable.
        names: strings by the number that records use, None where one is missing.
        account: what the process moved in all, where its calls were recorded.
        children: processes that it waited for and that were not recorded.
        parent_pid: the process that started it, -1 where unknown.
        notes: what was left out, by file.
    """

    layer: str
    process: Process
    records: np.ndarray[Any, Any]
    names: list[str | None]
    account: ProcessIo | None
    children: list[UnrecordedProcess]
    parent_pid: int
    notes: list[tuple[Path, str]]


ENDED_EARLY = "later spans of this process are missing: the disk, or the recording limit, had no room for them"
"""Note on a process that could not record all its spans."""
LAYERS = {".spans": "app", ".posix": "posix"}
"""Layer of the events in a file, by the file's suffix."""


def read_part(path: Path) -> EventFile:
    """Reads one event file and its table of names.

    Raises:
        Unreadable: it gives nothing.
        OSError: it cannot be read.
    """
    names_path = path.with_suffix(".names" if path.suffix == ".spans" else ".posix.names")
    table = _read_names(names_path)
    records, more, account = _read_records(path, table.names)
    notes = [(names_path, note) for note in table.notes] + [(path, note) for note in more]
    children, parent_pid = table.children, table.parent_pid
    return EventFile(LAYERS[path.suffix], table.process, records, table.names, account, children, parent_pid, notes)


@dataclass
class _Names:
    """A table of names: strings by id (None where a line is missing), and facts about the process."""

    process: Process
    parent_pid: int
    names: list[str | None]
    children: list[UnrecordedProcess]
    notes: list[str]


def _read_names(path: Path) -> _Names:
    try:
        # What is left of a mapped file is filled with zeros.
        lines = path.read_bytes().rstrip(b"\0").split(b"\n")
    except FileNotFoundError as error:
        raise Unreadable("the table of names is missing") from error
    notes: list[str] = []
    if lines.pop() != b"":
        notes.append("the last line of the table of names is cut off")
    head: dict[str, Any] | None = None
    strings: dict[int, str] = {}
    threads: dict[int, str] = {}
    children: list[dict[str, Any]] = []
    parent_pid = -1
    damaged = 0
    for line in lines:
        try:
            entry = json.loads(line)
            if "id" in entry:
                strings[int(entry["id"])] = printable(str(entry["name"]))
            elif "tid" in entry:
                threads[int(entry["tid"])] = printable(str(entry["thread"]))
            elif "child" in entry:
                children.append(unrecorded_of(entry))
            elif head is None:
                parent_pid = int(entry.get("parent_pid", -1))
                head_values = {key: kind(entry[key]) for key, kind in _HEAD.items()}
                if not all(-_TIMES < value < _TIMES for value in head_values.values() if isinstance(value, int)):
                    raise ValueError("the table of names contains a number that is too large")
                if not all(-_IDS <= head_values[key] < _IDS for key in ("rank", "pid")):
                    raise ValueError("the table of names contains no process")
                method = entry["start_method"]
                head_values["start_method"] = None if method is None else printable(str(method))
                head = head_values
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            damaged += 1
    if head is None:
        raise Unreadable("the table of names does not say to which process it belongs")
    if damaged:
        notes.append(f"{damaged} lines of the table of names are damaged")
    if strings and max(strings) > len(strings) + damaged:
        notes.append(f"{max(strings) - len(strings)} names are missing")
    # Ids count from 1 without gaps; an absurd id in a damaged line must not make an absurd list.
    names = [strings.get(number) for number in range(1 + len(strings) + damaged)]
    process = Process(**head, threads=threads)
    unrecorded = [UnrecordedProcess(rank=process.rank, parent_pid=process.pid, **child) for child in children]
    return _Names(process, parent_pid, names, unrecorded, notes)


def unrecorded_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of :class:`UnrecordedProcess` from a line about a process that was not recorded.

    Raises:
        KeyError, ValueError, TypeError: it is damaged.
    """
    numbers = {"pid": entry["child"], "read_bytes": entry["read"], "write_bytes": entry["written"]}
    numbers |= {f"{name}_ns": entry.get(name, 0) for name in ("began", "ended")}
    return {"name": printable(str(entry["name"]))} | {name: int(value) for name, value in numbers.items()}


def _text(value: Any) -> str:
    return printable(str(value))


_HEAD: dict[str, Callable[[Any], Any]] = {
    "rank": int, "pid": int, "role": _text, "host": _text, "clock": _text, "monotonic_ns": int, "time_ns": int,
}  # fmt: skip
_IDS, _TIMES = 1 << 31, 1 << 61  # of the columns of the table; sums of times stay in 64 bits


def _read_records(path: Path, names: Sequence[str | None]) -> tuple[np.ndarray[Any, Any], list[str], ProcessIo | None]:
    """Reads the usable records (a writable array), notes on omissions, and the account of the process."""
    size = path.stat().st_size
    account: ProcessIo | None = None
    notes: list[str] = []
    with open(path, "rb") as file:
        if path.suffix == ".posix":
            try:
                account, header_bytes, notes = parse_header(file.read(HEADER_BYTES))
            except ValueError as error:
                raise Unreadable(str(error)) from error
        else:
            header_bytes, ended_early = _check_span_header(file.read(HEADER.size))
            if ended_early:
                notes.append(ENDED_EARLY)
        file.seek(header_bytes)
        records = np.fromfile(file, dtype=_DTYPE)
    if size > header_bytes and (size - header_bytes) % RECORD.size:
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
    return records[good], notes, account


def _check_span_header(data: bytes) -> tuple[int, bool]:
    """Checks the header of a span file; returns its size, and whether the process failed to record all spans."""
    if len(data) < HEADER.size:
        raise Unreadable(f"the file ends within its header, after {len(data)} bytes")
    magic, version, record_size, *_, ended_early = HEADER.unpack(data)
    if magic == bytes(len(MAGIC)):
        raise Unreadable("the header is empty: the process ended while it created the file")
    if magic != MAGIC:
        raise Unreadable("the file is not a span file")
    if version != VERSION or record_size != RECORD.size:
        raise Unreadable(f"the file has format version {version}, but this program reads version {VERSION}")
    return HEADER.size, bool(ended_early)
