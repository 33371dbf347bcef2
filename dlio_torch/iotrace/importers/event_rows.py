"""Builds the event table of an imported log from rows or blocks.

Rows take 51 bytes each in blocks of NumPy records, so that a log of tens of millions of events is never a list of
Python objects.  Rows refer to files and processes by number.  Names and ranks that a log gives later are filled in at
the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dlio_torch.iotrace.events.call_names import printable
from dlio_torch.iotrace.events.event_files import Process
from dlio_torch.iotrace.events.event_table import COLUMNS, EventTable, Skipped

LAYERS = ("app", "posix", "stdio", "mpiio")
APP, POSIX, STDIO, MPIIO = range(4)

ROW = np.dtype(
    [
        ("start_ns", "<i8"),
        ("end_ns", "<i8"),
        ("offset", "<i8"),
        ("bytes", "<i8"),
        ("process", "<i4"),
        ("tid", "<i4"),
        ("step", "<i4"),
        ("file", "<i4"),
        ("op", "<i2"),
        ("layer", "i1"),
    ]
)
_CHUNK = 1 << 16

Rows = npt.NDArray[Any]


class NumberedNames:
    """Numbers strings in the order in which they first occur."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        """Number of a name; a new name gets a new number."""
        return self.numbers.setdefault(name, len(self.numbers))


class TableBuilder:
    """Collects the events of a log and builds their table.

    ``ops`` and ``files`` number the names that rows refer to; -1 stands for no file.
    """

    def __init__(self) -> None:
        self.ops = NumberedNames()
        self.files = NumberedNames()
        self._blocks: list[Rows] = []
        self._rows: list[tuple[int, ...]] = []

    def row(
        self,
        start_ns: int,
        end_ns: int,
        offset: int,
        bytes: int,
        process: int,
        tid: int,
        step: int,
        file: int,
        op: int,
        layer: int,
    ) -> None:
        """Adds one event; the arguments are the fields of ``ROW``."""
        self._rows.append((start_ns, end_ns, offset, bytes, process, tid, step, file, op, layer))
        if len(self._rows) >= _CHUNK:
            self._pack()

    def block(self, rows: Rows) -> None:
        """Adds events as an array of ``ROW``."""
        self._blocks.append(rows)

    def __len__(self) -> int:
        return len(self._rows) + sum(map(len, self._blocks))

    def table(
        self,
        processes: Sequence[Process],
        *,
        origin_ns: int | None = None,
        anchor_time_ns: int = 0,
        file_names: Mapping[str, str] | None = None,
        skipped: Sequence[Skipped] = (),
    ) -> EventTable:
        """The event table, sorted by start time; the builder is empty afterwards.

        Args:
            processes: the process behind each number that rows refer to.
            origin_ns: time in the rows that becomes 0; None: the first start.
            anchor_time_ns: wall-clock time of the origin where the rows are not in wall-clock time.
            file_names: names to put in the place of those that the rows refer to.
            skipped: what could not be read.
        """
        self._pack()
        blocks, self._blocks = self._blocks, []
        columns = {name: _column(blocks, name) for name in ROW.names or ()}
        del blocks
        start = columns["start_ns"]
        order = np.argsort(start, kind="stable")
        columns = {name: columns.pop(name)[order] for name in list(columns)}
        if origin_ns is None:
            origin_ns = anchor_time_ns = int(columns["start_ns"][0]) if len(order) else 0
        del start, order
        columns["start_ns"] -= origin_ns
        columns["end_ns"] -= origin_ns
        of = columns.pop("process")
        columns["rank"] = np.array([process.rank for process in processes] or [-1], np.int32)[of]
        columns["pid"] = np.array([process.pid for process in processes] or [-1], np.int32)[of]
        del of
        given = file_names or {}
        categorical = {
            "layer": _categorical(columns.pop("layer"), LAYERS),
            "op": _categorical(columns.pop("op"), list(self.ops.numbers)),
            "file": _categorical(columns.pop("file"), [given.get(name, name) for name in self.files.numbers]),
        }
        frame = pd.DataFrame({name: categorical.get(name, columns.get(name)) for name in COLUMNS}, copy=False)
        return EventTable(frame, _unique(processes), tuple(skipped), 0, anchor_time_ns)

    def _pack(self) -> None:
        if self._rows:
            self._blocks.append(np.array(self._rows, dtype=ROW))
            self._rows = []


def imported_process(rank: int, pid: int = -1, *, host: str = "", role: str = "", time_ns: int = 0) -> Process:
    """A process of another tool's log, with its clock anchored at 0."""
    return Process(
        rank=rank,
        pid=pid,
        role=role or f"rank {rank}",
        start_method=None,
        host=host,
        clock="log",
        monotonic_ns=0,
        time_ns=time_ns,
        threads={},
    )


def in_range(*values: int) -> bool:
    """Whether numbers of a log fit the table (a damaged log can contain any number)."""
    return all(-(1 << 62) < value < (1 << 62) for value in values)


def small(value: int) -> int:
    """A process or thread id as an int32: larger ids (hashes) keep their low bits."""
    return value if -1 <= value < (1 << 31) else value & 0x7FFFFFFF


def _column(blocks: Sequence[Rows], name: str) -> npt.NDArray[Any]:
    if not blocks:
        return np.zeros(0, ROW[name])
    return np.concatenate([block[name] for block in blocks])


def _categorical(codes: npt.NDArray[Any], names: Sequence[str]) -> pd.Categorical:
    """Categorical column of names; equal names become one category."""
    numbers = NumberedNames()
    lookup = np.full(len(names) + 1, -1, np.int32)
    for code in np.unique(codes).tolist():
        if code >= 0:
            lookup[code] = numbers.number(printable(names[code]))
    return pd.Categorical.from_codes(lookup[codes], categories=pd.Index(list(numbers.numbers), dtype=object))


def _unique(processes: Sequence[Process]) -> tuple[Process, ...]:
    known = {(process.rank, process.pid): process for process in reversed(processes)}
    return tuple(known[key] for key in sorted(known))
