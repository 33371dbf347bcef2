"""What processes read and wrote, and what of a file lies in the page cache."""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class IoCounters:
    """What a process read and wrote since it started, as Linux counts it (``/proc/<pid>/io``).

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
    """Counts of this process, or of another of the same user; None where they cannot be read."""
    try:
        with open(f"/proc/{'self' if pid is None else pid}/io", encoding="ascii") as file:
            values = dict(line.split(": ") for line in file)
        return IoCounters(*(int(values[name]) for name in _COUNTERS))
    except (OSError, ValueError, KeyError):
        return None


def cached_share(path: Path | str, offset: int = 0, length: int | None = None, probes: int = 256) -> float | None:
    """Estimated share (0 to 1) of a part of a file that lies in the page cache, None where it cannot be told.

    Reads one byte at a random place of each of ``probes`` equal stretches with ``preadv2(RWF_NOWAIT)``, which
    gives EAGAIN where a page is not cached.  (For files of others, ``mincore`` and ``cachestat`` do not tell
    an ordinary user the truth.)  The standard error is at most ``0.5 / sqrt(probes)``.

    A miss makes Linux read that page; without readahead, and it is given back to the system at once, so the
    estimate leaves the cache nearly as it was.

    Args:
        path: an existing file.
        offset: first byte of the part.
        length: bytes of the part; to the end of the file by default.
        probes: places that are tried, fewer for a part of fewer pages.
    """
    flag = getattr(os, "RWF_NOWAIT", None)
    if flag is None:
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        size = os.fstat(descriptor).st_size
        end = size if length is None else min(size, offset + length)
        page = os.sysconf("SC_PAGE_SIZE")
        count = min(probes, -(-(end - offset) // page))
        if count <= 0:
            return None
        # "Random" turns readahead off, for this open file alone.
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        byte, missed = bytearray(1), []
        # Other places at each call: one that found a page missing may have left it cached.
        pick = random.Random()
        for number in range(count):
            first = offset + (end - offset) * number // count
            last = offset + (end - offset) * (number + 1) // count
            place = pick.randrange(first, last)
            try:
                os.preadv(descriptor, [byte], place, flag)
            except BlockingIOError:
                missed.append(place - place % page)
        for _ in range(2 if missed else 0):
            time.sleep(0.01)  # pages under way cannot be dropped
            for place in missed:
                os.posix_fadvise(descriptor, place, page, os.POSIX_FADV_DONTNEED)
        return 1.0 - len(missed) / count
    except OSError:  # the file system does not support the flag
        return None
    finally:
        os.close(descriptor)
