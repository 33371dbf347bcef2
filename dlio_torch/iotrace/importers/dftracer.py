"""Reads DFTracer traces (``.pfw``, ``.pfw.gz``) of all versions: calls and application events.

A trace is JSON, one event a line, one file a process; it is read line by line.  Calls of the categories POSIX,
STDIO and MPIIO go to these layers, all other events to layer ``app``, under the name of our own span where the
meaning is equal (:func:`dlio_torch.iotrace.importers.dftracer_lines.span_name`) and else under their own.

DFTracer writes no offset for ``read`` and ``write``, only for ``pread`` and ``pwrite``; its interception has no
``readv`` and no ``preadv``, and calls that the C library makes inside ``fread`` are not seen.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlio_torch.errors import DataError
from dlio_torch.iotrace.events import call_names
from dlio_torch.iotrace.events.event_files import Process
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.iotrace.importers.dftracer_lines import (
    COMPLETE,
    METADATA,
    has_failed,
    nanoseconds,
    number,
    place,
    touched,
)
from dlio_torch.iotrace.importers.event_rows import APP, TableBuilder, imported_process, in_range, small
from dlio_torch.iotrace.importers.text_logs import lines

_OF = re.compile(r"-(?P<rank>\d+)-of-(?P<ranks>\d+)\D*$")
_RANK = re.compile(r"rank\D{0,3}(?P<rank>\d+)", re.IGNORECASE)
_INTERCEPTED = frozenset(
    (
        call_names.OPEN,
        call_names.CLOSE,
        call_names.READ,
        call_names.WRITE,
        call_names.SEEK,
        call_names.SYNC,
        call_names.META,
    )
)
_DECODE = json.JSONDecoder(strict=False).decode


def read_dftracer(path: Path, files: Sequence[Path]) -> Recording:
    """Reads the recording of one program from its trace files.

    Args:
        path: what the user named.
        files: the traces of its processes.

    Raises:
        DataError: a file cannot be read, or there is no event in any of them.
    """
    reader = _DftracerReader()
    for file in files:
        reader.read(file)
    if not len(reader.builder):
        raise DataError(
            f"{path} contains no DFTracer event" + (f" ({'; '.join(reader.notes)})" if reader.notes else ""),
            hint="let the traced program end, or flush its trace, before you read it",
        )
    return reader.recording(path)


@dataclass
class _TracedProcess:
    """A process of the trace; processes on different hosts may have the same id."""

    pid: int
    host: str
    parent: int = -1
    rank: int | None = None
    files: dict[str, str] = field(default_factory=dict)


class _DftracerReader:
    def __init__(self) -> None:
        self.builder = TableBuilder()
        self.notes: list[str] = []
        self.left_out: Counter[str] = Counter()
        self.processes: dict[tuple[str, int], int] = {}
        self.traced: list[_TracedProcess] = []
        self.names: dict[str, dict[str, str]] = {"FH": {}, "HH": {}, "SH": {}}
        self.ranks: int | None = None
        self.facts: dict[str, Any] = {}
        self.sized = self.unsized = False
        self._ops: dict[tuple[str, str], tuple[int, int, str, str]] = {}
        self._seen: set[str] = set()

    def read(self, path: Path) -> None:
        """Reads one file and counts its damaged lines."""
        of = _OF.search(path.name)
        rank = None if of is None else int(of["rank"])
        if of is not None:
            self.ranks = max(self.ranks or 0, int(of["ranks"]))
        damaged = 0
        for line in lines(path, self.notes):
            text = line.strip().rstrip(b",").strip()
            if text in (b"", b"[", b"]"):
                continue
            try:
                event = _DECODE(text.removeprefix(b"[").decode("utf-8", "surrogateescape"))
                self._event(event, rank)
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
                damaged += 1
        if damaged:
            self.notes.append(f"{path.name}: {damaged} damaged lines are ignored")

    def _event(self, event: dict[str, Any], rank: int | None) -> None:
        phase, name, args = event["ph"], event["name"], event.get("args") or {}
        process = self._process(int(event["pid"]), str(args.get("hhash", args.get("hostname", ""))), rank)
        if phase in METADATA:
            self._metadata(self.traced[process], name, args)
            return
        if phase not in COMPLETE or "dft_cnt" in args:
            self.left_out["aggregated" if "dft_cnt" in args else "counter"] += 1
            return
        category = event["cat"]
        if category == "dftracer":
            self._about(self.traced[process], name, args)
        start, duration = int(event["ts"]), int(event["dur"])
        unit = nanoseconds(start)
        start, duration = start * unit, duration * unit
        layer, op, op_name, kind = self._op(category, name)
        if kind == call_names.OPEN and layer != APP and has_failed(args):
            op = self.builder.ops.number(call_names.FAILED_OPEN)
        if layer == APP:
            offset = size = -1
        else:
            offset, size = touched(op_name, kind, args)
            if kind in (call_names.READ, call_names.WRITE):
                self.sized, self.unsized = self.sized or "ret" in args, self.unsized or "ret" not in args
        step = number(args, "step") if layer == APP else -1
        if duration < 0 or not in_range(start, duration, offset, size):
            raise ValueError("out of range")
        tid, file = small(int(event["tid"])), self._file(process, args)
        self.builder.row(start, start + duration, offset, size, process, tid, small(step), file, op, layer)

    def _process(self, pid: int, host: str, rank: int | None) -> int:
        key = (host, pid)
        known = self.processes.get(key)
        if known is None:
            # An event may lack its host (old versions write none without arguments): it is of the process of this id.
            same = ((host_of_known, i) for (host_of_known, other), i in self.processes.items() if other == pid)
            known = next((i for host_of_known, i in same if not host or not host_of_known), None)
            if known is None:
                known = len(self.traced)
                self.traced.append(_TracedProcess(small(pid), host, rank=rank))
            self.processes[key] = known
        return known

    def _op(self, category: str, name: str) -> tuple[int, int, str, str]:
        """Layer, number, normal name and class of an event's call."""
        known = self._ops.get((category, name))
        if known is None:
            layer, op = place(category, name)
            kind = call_names.class_of(op)
            known = (layer, self.builder.ops.number(op), op, kind)
            self._ops[category, name] = known
            if layer != APP:
                self._seen.add(kind)
        return known

    def _file(self, process: int, args: dict[str, Any]) -> int:
        """Number of a file, by its name or its hash; the trace may give the name of a hash later."""
        if "fhash" in args:
            return self.builder.files.number(f"{process}/{args['fhash']}")
        name = args.get("fname") or args.get("filename")
        return -1 if not name else self.builder.files.number(str(name))

    def _metadata(self, process: _TracedProcess, name: str, args: dict[str, Any]) -> None:
        value, label = args.get("value"), str(args.get("name", ""))
        if name == "FH":
            process.files[str(value)] = label
        if name in self.names:
            self.names[name][str(value)] = label
        elif label == "rank" and str(value).isdigit():
            process.rank = int(str(value))
        elif name == "process_name":
            match = _RANK.search(f"{label} {value}")
            process.rank = process.rank if match is None else int(match["rank"])

    def _about(self, process: _TracedProcess, name: str, args: dict[str, Any]) -> None:
        if name == "start":
            process.parent = number(args, "ppid")
            self.facts.setdefault("version", args.get("version"))
            for key, hashed in (("command", "cmd_hash"), ("program", "exec_hash"), ("cwd", "cwd")):
                self.facts.setdefault(key, args.get(hashed))

    def recording(self, path: Path) -> Recording:
        """The recording, once all files are read."""
        ranks_known = self._rank()
        hosts = [self.names["HH"].get(process.host, process.host) for process in self.traced]
        processes: list[Process] = [
            imported_process(
                process.rank if process.rank is not None else -1, process.pid, host=host, role=f"process {process.pid}"
            )
            for process, host in zip(self.traced, hosts, strict=True)
        ]
        file_names: dict[str, str] = {}
        for token in self.builder.files.numbers:
            process, _, hashed = token.partition("/")
            if process.isdigit() and int(process) < len(self.traced) and not token.startswith("/"):
                known = self.traced[int(process)].files.get(hashed, self.names["FH"].get(hashed))
                file_names[token] = known if known is not None else f"<hash {hashed}>"
        events = self.builder.table(processes, file_names=file_names)
        span_ns = int(events.frame["end_ns"].max() - events.frame["start_ns"].min())
        strings = {key: self.names["SH"].get(str(value), value) for key, value in self.facts.items()}
        if isinstance(strings.get("command"), str):
            strings["command"] = strings["command"].replace(";", " ")
        has_io = bool((events.frame["layer"] != "app").any())
        return Recording(
            path=path,
            kind="dftracer",
            events=events,
            sees=(_INTERCEPTED | self._seen) if has_io else frozenset(),
            world_size=self.ranks or len({process.rank for process in processes if process.rank >= 0}) or None,
            runtime_s=span_ns / 1e9,
            notes=(*self.notes, *self._remarks(has_io, ranks_known)),
            facts={**strings, "hosts": sorted(set(hosts))},
        )

    def _rank(self) -> bool:
        """Assigns ranks to processes; returns False if the trace contains no ranks."""
        known = any(process.rank is not None for process in self.traced)
        by_id = {(process.host, process.pid): process for process in self.traced}
        top = [process for process in self.traced if (process.host, process.parent) not in by_id]
        if not known:
            for rank, process in enumerate(sorted(top, key=lambda process: (process.host, process.pid))):
                process.rank = rank
        for _ in self.traced:
            waiting = [
                process for process in self.traced if process.rank is None and (process.host, process.parent) in by_id
            ]
            for process in waiting:
                process.rank = by_id[process.host, process.parent].rank
            if not waiting:
                break
        return known

    def _remarks(self, has_io: bool, ranks_known: bool) -> list[str]:
        notes = []
        if self.left_out["aggregated"]:
            notes.append(
                f"{self.left_out['aggregated']} aggregated records (DFTRACER_ENABLE_AGGREGATION) are ignored, "
                "because each is a sum over many calls"
            )
        if self.left_out["counter"]:
            notes.append(f"{self.left_out['counter']} counter records are ignored, because they are not calls")
        if not has_io:
            notes.append("the trace contains application events only, no I/O call")
        elif self.unsized:
            which = "some" if self.sized else "all"
            notes.append(
                f"{which} reads and writes lack their sizes; set DFTRACER_INC_METADATA=1 in the traced program to "
                "record them"
            )
        if not ranks_known and len(self.traced) > 1:
            notes.append("the trace contains no ranks: processes are numbered in the order of their ids")
        if has_io:
            notes.append("DFTracer does not record readv, preadv, and the offsets of read and write")
        return notes
