"""Pool of C threads of ``read_core.c`` that fills memory by jobs: extents, records and copies."""

from __future__ import annotations

import atexit
import ctypes
import os
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_torch import native
from dlio_torch.native.chunks import inflate_packages
from dlio_torch.native.memory import address_of

Ints = npt.NDArray[np.int64]
EXTENTS, COPIES, RECORDS, CHUNKS = range(4)
"""Kinds of a task."""
TASK_FIELDS = 8
"""Int64 numbers of the row of a task: see ``struct task`` in ``core_tasks.h``."""
USE_FIELDS = 10
"""Int64 numbers of the row of a part: see ``struct use`` in ``core_use.h``."""
TOO_SHORT, UNSUPPORTED, CANCELLED = -1, -2, -3
"""Results of a job beside 0 and errno: a file ended, an item needs another decoder, the job was given up."""

_PART_BYTES = 1 << 20  # of a job that one thread takes, unless requests are larger
_SLICE_S = 0.1  # most seconds of a wait outside of Python, which notices signals
_CLOSING_S = 2.0
_REPORT_FIELDS = 6
_NO_USES = np.empty((0, USE_FIELDS), np.int64)


def _nothing() -> None:
    """Does nothing during a wait."""


def _ignore(kept: Any, base: int) -> None:
    """Does nothing with a job that has ended."""


class Report(NamedTuple):
    """Result of a job.

    Attributes:
        result: 0; an errno; or one of the constants above.
        task: number of the task that failed.
        item: number of the item of it that failed.
        got: bytes of that item that were read.
        cold: much of it was not in the page cache.
        uses: of each recorded part, the fields of ``struct use``; int64 of ``(parts, USE_FIELDS)``.
    """

    result: int
    task: int
    item: int
    got: int
    cold: bool
    uses: Ints


class ReadCore:
    """Pool of threads that read without Python; used by one thread at a time.

    Args:
        threads: how many.
        request: most bytes of a read request.
        block: bytes of a block of direct reads, a power of two; 0: files are read through the page cache.
        depth: requests in flight of the ring of each thread, by io_uring; 0: threads read by read calls.

    Attributes:
        implementation: the C file, for reports.
        calls: calls of C functions that gave up the interpreter lock so far.

    Raises:
        NativeUnavailable: there is no library and none could be compiled.
        OSError: the system starts no more threads.
    """

    def __init__(self, threads: int, request: int, block: int = 0, depth: int = 0) -> None:
        _, file = native.open_library("read_core")
        self.implementation = f"read_core.c, {file.origin}"
        self._functions = _Functions(file.path)
        self._functions.use_packages(*inflate_packages())
        self._threads = threads
        self._pid = os.getpid()
        self._kept: dict[int, Any] = {}  # objects whose memory jobs use
        self.calls = 0
        self._fields = np.empty(_REPORT_FIELDS, np.int64)
        self._fields_address = address_of(self._fields)
        part = request if request >= _PART_BYTES else _PART_BYTES // request * request
        settings = np.array([request, part, block, depth], np.int64)
        self._core: int | None = self._functions.open(threads, address_of(settings))
        if not self._core:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        _OPEN.add(self)

    @property
    def thread_numbers(self) -> list[int]:
        """Kernel numbers of the threads."""
        if not self.is_open:
            return []
        numbers = np.zeros(self._threads, np.int64)
        self._functions.threads(self._core, address_of(numbers))
        return list(numbers.tolist())

    def submit(self, tasks: int, count: int, base: int, kept: Any, *, recorded: bool = False) -> int:
        """Start a job; returns its handle, which :meth:`finish` frees.

        Args:
            tasks: address of ``count`` rows of :data:`TASK_FIELDS` int64 numbers, which are copied.
            count: tasks, at least 1.
            base: address of the memory that is filled; 0: the block that was given last when the job begins, of which
                there is one to spare.
            kept: refers to that memory and to the arrays of the tasks; is kept until the job is complete.
            recorded: record the parts of the job.
        """
        job: int | None = self._functions.submit(self._core, tasks, count, base, recorded)
        if not job:
            raise MemoryError("no memory for a job of the read core")
        self._kept[job] = kept
        return job

    def wait(self, jobs: Sequence[int], seconds: float | None, idle: Callable[[], None] = _nothing) -> int | None:
        """Waits for one of some jobs; returns the first of them that is complete, or ``None`` after ``seconds``.

        Args:
            jobs: handles.
            seconds: ``None``: no limit.
            idle: is called every tenth of a second of a longer wait, which its exception ends.
        """
        is_complete = self._functions.is_complete
        for job in jobs:
            if is_complete(job):
                return job
        handles = (ctypes.c_void_p * len(jobs))(*jobs)
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            left = _SLICE_S if end is None else min(_SLICE_S, end - time.monotonic())
            if left <= 0:
                return None
            self.calls += 1
            position: int = self._functions.wait(self._core, handles, len(jobs), left)
            if position >= 0:
                return jobs[position]
            idle()

    @property
    def is_open(self) -> bool:
        """Whether the threads can be used: the pool is not closed, and was opened in this process."""
        return self._core is not None and self._pid == os.getpid()

    def give(self, address: int) -> None:
        """Give a block of memory for jobs without memory of their own."""
        if not self._functions.give(self._core, address):
            raise MemoryError("no memory for the list of blocks of the read core")

    def forget_blocks(self) -> None:
        """Forget all given blocks; no job is under way."""
        self._functions.forget_blocks(self._core)

    def spare(self) -> int:
        """Number of given blocks that no job is going to take."""
        return int(self._functions.spare(self._core))

    def finish(self, job: int) -> tuple[int, Report | None]:
        """Frees a complete job.

        Returns:
            The address of its memory, 0: it has not begun; and how it ended, or ``None`` if there is nothing to say:
            all is read.
        """
        functions = self._functions
        report, uses = None, _NO_USES
        parts = functions.report(job, self._fields_address)
        result, task, item, got, cold, base = self._fields.tolist()
        if parts:
            uses = np.empty((parts, USE_FIELDS), np.int64)
            functions.uses(job, address_of(uses))
            functions.release(job)
        if parts or result or cold:
            report = Report(result, task, item, got, bool(cold), uses)
        del self._kept[job]
        return base, report

    def cancel(self, on_end: Callable[[Any, int], None] = _ignore, seconds: float = _CLOSING_S) -> bool:
        """Gives up all jobs; returns whether all were complete in time.  The memory of the others is never freed.

        Args:
            on_end: is called with what was kept for each job that has ended, and the address of its memory.
            seconds: to wait.
        """
        if not self.is_open:
            return True
        self._functions.cancel(self._core)
        end = time.monotonic() + seconds
        for job in list(self._kept):
            if self.wait([job], max(0.0, end - time.monotonic())) is None:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._kept.pop(job)))
            else:
                on_end(self._kept[job], self.finish(job)[0])
        return bool(self._functions.is_idle(self._core))

    @property
    def is_idle(self) -> bool:
        """Whether no thread is inside a part of a job."""
        return not self.is_open or bool(self._functions.is_idle(self._core))

    def close(self) -> None:
        """End the threads; one that is still inside a read after two seconds ends after that read."""
        core = self._core
        if not self.is_open:  # a forked process has none of the threads
            return
        end = time.monotonic() + _CLOSING_S
        self.cancel()
        self._core = None
        self._functions.close(core, max(0.0, end - time.monotonic()))

    def __del__(self) -> None:
        if getattr(self, "_core", None):
            self.close()


class _Functions:
    """The functions of the library; those that neither wait nor start threads keep the interpreter lock."""

    def __init__(self, path: Any) -> None:
        waiting, quick = ctypes.CDLL(str(path), use_errno=True), ctypes.PyDLL(str(path))
        pointer, integer, number, seconds = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_double

        def function(library: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Any:
            native_function = getattr(library, f"dlio_core_{name}")
            native_function.restype, native_function.argtypes = result, arguments
            return native_function

        self.open = function(waiting, "open", pointer, integer, pointer)
        self.wait = function(waiting, "wait", integer, pointer, pointer, integer, seconds)
        self.close = function(waiting, "close", integer, pointer, seconds)
        self.use_packages = function(quick, "use_packages", None, ctypes.c_char_p, ctypes.c_char_p)
        self.threads = function(quick, "threads", None, pointer, pointer)
        self.submit = function(quick, "submit", pointer, pointer, pointer, integer, ctypes.c_uint64, number)
        self.give = function(quick, "give", number, pointer, ctypes.c_uint64)
        self.forget_blocks = function(quick, "forget_blocks", None, pointer)
        self.spare = function(quick, "spare", integer, pointer)
        self.is_complete = function(quick, "is_complete", number, pointer)
        self.report = function(quick, "report", integer, pointer, pointer)
        self.uses = function(quick, "uses", None, pointer, pointer)
        self.release = function(quick, "release", None, pointer)
        self.cancel = function(quick, "cancel", None, pointer)
        self.is_idle = function(quick, "is_idle", number, pointer)


_OPEN: weakref.WeakSet[ReadCore] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Ends all threads before the interpreter frees the memory that they fill."""
    for core in list(_OPEN):
        core.close()
