"""Reads the kernel's I/O counters of processes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class IoCounters:
    """Bytes and calls of a process since its start, as Linux counts them (``/proc/<pid>/io``).

    A process inherits the counts of the children that it has waited for: loader workers must be
    counted by their own ids while they live, or with their parent after they ended, never both.

    Args:
        rchar: bytes that read calls returned, from the page cache, pipes and terminals too.
        wchar: bytes that write calls took.
        syscr: read calls.
        syscw: write calls.
        read_bytes: bytes that block devices delivered; 0 for file systems without one (NFS, Lustre, tmpfs).
        write_bytes: bytes that are to reach block devices.
    """

    rchar: int
    wchar: int
    syscr: int
    syscw: int
    read_bytes: int
    write_bytes: int

    def __sub__(self, earlier: IoCounters) -> IoCounters:
        return IoCounters(*(getattr(self, name) - getattr(earlier, name) for name in _COUNTERS))

    def __add__(self, other: IoCounters) -> IoCounters:
        return IoCounters(*(getattr(self, name) + getattr(other, name) for name in _COUNTERS))


_COUNTERS = tuple(IoCounters.__dataclass_fields__)


def io_counters(pid: int | None = None) -> IoCounters | None:
    """Counters of this process, or of another process of the same user; None if they cannot be read."""
    try:
        with open(f"/proc/{'self' if pid is None else pid}/io", encoding="ascii") as file:
            values = dict(line.split(": ") for line in file)
        return IoCounters(*(int(values[name]) for name in _COUNTERS))
    except (OSError, ValueError, KeyError):
        return None
