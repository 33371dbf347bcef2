"""Reads, changes and writes trace files of torch.profiler (Kineto), and converts their clock.

``ts`` of an event counts microseconds from ``baseTimeNanoseconds``, a wall-clock time.  Events of host
threads carry real process and thread ids, those of a GPU the number of the device instead of a process,
and marks that belong to no process carry words.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dlio_torch.errors import DataError
from dlio_torch.files.atomic_file import replaced

# Categories of events that this package adds; TensorBoard's plugin shows them and counts them nowhere.
CATEGORIES = ("app", "posix", "stdio", "mpiio")
RANK_KEY = "dlio_torch_rank"
THREADS = 1 << 22  # Linux process and thread ids are smaller; added to an id, it names a second track


def read_profile(path: Path) -> dict[str, Any]:
    """Reads a trace file of torch.profiler, gzipped or not.

    Raises:
        DataError: the file is missing or no such trace.
    """
    try:
        data = path.read_bytes()
        trace = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
        if not isinstance(trace["traceEvents"], list) or int(trace["baseTimeNanoseconds"]) < 0:
            raise ValueError("it contains no events")
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} is not a trace of torch.profiler: {error!r}", hint="remove the file or repeat the run"
        ) from error
    profile: dict[str, Any] = trace
    return profile


def write_profile(trace: dict[str, Any], path: Path) -> None:
    """Writes a trace, gzipped if the name ends in ``.gz``; the file gets its name only when it is complete.

    Raises:
        PreconditionError: the file cannot be written.
    """
    data = json.dumps(trace, separators=(",", ":")).encode("ascii")
    if path.suffix == ".gz":
        data = gzip.compress(data, 3)
    with replaced(path) as file:
        file.write(data)


def mark_as_operators(trace: dict[str, Any], names: Iterable[str]) -> None:
    """Gives annotations of these names, and of DataLoaders, the category of operators.

    torch writes what ``record_function`` names as ``user_annotation``, which TensorBoard's plugin
    (torch-tb-profiler 0.4.3) leaves out of its overview.
    """
    operators = set(names)
    for event in trace["traceEvents"]:
        name = str(event.get("name", ""))
        if event.get("cat") == "user_annotation" and (name in operators or name.startswith("enumerate(DataLoader)#")):
            event["cat"] = "cpu_op"


def base_ns(trace: dict[str, Any]) -> int:
    """Wall-clock time in ns from which the trace's ``ts`` counts."""
    return int(trace["baseTimeNanoseconds"])


def foreign_events(trace: dict[str, Any], pids: dict[tuple[int, int], int], number: int) -> list[dict[str, Any]]:
    """The trace's intervals as events for a merged trace, sorted by time, with their wall time as ``time_ns``.

    Each host thread gets a track of its own below its process: beside this package's spans, whose times
    differ by fractions of a microsecond, intervals would not nest.  Devices become processes.

    Args:
        trace: content of a trace file.
        pids: process ids of the merged trace by (rank, pid).
        number: which of several files this is; keeps their devices apart.
    """
    rank = trace.get(RANK_KEY)
    moved: list[dict[str, Any]] = []
    named: set[tuple[int, int]] = set()
    for event in trace["traceEvents"]:
        pid, tid = event.get("pid"), event.get("tid")
        if (
            event.get("ph") != "X"
            or event.get("cat") in CATEGORIES
            or not (isinstance(pid, int) and isinstance(tid, int))
        ):
            continue
        known = [merged for (of_rank, real), merged in pids.items() if real == pid and rank in (None, of_rank)]
        track = (known[0], tid + THREADS) if known else (THREADS * 1024 + 64 * number + pid, tid)
        time_ns = base_ns(trace) + round(event["ts"] * 1000)
        if track not in named:
            named.add(track)
            mark = {"ph": "M", "pid": track[0], "tid": track[1], "ts": 0, "time_ns": time_ns}
            moved.append(mark | {"name": "thread_name", "args": {"name": f"torch.profiler {tid}"}})
            if not known:
                label = f"device {pid}" if rank is None else f"rank {rank} device {pid}"
                moved.append(mark | {"name": "process_name", "args": {"name": label}})
        moved.append(event | {"pid": track[0], "tid": track[1], "time_ns": time_ns})
    moved.sort(key=lambda event: int(event["time_ns"]))
    return moved
