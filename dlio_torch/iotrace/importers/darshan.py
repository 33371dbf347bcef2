"""Reads Darshan logs: calls of the extended tracing (DXT), and counters.

DXT records reads and writes of POSIX (layer ``posix``) and of MPI-IO (``mpiio``), nothing else: no open, no
seek, no STDIO.  Counters tell sums per rank and file for POSIX, STDIO and MPI-IO; rank -1 stands for a file
that all ranks used, reduced by Darshan to one sum.

Times are seconds since the start of the job, which is 0 here; they are rounded to the nearest nanosecond.
Darshan knows no process or thread ids: ``pid`` and ``tid`` are -1.

How published figures come out of these rows (checked on the log of the Cosmic Tagger, 8 ranks):

* VaniDL, which made them, leaves out every file with ``py`` in its path, and STDIO's ``<STDOUT>`` and
  ``<STDERR>``.  Transfer sizes count reads and writes together, zero-byte calls included;
* sequential and consecutive are Darshan's own counts: per rank, file and direction, in order of start, an
  access is sequential when its offset is behind the last byte of the one before, and consecutive when it is
  the byte after that.  The last byte is 0 before the first access, so a first access at offset 0 is neither.
  Shares are over *all* accesses, reads and writes together;
* time per rank is the sum of all durations divided by the number of ranks.  VaniDL computes it from stamps of
  4 decimals, as ``darshan-dxt-parser`` prints them, and counts a difference of 0 as 1 ms.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dlio_torch.errors import DataError, MissingPackageError
from dlio_torch.files.locked_folder import temporary_folder
from dlio_torch.iotrace.events import call_names
from dlio_torch.iotrace.events.call_names import printable
from dlio_torch.iotrace.events.event_files import Process
from dlio_torch.iotrace.events.recording import COUNTERS, Recording
from dlio_torch.iotrace.importers.darshan_child import COUNTED, SEGMENT
from dlio_torch.iotrace.importers.event_rows import MPIIO, POSIX, ROW, TableBuilder, imported_process

_LAYER = {"POSIX": "posix", "STDIO": "stdio", "MPI-IO": "mpiio"}
_OPS = (("write", "read"), ("file_write", "file_read"))  # by DXT module, writes come first
_LAYERS = (POSIX, MPIIO)
_LONGEST_S = 1e9  # 30 years


def read_darshan(path: Path) -> Recording:
    """Reads the recording in a Darshan log.

    Raises:
        MissingPackageError: pydarshan is not installed.
        DataError: the log is damaged, incomplete, or empty.
    """
    if importlib.util.find_spec("darshan") is None:
        raise MissingPackageError(
            f"{path} is a Darshan log, but the Python package that reads Darshan logs is not installed",
            hint="run: pip install 'dlio-torch[logs]'",
        )
    with temporary_folder() as folder:
        about = _read_in_child(path, folder)
        if about["partial"]:
            modules = " and ".join(about["partial"])
            raise DataError(
                f"{path} is incomplete: Darshan's modules {modules} ran out of memory (too many records), so later "
                "records are missing",
                hint=(
                    "record the program again with a larger DARSHAN_MODMEM (MiB), or with MODMEM and MAX_RECORDS in "
                    "the file that DARSHAN_CONFIG_PATH names"
                ),
            )
        hosts = about["hosts"]
        records = np.load(folder / "records.npy")
        counters = _counters(about, folder)
        builder, processes = _events(path, records, folder / "segments.bin", about["names"], hosts)
    if not len(builder) and counters is None:
        raise DataError(
            f"{path} contains no I/O: it has the Darshan modules {', '.join(about['modules']) or 'none'}, but "
            "neither DXT segments nor counters of POSIX, STDIO or MPI-IO",
            hint="record the program again with Darshan's POSIX and DXT modules enabled",
        )
    events = builder.table(processes, origin_ns=0, anchor_time_ns=about["start_ns"])
    traced = len(events.frame) > 0 or any(name.startswith("DXT") for name in about["modules"])
    return Recording(
        path=path,
        kind="darshan",
        events=events,
        sees=frozenset({call_names.READ, call_names.WRITE}) if traced else frozenset(),
        world_size=about["nprocs"],
        runtime_s=about["runtime_s"] if about["runtime_s"] > 0 else None,
        counters=counters,
        notes=_notes(about, events.frame, counters, traced),
        facts={
            "command": about["command"],
            "hosts": hosts,
            "job_id": about["job_id"],
            "log_version": about["log_version"],
            "library_version": _metadata(about).get("lib_ver"),
            "modules": list(about["modules"]),
        },
    )


def _read_in_child(path: Path, folder: Path) -> dict[str, Any]:
    """Reads a log in a child process; raises an error that names the damage."""
    words = [str(path.absolute()), str(folder.absolute())]
    search = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    done = subprocess.run(
        # The folder is empty and the current one: nothing that lies around where the user works is imported.
        [sys.executable, "-m", "dlio_torch.iotrace.importers.darshan_child", *words],
        cwd=folder,
        # Where this process is recorded itself, reading a log is not part of what is looked at.
        env={**os.environ, "PYTHONPATH": search, "LD_PRELOAD": ""},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    said = done.stderr.decode(errors="replace").splitlines()
    errors = [line.removeprefix("Error: ").rstrip(".") for line in said if line.startswith("Error: ")]
    # The library reports damage on stderr and goes on as if the log ended there.
    if done.returncode == 0 and not errors:
        about: dict[str, Any] = json.loads((folder / "about.json").read_text(encoding="ascii"))
        return about
    if errors:
        reason = ": " + ", ".join(list(dict.fromkeys(errors))[:2])
    elif done.returncode < 0:
        reason = f" (Darshan's library ended with signal {-done.returncode})"
    else:
        reason = f" ({said[-1].strip()})" if said else ""
    raise DataError(f"{path} is damaged or cut off{reason}", hint="copy the log again")


def _events(
    log: Path, records: npt.NDArray[Any], segments: Path, names: dict[str, str], hosts: list[str]
) -> tuple[TableBuilder, list[Process]]:
    """All DXT segments as rows; one process per rank."""
    builder = TableBuilder()
    ranks: dict[int, int] = {}
    processes: list[Process] = []
    with open(segments, "rb") as file:
        for record in records:
            rank, module, writes, reads = (int(record[key]) for key in ("rank", "module", "writes", "reads"))
            if rank not in ranks:
                ranks[rank] = len(processes)
                processes.append(imported_process(rank, host=hosts[record["host"]]))
            accesses = np.fromfile(file, SEGMENT, writes + reads)
            # Damage within the compressed data that the library did not notice.
            possible = (
                (accesses["length"] >= 0) & (accesses["start_s"] >= 0) & (accesses["end_s"] >= accesses["start_s"])
            )
            if writes < 0 or reads < 0 or not (possible & (accesses["end_s"] < _LONGEST_S)).all():
                raise DataError(f"{log} is damaged: it contains impossible sizes or times", hint="copy the log again")
            rows = np.empty(len(accesses), ROW)
            rows["start_ns"] = np.rint(accesses["start_s"] * 1e9)
            rows["end_ns"] = np.rint(accesses["end_s"] * 1e9)
            rows["offset"] = accesses["offset"]
            rows["bytes"] = accesses["length"]
            rows["process"] = ranks[rank]
            rows["tid"] = rows["step"] = -1
            rows["file"] = builder.files.number(_name(names, int(record["id"])))
            for op, part in zip(_OPS[module], (rows[:writes], rows[writes:]), strict=True):
                if len(part):
                    part["op"] = builder.ops.number(op)
            rows["layer"] = _LAYERS[module]
            builder.block(rows)
    return builder, processes


def _counters(about: dict[str, Any], folder: Path) -> pd.DataFrame | None:
    """The table of counters of all modules; None if the log has none."""
    tables = []
    for module in COUNTED:
        if module not in about["columns"]:
            continue
        prefix = module.replace("-", "") + "_"
        # Copied: the file vanishes with its folder.
        values = np.load(folder / f"counters-{module}.npy")
        columns = {name.removeprefix(prefix): values[:, i] for i, name in enumerate(about["columns"][module])}
        if len(values):
            tables.append(_table(module, columns, about["names"]))
    if not tables:
        return None
    table = pd.concat(tables, ignore_index=True)
    typed: pd.DataFrame = table.astype({"layer": "category", "file": "category"})
    return typed


def _table(module: str, columns: dict[str, npt.NDArray[np.int64]], names: dict[str, str]) -> pd.DataFrame:
    unknown = np.full(len(columns["id"]), -1, np.int64)

    def total(*ends: str) -> npt.NDArray[np.int64]:
        """Sum of all counters of these names, also for the kinds of MPI-IO calls (INDEP_READS, COLL_READS...)."""
        counters = [
            values
            for name, values in columns.items()
            if any(name == end or (module == "MPI-IO" and name.endswith(f"_{end}")) for end in ends)
        ]
        if not counters:
            return unknown
        # Darshan writes -1 where a counter is not available.
        sums: npt.NDArray[np.int64] = np.sum([np.maximum(values, 0) for values in counters], axis=0)
        return np.where(np.max(counters, axis=0) >= 0, sums, -1)

    def seconds(name: str) -> npt.NDArray[np.float64]:
        values = columns[f"F_{name}_TIME"].view(np.float64)
        return np.where(values >= 0, values, np.nan)

    ids = columns["id"].view(np.uint64)
    by_name = {
        "rank": columns["rank"].astype(np.int32),
        "layer": _LAYER[module],
        "file": [_name(names, int(number)) for number in ids],
        "opens": total("OPENS", "FDOPENS"),
        "reads": total("READS"),
        "writes": total("WRITES"),
        "seeks": total("SEEKS"),
        "bytes_read": total("BYTES_READ"),
        "bytes_written": total("BYTES_WRITTEN"),
        "read_s": seconds("READ"),
        "write_s": seconds("WRITE"),
        "meta_s": seconds("META"),
        "sequential_reads": total("SEQ_READS"),
        "sequential_writes": total("SEQ_WRITES"),
        "consecutive_reads": total("CONSEC_READS"),
        "consecutive_writes": total("CONSEC_WRITES"),
    }
    counters: pd.DataFrame = pd.DataFrame({name: by_name[name] for name in COUNTERS})
    return counters


def _notes(about: dict[str, Any], frame: pd.DataFrame, counters: pd.DataFrame | None, traced: bool) -> tuple[str, ...]:
    notes = []
    if not traced:
        notes.append(
            "the log contains counters only (no DXT): figures are sums per rank and file; single calls, their times "
            "and their order are not known"
        )
    if traced and counters is not None:
        stdio = counters[counters["layer"] == "stdio"]
        moved = int(stdio["bytes_read"].sum() + stdio["bytes_written"].sum())
        if moved:
            notes.append(
                f"{moved} bytes moved through STDIO are in the counters only, because DXT does not trace STDIO"
            )
        posix = counters[counters["layer"] == "posix"]
        counted = int(posix["reads"].sum() + posix["writes"].sum())
        seen = int((frame["layer"] == "posix").sum())
        if "POSIX" in about["modules"] and seen != counted:
            notes.append(
                f"DXT recorded {seen} of the {counted} reads and writes in the POSIX counters: some files were not "
                "traced"
            )
    if traced:
        notes.append("DXT records reads and writes only: opens, seeks and other calls are not recorded as single calls")
    if about["start_ns"] % 10**9 == 0 and about["end_ns"] % 10**9 == 0:
        notes.append("the job's start time, end time and run time are known in whole seconds only")
    return tuple(notes)


def _name(names: dict[str, str], number: int) -> str:
    return printable(names.get(str(number), f"<record {number}>"))


def _metadata(about: dict[str, Any]) -> dict[str, str]:
    pairs = (line.partition("=") for line in about["metadata"].splitlines())
    return {key: value for key, _, value in pairs}
