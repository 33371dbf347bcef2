"""Reads an events folder into one table of the events of all processes.

``rank*.spans`` come from :mod:`dlio_torch.iotrace.recorder.spans`, ``rank*.posix`` from the preloaded library of
:mod:`dlio_torch.iotrace.recorder`; what the columns say of I/O calls is written in
:mod:`dlio_torch.iotrace.events.recording`.

The columns are those of every event table of the package, whatever the source::

    rank pid tid          int32, the process and thread
    layer op file         categorical; layer is "app" for spans, "posix" for
                          calls; file may be missing (NaN)
    offset bytes          int64, -1: not known
    start_ns end_ns       int64, monotonic clock of the reference process
    step                  int32, -1: none

Damaged and truncated files are read as far as they go; what was left out is named in ``skipped``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dlio_torch.iotrace.events.budget_file import SpentBudget, budget_files, read_budget
from dlio_torch.iotrace.events.event_files import LAYERS, EventFile, Process, Unreadable, read_part, unrecorded_of
from dlio_torch.iotrace.events.posix_accounts import TREE_FILE, ProcessIo, UnrecordedProcess, merge, without_recorded

COLUMNS = ("rank", "pid", "tid", "layer", "op", "file", "offset", "bytes", "start_ns", "end_ns", "step")


@dataclass(frozen=True)
class Skipped:
    """A file that could not be read, and the reason."""

    path: Path
    reason: str


@dataclass(frozen=True)
class EventTable:
    """All events and processes of a run.

    Args:
        frame: one row per event, sorted by ``start_ns``; columns as in the module's text.
        processes: who recorded, by rank, trainer first.
        skipped: what could not be read.
        anchor_monotonic_ns: one reading of the clock of ``start_ns`` (0 without processes)...
        anchor_time_ns: ...and the wall-clock time (since 1970) at that moment.
        accounts: what each process moved in all, where its calls were recorded.
        unrecorded: processes, or parts of processes, that were not recorded; known from who waited for them.
        spent: of each rank that had a budget, what of it was used, and when it was used up, by that rank's own clock.
    """

    frame: pd.DataFrame
    processes: tuple[Process, ...]
    skipped: tuple[Skipped, ...]
    anchor_monotonic_ns: int = 0
    anchor_time_ns: int = 0
    accounts: tuple[ProcessIo, ...] = ()
    unrecorded: tuple[UnrecordedProcess, ...] = ()
    spent: tuple[SpentBudget, ...] = ()


def read_events(directory: Path | str, rank: int | None = None) -> EventTable:
    """Reads all spans and calls in an events folder, also those of processes that still run.

    Times of machines with other clocks are moved to the clock of the first process, through both
    anchors; they are then as exact as the machines' wall clocks.

    Args:
        directory: the events folder; a missing one gives an empty table.
        rank: this rank only.
    """
    stem = "rank*" if rank is None else f"rank{rank}-*"
    parts: list[EventFile] = []
    skipped: list[Skipped] = []
    spent = _spent(Path(directory), rank, skipped)
    over = {account.rank: account.full_ns for account in spent if account.full_ns}
    # Spans first: what they say of a process (its role) is more than what its calls can say.
    for path in [path for suffix in LAYERS for path in sorted(Path(directory).glob(stem + suffix))]:
        try:
            part = read_part(path)
        except (Unreadable, OSError) as error:
            skipped.append(Skipped(path, str(error)))
            continue
        skipped += [Skipped(*note) for note in part.notes]
        if (end := over.get(part.process.rank)) is not None:
            part.records = part.records[part.records["start_ns"] <= end]
        parts.append(part)
    unrecorded = _unrecorded(parts, _tree(Path(directory), skipped) if rank in (None, 0) else {})
    if not parts:
        return EventTable(_frame([]), (), tuple(skipped), unrecorded=unrecorded, spent=spent)
    processes = _merged(parts)
    place = {(process.rank, process.pid): number for number, process in enumerate(processes)}
    parts.sort(key=lambda part: place[part.process.rank, part.process.pid])
    reference = processes[0]
    first_of_clock = {process.clock: process for process in reversed(processes)}
    for part in parts:
        clock = first_of_clock[part.process.clock]
        shift = (clock.time_ns - clock.monotonic_ns) - (reference.time_ns - reference.monotonic_ns)
        if clock.clock != reference.clock:
            part.records["start_ns"] += shift
            part.records["end_ns"] += shift
    anchor = (reference.monotonic_ns, reference.time_ns)
    accounts = merge(part.account for part in parts if part.account is not None)
    return EventTable(_frame(parts), tuple(processes), tuple(skipped), *anchor, accounts, unrecorded, spent)


def _spent(directory: Path, rank: int | None, skipped: list[Skipped]) -> tuple[SpentBudget, ...]:
    """Reads the recording budgets of the ranks, and adds notes on exhausted ones."""
    budgets: list[SpentBudget] = []
    for path in budget_files(directory, rank):
        try:
            spent = read_budget(path)
        except OSError as error:
            skipped.append(Skipped(path, str(error)))
            continue
        if spent is None:
            skipped.append(Skipped(path, "the file is damaged"))
            continue
        budgets.append(spent)
        if spent.full_ns:
            skipped.append(
                Skipped(
                    path,
                    f"spans and calls of rank {spent.rank} stop before the end of the run: its recording limit was "
                    f"reached after {spent.files} files and {spent.bytes} bytes of events "
                    f"(trace.limit_files={spent.limit_files}, trace.limit_bytes={spent.limit_bytes})",
                )
            )
    return tuple(budgets)


def _tree(directory: Path, skipped: list[Skipped]) -> dict[str, list[UnrecordedProcess]]:
    """Reads, by machine, the unrecorded processes that the recording's first process saw."""
    path = directory / TREE_FILE
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        pid = int(about["pid"])
        return {str(about["host"]): [UnrecordedProcess(0, pid, **unrecorded_of(entry)) for entry in about["processes"]]}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        skipped.append(
            Skipped(path, (f"the file is damaged: {error}") if isinstance(error, OSError) else ("the file is damaged"))
        )
        return {}


def _unrecorded(
    parts: Sequence[EventFile], by_host: Mapping[str, Sequence[UnrecordedProcess]]
) -> tuple[UnrecordedProcess, ...]:
    unrecorded: list[UnrecordedProcess] = []
    for host in dict.fromkeys([*(part.process.host for part in parts), *by_host]):
        local = [part for part in parts if part.process.host == host]
        children = [*by_host.get(host, ()), *(child for part in local for child in part.children)]
        parents = {part.process.pid: part.parent_pid for part in local}
        # Who tells of a process may have another rank: a launcher, or the process that started the recording.
        ranks = {part.process.pid: part.process.rank for part in local}
        children = [replace(child, rank=ranks.get(child.pid, child.rank)) for child in children]
        unrecorded += without_recorded(children, (part.account for part in local if part.account is not None), parents)
    return tuple(unrecorded)


def _frame(parts: Sequence[EventFile]) -> pd.DataFrame:
    """Builds the table; strings become categorical codes, without a Python object per row."""
    total = sum(len(part.records) for part in parts)
    columns = {name: np.empty(total, np.int64) for name in ("offset", "bytes", "start_ns", "end_ns")}
    columns |= {name: np.empty(total, np.int32) for name in ("rank", "pid", "tid", "step", "op", "file")}
    layers = list(dict.fromkeys(part.layer for part in parts)) or ["app"]
    layer = np.zeros(total, np.int8)
    op_ids: dict[str, int] = {}
    file_ids: dict[str, int] = {}
    position = 0
    for part in parts:
        records = part.records
        rows = slice(position, position + len(records))
        position += len(records)
        layer[rows] = layers.index(part.layer)
        columns["rank"][rows] = part.process.rank
        columns["pid"][rows] = part.process.pid
        for name in ("tid", "step", "offset", "bytes", "start_ns", "end_ns"):
            columns[name][rows] = records[name]
        columns["op"][rows] = _recode(records["op"], part.names, op_ids)
        columns["file"][rows] = _recode(records["file"], part.names, file_ids)
    order = np.argsort(columns["start_ns"], kind="stable")
    columns = {name: values[order] for name, values in columns.items()}
    categorical = {
        "layer": pd.Categorical.from_codes(layer[order], categories=pd.Index(layers)),
        "op": pd.Categorical.from_codes(columns["op"], categories=pd.Index(list(op_ids), dtype=object)),
        "file": pd.Categorical.from_codes(columns["file"], categories=pd.Index(list(file_ids), dtype=object)),
    }
    frame: pd.DataFrame = pd.DataFrame({name: categorical.get(name, columns.get(name)) for name in COLUMNS}, copy=False)
    return frame


def _recode(
    local: np.ndarray[Any, Any], names: Sequence[str | None], ids: dict[str, int]
) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Maps the ids of one process to the codes of all processes; -1 for no name."""
    codes = np.full(len(names), -1, np.int32)
    for number in np.unique(local).tolist():
        name = names[number]
        if name is not None:
            codes[number] = ids.setdefault(name, len(ids))
    global_codes: np.ndarray[Any, np.dtype[np.int32]] = codes[local]
    return global_codes


def _merged(parts: Sequence[EventFile]) -> list[Process]:
    """Merges the files of each process to one entry, sorted by rank, trainer first."""
    merged: dict[tuple[int, int], Process] = {}
    with_spans = set()
    for part in parts:
        key = (part.process.rank, part.process.pid)
        first = merged.setdefault(key, part.process)
        merged[key] = replace(first, threads=part.process.threads | first.threads)
        if part.layer == "app":
            with_spans.add(key)

    def order(process: Process) -> tuple[int, bool, bool, list[int | str], int]:
        words = [int(word) if word.isdigit() else word for word in re.split(r"(\d+)", process.role)]
        is_worker = process.role.startswith("loader worker")
        return process.rank, (process.rank, process.pid) not in with_spans, is_worker, words, process.pid

    return sorted(merged.values(), key=order)
