"""Run delay of a thread: how long it could have run while no core was free for it, as Linux counts it."""

from __future__ import annotations

import contextlib
import os

SCHEDSTAT = "/proc/thread-self/schedstat"
"""ns on a core, ns in a queue for one, turns; of the thread that opens it (Documentation/scheduler/sched-stats)."""
UNKNOWN = -1
"""Run delay where the kernel does not report it."""


def run_delay_ns() -> int:
    """Run delay of the calling thread so far in nanoseconds; -1 if the kernel does not report it.

    It takes some microseconds and leaves no file open, so that it can be called within any program.
    """
    try:
        descriptor = os.open(SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return UNKNOWN
    try:
        return _run_delay(os.read(descriptor, 64))
    except (OSError, ValueError, IndexError):
        return UNKNOWN
    finally:
        os.close(descriptor)


def run_delay_since(before_ns: int) -> int:
    """Run delay of the calling thread since :func:`run_delay_ns` gave ``before_ns``; 0 if it is no longer reported."""
    return max(0, run_delay_ns() - before_ns)


def _run_delay(text: bytes) -> int:
    return int(text.split()[1])


class RunQueue:
    """Run delay of the thread that created this object, from a file that stays open: a fifth of the time."""

    def __init__(self) -> None:
        self._descriptor: int | None = None
        if run_delay_ns() != UNKNOWN:
            with contextlib.suppress(OSError):
                self._descriptor = os.open(SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC)

    def delay_ns(self) -> int:
        """Run delay so far in nanoseconds; -1 if the kernel does not report it."""
        return UNKNOWN if self._descriptor is None else _run_delay(os.pread(self._descriptor, 64, 0))

    def __del__(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
