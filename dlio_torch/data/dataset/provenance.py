"""Provenance of batches: the thread that made each batch, times, and scheduling delays of that thread.

The thread that makes a batch records, beside the spans of its work,

=============  ==========================================================================================
``batch``      from the first look for its samples to the finished tensors; ``offset`` is the number of the
               batch, unique in the run
``asleep``     of the time of the batch, how long the thread was blocked: it waited for a device, a server or
               a lock; ``bytes`` is what block devices delivered for it
``run_delay``  how long it could have run and no core was free for it
``kernel``     how long it ran in the kernel: copied out of the page cache, cleared pages.  The kernel counts
               this in ticks of some milliseconds, so only the sum over many batches means something
=============  ==========================================================================================

The last three begin with the batch, and it is their length that counts; what the system does not tell is
not recorded.  The number travels with the batch, so the trainer knows which batch a step waited for.
All of it costs about ten microseconds a batch.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from typing import Any

from dlio_torch.data.dataset.fetched import Fetched
from dlio_torch.formats.core.batch import Batch
from dlio_torch.iotrace.recorder.spans import Recorder

_SCHEDSTAT = "/proc/thread-self/schedstat"  # ns on a core, ns in a queue for one, turns (Documentation/scheduler)
_BLOCK = 512  # unit of ru_inblock, whatever the device's own
_THREAD_BITS = 22  # enough for any thread id (PID_MAX_LIMIT)
_TIME_BITS = 41
_WHO: int | None = getattr(resource, "RUSAGE_THREAD", None)


# What a thread has used so far: CPU time, kernel time and time in the run queue in ns (-1: not told), bytes
# from block devices.
_ThreadUse = tuple[int, int, int, int]
BatchStart = tuple[int, _ThreadUse | None]


def batch_number(start_ns: int, thread: int) -> int:
    """Number of a batch, unique in the run.

    Args:
        start_ns: begin of its production.
        thread: kernel's number of the thread that produced it.
    """
    return start_ns % (1 << _TIME_BITS) << _THREAD_BITS | thread % (1 << _THREAD_BITS)


class BatchRecorder:
    """Recorder of the provenance of batches, for any number of threads and for processes that receive a copy.

    Args:
        recorder: takes the spans; one that is off costs nothing.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._local = threading.local()

    def begin(self) -> BatchStart | None:
        """Start recording; call before any work on a batch."""
        if not self._recorder.enabled:
            return None
        use = self._use()
        return time.perf_counter_ns(), use

    def end(self, begun: BatchStart | None, batch: Batch) -> Fetched:
        """Record a finished batch; returns the batch, with its number if batches are recorded."""
        if begun is None:
            return Fetched(batch)
        add, (start, before) = self._recorder.add, begun
        end, use = time.perf_counter_ns(), self._use()
        number = batch_number(start, threading.get_native_id())
        add("batch", start, end, offset=number)
        if use is not None and before is not None:
            cpu, kernel, delay, device = (now - then for now, then in zip(use, before, strict=True))
            add("kernel", start, start + kernel)
            if use[2] >= 0:
                add("run_delay", start, start + delay)
                add("asleep", start, max(start, end - delay - cpu), bytes=device)
        return Fetched(batch, number)

    def _use(self) -> _ThreadUse | None:
        if _WHO is None:  # no Linux
            return None
        # CPU time first: reading it brings the kernel's other figures of this thread up to date.
        cpu = time.thread_time_ns()
        usage = resource.getrusage(_WHO)
        local = self._local
        if getattr(local, "pid", None) != os.getpid():
            # The file is about the thread that opened it: a forked worker needs its own.
            local.pid, local.queue = os.getpid(), _RunQueue()
        return cpu, round(usage.ru_stime * 1e9), local.queue.delay_ns(), usage.ru_inblock * _BLOCK

    def __getstate__(self) -> dict[str, Any]:
        return {"recorder": self._recorder}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


class _RunQueue:
    """Time for which the thread that created this object has waited for a core."""

    def __init__(self) -> None:
        self._descriptor: int | None = None
        try:
            self._descriptor = os.open(_SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC)
            self.delay_ns()
        except (OSError, ValueError, IndexError):  # another kernel, or one that does not count
            self.__del__()

    def delay_ns(self) -> int:
        """Waiting time so far in nanoseconds; -1 if the kernel does not report it."""
        return -1 if self._descriptor is None else int(os.pread(self._descriptor, 64, 0).split()[1])

    def __del__(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
