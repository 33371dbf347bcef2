"""Reads the header of a ``.posix`` file: total bytes that a process moved, by its calls and by the kernel's count.

The two sums are of the same moment (the *snapshot*), which is the end of the process where it had the time to
take one (``complete``), else the last time that its file grew.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

TREE_FILE = "tree.json"
"""Name of the file of the events folder that lists unrecorded processes."""

MAGIC = b"DLIOPOSX"
VERSION = 1
RECORD_BYTES = 48
# The first 48 bytes as in dlio_torch.iotrace.events.span_format.HEADER, with the size of the whole header at their
# end; then flags, complete; limit, time of the snapshot, io_uring instances, dropped calls; bytes read, written, mapped
# by the calls that were seen; the kernel's rchar, wchar, read_bytes, write_bytes and major faults, twice: when
# counting began and at the snapshot.
_HEADER = struct.Struct("<8sIIiiqqq" + "II" + "4q" + "3q" + "5q" + "5q")
HEADER_BYTES = 240  # with room for more
_LIMIT_REACHED, _NO_ROOM, _NO_COUNTERS, _BUDGET_SPENT = 1, 2, 4, 8


@dataclass(frozen=True)
class ProcessIo:
    """Bytes that one process moved, by two ways of counting.

    The kernel's counters are those of the process alone, from when it began to be recorded (the library was
    loaded, or it was forked): without the children that it waited for, and without the recorder's own I/O.
    ``rchar - traced_read_bytes`` is what was read by calls that the recorder does not see.  io_uring is in
    neither, nor is splice; of io_uring and mapped files only ``read_bytes`` tells, and only what was not in the page
    cache.

    Attributes:
        rank: of the process.
        pid: its process id.
        rchar: bytes that read calls returned, as the kernel counts; None where it does not tell.
        wchar: bytes that write calls took.
        read_bytes: bytes that block devices delivered; 0 for file systems without one.
        write_bytes: bytes that are to reach block devices.
        traced_read_bytes: bytes that the read calls returned that the recorder saw, on all descriptors:
            files that its patterns leave out, pipes and terminals, too.
        traced_write_bytes: the same for writes.
        mapped_bytes: length of all maps of recorded files.
        major_faults: page faults that had to wait for a device; None where unknown.
        io_uring_rings: io_uring instances that were noticed.
        dropped: calls on recorded files that were left out (the limit was reached, or the disk full).
        complete: whether the counters are those at the end of the process, or of its last program that was recorded.
        snapshot_ns: when the counters were read, on the clock of the process.
    """

    rank: int
    pid: int
    rchar: int | None
    wchar: int | None
    read_bytes: int | None
    write_bytes: int | None
    traced_read_bytes: int
    traced_write_bytes: int
    mapped_bytes: int
    major_faults: int | None
    io_uring_rings: int
    dropped: int
    complete: bool
    snapshot_ns: int = 0

    def __add__(self, later: ProcessIo) -> ProcessIo:
        """Sum of two parts of one process's account (before and after an exec)."""
        sums: dict[str, Any] = {name: _sum(getattr(self, name), getattr(later, name)) for name in _SUMMED}
        return replace(self, complete=self.complete and later.complete, **sums)


@dataclass(frozen=True)
class UnrecordedProcess:
    """A process that did not load the recorder, because it is linked statically or changes its user.

    Or the part of a process in which it ran such a program, after one that was recorded (exec).

    Attributes:
        rank: of the process that tells of it.
        parent_pid: process id of that one, which waited for it or is its later part.
        pid: its own process id.
        name: of its program, 15 bytes at most.
        read_bytes: its ``rchar`` from its beginning to its end, with the processes that it waited for.
        write_bytes: its ``wchar`` likewise.
        began_ns: when a program that was recorded executed it (monotonic); 0: no part of the process was recorded.
        ended_ns: when it was found to have ended; 0: not known.
    """

    rank: int
    parent_pid: int
    pid: int
    name: str
    read_bytes: int
    write_bytes: int
    began_ns: int = 0
    ended_ns: int = 0

    def covers(self, ended_ns: int) -> bool:
        """Whether the kernel's count of this process may include another process that ended at this time."""
        return self.began_ns < ended_ns and (self.ended_ns == 0 or ended_ns <= self.ended_ns)


_NOT_SUMMED = ("rank", "pid", "complete", "snapshot_ns")
_SUMMED = tuple(field.name for field in fields(ProcessIo) if field.name not in _NOT_SUMMED)


def _sum(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first + second


def parse_header(data: bytes) -> tuple[ProcessIo, int, list[str]]:
    """Parses the header: account of the process, size of the header, and notes on missing parts of the file.

    Args:
        data: the first bytes of the file; :data:`HEADER_BYTES` are enough.

    Raises:
        ValueError: these are not the first bytes of such a file; the message says why.
    """
    if len(data) < HEADER_BYTES:
        raise ValueError(f"the file ends within its header, after {len(data)} bytes")
    magic, version, record_size, rank, pid, _, _, size, *rest = _HEADER.unpack_from(data)
    if magic == bytes(len(MAGIC)):
        raise ValueError("the header is empty: the process ended while it created the file")
    if magic != MAGIC:
        raise ValueError("the file does not contain recorded calls")
    if version != VERSION:
        raise ValueError(f"the file has format version {version}, but this program reads version {VERSION}")
    if record_size != RECORD_BYTES or size < HEADER_BYTES or size % RECORD_BYTES:
        raise ValueError("the header of the file is damaged")
    flags, complete, limit, snapshot_ns, rings, dropped, traced_read, traced_write, mapped, *counters = rest
    start, end = counters[:5], counters[5:]
    changes = [b - a if a >= 0 and b >= 0 else None for a, b in zip(start, end, strict=True)]
    rchar, wchar, read_bytes, write_bytes = (None if flags & _NO_COUNTERS else change for change in changes[:4])
    account = ProcessIo(
        rank=rank,
        pid=pid,
        rchar=rchar,
        wchar=wchar,
        read_bytes=read_bytes,
        write_bytes=write_bytes,
        traced_read_bytes=traced_read,
        traced_write_bytes=traced_write,
        mapped_bytes=mapped,
        major_faults=changes[4],
        io_uring_rings=rings,
        dropped=dropped,
        complete=complete != 0,
        snapshot_ns=snapshot_ns,
    )
    notes: list[str] = []
    left_out = f"{dropped} later calls were not recorded" if dropped else "later calls, if any, were not recorded"
    if flags & _LIMIT_REACHED:
        notes.append(f"the limit of {limit} bytes per process was reached: {left_out}")
    if flags & _BUDGET_SPENT:
        notes.append(f"the limit of all processes of the rank was reached: {left_out}")
    if flags & _NO_ROOM:
        notes.append(f"the event file could not grow (disk full, or folder removed): {left_out}")
    return account, size, notes


def merge(accounts: Iterable[ProcessIo]) -> tuple[ProcessIo, ...]:
    """Joins the accounts of a process that has several files."""
    merged: dict[tuple[int, int], ProcessIo] = {}
    for account in accounts:
        key = (account.rank, account.pid)
        merged[key] = merged[key] + account if key in merged else account
    return tuple(merged.values())


_WORTH_BYTES = 1 << 16  # as in the library


def without_recorded(
    children: Sequence[UnrecordedProcess], accounts: Iterable[ProcessIo], parents: Mapping[int, int]
) -> list[UnrecordedProcess]:
    """Subtracts bytes of awaited children that have their own entries from an unrecorded process.

    Args:
        children: as the tables of names of one machine tell them.
        accounts: of the processes that were recorded there.
        parents: the parent of each of these, by process id.
    """
    moved: dict[int, list[tuple[int, int, int, object]]] = {}  # by process: read, written, until when, of what
    for account in accounts:
        moved.setdefault(account.pid, []).append((account.rchar or 0, account.wchar or 0, account.snapshot_ns, account))
    for child in children:
        moved.setdefault(child.parent_pid, []).append((child.read_bytes, child.write_bytes, child.ended_ns, child))
    started: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        started.setdefault(parent, []).append(pid)
    left: list[UnrecordedProcess] = []
    for child in children:
        tree, next_ones = {child.pid}, [child.pid]
        while next_ones:
            next_ones = [pid for parent in next_ones for pid in started.get(parent, ()) if pid not in tree]
            tree.update(next_ones)
        within = [
            (read, written)
            for pid in tree
            for read, written, ended_ns, unrecorded in moved.get(pid, ())
            if unrecorded is not child and (ended_ns == 0 or child.covers(ended_ns))
        ]
        read_bytes = child.read_bytes - sum(read for read, _ in within)
        write_bytes = child.write_bytes - sum(written for _, written in within)
        if max(read_bytes, write_bytes) > _WORTH_BYTES:
            left.append(replace(child, read_bytes=max(read_bytes, 0), write_bytes=max(write_bytes, 0)))
    return left
