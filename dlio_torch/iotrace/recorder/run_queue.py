"""Run delay of a thread: how long it could have run while no core was free for it, as Linux counts it."""

from __future__ import annotations

import os

SCHEDSTAT = "/proc/thread-self/schedstat"
"""ns on a core, ns in a queue for one, turns; of the thread that opens it (Documentation/scheduler/sched-stats)."""
UNKNOWN = -1
"""Run delay where the kernel does not report it."""


class RunQueue:
    """Run delay of the thread that creates this object.

    A reading takes about a microsecond, from a file that stays open.  A program that is recorded may close descriptors
    that it does not know, and open files of its own with the same number: those are never closed here.
    """

    def __init__(self) -> None:
        self._descriptor: int | None = None
        try:
            self._descriptor = os.open(SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC)
            self._file = _identity(self._descriptor)
            _run_delay(self._descriptor)
        except (OSError, ValueError, IndexError):  # another kernel, or one that does not count
            self.close()

    def delay_ns(self) -> int:
        """Run delay so far in nanoseconds; -1 if the kernel does not report it."""
        if self._descriptor is None:
            return UNKNOWN
        try:
            return _run_delay(self._descriptor)
        except (OSError, ValueError, IndexError):
            self.close()
            return UNKNOWN

    def delay_since(self, before_ns: int) -> int:
        """Run delay since :meth:`delay_ns` gave ``before_ns``, in nanoseconds; 0 if it is no longer reported."""
        return max(0, self.delay_ns() - before_ns)

    def close(self) -> None:
        """Close the file; nothing is reported any more."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        try:
            if _identity(descriptor) == self._file:
                os.close(descriptor)
        except (OSError, AttributeError):
            pass

    def __del__(self) -> None:
        self.close()


def _identity(descriptor: int) -> tuple[int, int]:
    """Device and number of an open file."""
    stat = os.fstat(descriptor)
    return stat.st_dev, stat.st_ino


def _run_delay(descriptor: int) -> int:
    return int(os.pread(descriptor, 64, 0).split()[1])
