"""I/O that the recorded calls do not contain, by the kernel's counters of each process.

Of one process::

    untraced read bytes    rchar - bytes returned by the read calls that the recorder saw, at least 0
    untraced write bytes   the same with wchar and write calls
    share                  untraced bytes / rchar (wchar)

``rchar`` counts bytes that read calls of any kind returned.  Pages of mapped files that are touched, and
io_uring, are in neither number: maps and rings are therefore counted beside it, and
``device_read_bytes`` holds what they fetched from a device (but nothing that the page cache had).  Sums are
None where a process's counters are not known.

Processes that did not load the recorder at all have no row: what they moved is summed beside it, as the kernel told
the process that waited for them.  A recorded process that executed a program which did not load it has both: a row up
to then, which is not complete, and what it moved later among the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from dlio_torch.iotrace.events.posix_accounts import ProcessIo, UnrecordedProcess
from dlio_torch.iotrace.events.recording import Recording


def untraced(recording: Recording) -> dict[str, Any]:
    """Sums of the untraced I/O over all processes, and one row per process.

    Returns:
        ``why`` (None, or why nothing is known; everything else is then None), ``read_bytes``,
        ``read_share``, ``write_bytes``, ``write_share`` (0 to 1, None where nothing moved),
        ``mapped_bytes``, ``major_faults``, ``io_uring_rings``, ``dropped_calls`` (beyond the recorder's
        limit), ``device_read_bytes``, ``device_write_bytes``, ``unrecorded_processes`` (that
        moved more than 64 KiB, parts of processes included), ``unrecorded_names`` (of their programs, the most
        bytes first), ``unrecorded_read_bytes``, ``unrecorded_write_bytes``, ``complete`` (whether every
        process's counters are those at its end, and none executed a program that was not recorded), ``processes``.
    """
    accounts, unrecorded = recording.events.accounts, recording.events.unrecorded
    if not accounts and not unrecorded:
        return {"why": "the recording does not contain the kernel's I/O counters", **dict.fromkeys(_KEYS)}
    went_on = {(process.rank, process.pid) for process in unrecorded if process.began_ns}
    rows = [_row(account, (account.rank, account.pid) in went_on) for account in accounts]
    read, write = _total(row["read_bytes"] for row in rows), _total(row["write_bytes"] for row in rows)
    totals: dict[str, Any] = {
        "why": None,
        "read_bytes": read,
        "read_share": _share(read, _total(account.rchar for account in accounts)),
        "write_bytes": write,
        "write_share": _share(write, _total(account.wchar for account in accounts)),
        "mapped_bytes": _total(account.mapped_bytes for account in accounts),
        "major_faults": _total(account.major_faults for account in accounts),
        "io_uring_rings": _total(account.io_uring_rings for account in accounts),
        "dropped_calls": _total(account.dropped for account in accounts),
        "device_read_bytes": _total(account.read_bytes for account in accounts),
        "device_write_bytes": _total(account.write_bytes for account in accounts),
        **_unrecorded(unrecorded),
        "complete": all(row["complete"] for row in rows) and not any(process.began_ns for process in unrecorded),
        "processes": rows,
    }
    return totals


_KEYS = (
    *("read_bytes", "read_share", "write_bytes", "write_share", "mapped_bytes", "major_faults", "io_uring_rings"),
    *("dropped_calls", "device_read_bytes", "device_write_bytes", "unrecorded_processes", "unrecorded_names"),
    *("unrecorded_read_bytes", "unrecorded_write_bytes", "complete", "processes"),
)


def _unrecorded(processes: Sequence[UnrecordedProcess]) -> dict[str, Any]:
    by_name: dict[str, int] = {}
    for process in processes:
        by_name[process.name] = by_name.get(process.name, 0) + process.read_bytes + process.write_bytes
    return {
        "unrecorded_processes": len(processes),
        "unrecorded_names": sorted(by_name, key=by_name.__getitem__, reverse=True),
        "unrecorded_read_bytes": sum(process.read_bytes for process in processes),
        "unrecorded_write_bytes": sum(process.write_bytes for process in processes),
    }


def _row(account: ProcessIo, went_on: bool) -> dict[str, Any]:
    """Figures of one process; ``read_bytes`` and ``write_bytes`` are the untraced bytes.

    Args:
        account: of the process.
        went_on: whether it executed a program that was not recorded.
    """
    fields = asdict(account)
    del fields["snapshot_ns"]
    fields["complete"] = account.complete and not went_on
    fields["device_read_bytes"], fields["device_write_bytes"] = account.read_bytes, account.write_bytes
    fields["read_bytes"] = _left(account.rchar, account.traced_read_bytes)
    fields["write_bytes"] = _left(account.wchar, account.traced_write_bytes)
    return fields


def _left(counted: int | None, traced: int) -> int | None:
    return None if counted is None else max(counted - traced, 0)


def _total(values: Iterable[int | None]) -> int | None:
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _share(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else part / whole
