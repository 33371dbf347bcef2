"""Records named intervals (spans) of every process and thread, at a cost of about a microsecond each.

Every recording process owns two files in the events folder::

    rank<r>-<pid>[-n].spans   a header, then records of 48 bytes, written through a shared mapping
    rank<r>-<pid>[-n].names   JSON lines: the process, its threads, and the strings that records refer to

A stored record belongs to the kernel, since the mapping is shared.  A process that ends by SIGKILL or ``os._exit`` (as
loader workers do) therefore loses nothing.  A name is in the ``.names`` file before the first record that refers to
it.  :mod:`dlio_torch.iotrace.events.event_table` reads both files.

:mod:`dlio_torch.iotrace.recorder.budget` bounds the recordings of all processes of a rank.

The clock is ``time.perf_counter_ns()``: on Linux CLOCK_MONOTONIC, one clock for all processes of a machine.  The
header holds one reading of it and of the wall clock at the same moment (the anchor).
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dlio_torch.iotrace.events.span_format import ENDED_EARLY, HEADER, MAGIC, RECORD, VERSION
from dlio_torch.iotrace.recorder import span_files
from dlio_torch.iotrace.recorder.budget import Budget
from dlio_torch.iotrace.recorder.process_identity import call_after_fork, describe_process
from dlio_torch.iotrace.recorder.span_contexts import NULL_SPAN, NullSpan, Span
from dlio_torch.iotrace.recorder.span_files import NO_SEGMENT, UNIT, Segment
from dlio_torch.syserrors import refused, warn

_LARGEST = 256 * UNIT
_DROPPED = (0, 1, 0)  # ids of a record that goes nowhere


class Recorder:
    """Recorder of spans of this process, of all its threads, and of processes that inherit or unpickle it.

    The first span of a process opens its files, also after ``fork`` and in a spawned worker that received the recorder
    with its Dataset.  A process without spans leaves no file.

    Args:
        directory: the events folder of the run; made when needed.
        rank: rank that this process, or the trainer above it, has.
        enabled: whether anything is recorded; :data:`NULL` is a recorder that is off.
        role: name of a process that is neither a loader worker nor another child process.
        limit_bytes: size that the files of one process may reach; None: only the budget of the rank limits them.
    """

    _lock: threading.RLock
    _thread: threading.local
    _others: set[int]  # threads that run no Python and are in the table of names
    _names: dict[str | None, int]
    _descriptors: tuple[int, int] | None  # of the records and of the names
    segment: Segment
    _mapped: int  # bytes of the records file
    _spent: int  # bytes of both files
    _header: Any  # mapped
    _failed: bool
    _budget: Budget | None
    _kept: int  # reserved bytes of the budget
    _uses_kept: bool

    def __init__(
        self,
        directory: Path | str,
        rank: int,
        enabled: bool = True,
        role: str = "trainer",
        limit_bytes: int | None = None,
    ) -> None:
        self.limit_bytes = limit_bytes
        self.directory = Path(directory).absolute()
        self.rank = rank
        self.enabled = enabled
        self.role = role
        self._forget()
        if enabled:
            call_after_fork(self._forget)

    def add(
        self,
        op: str,
        start_ns: int,
        end_ns: int,
        *,
        step: int = -1,
        file: str | None = None,
        offset: int = -1,
        bytes: int = -1,
    ) -> None:
        """Records an interval that has ended.

        If the file system has no space for the record, or cannot map files, this process stops recording.  A warning
        says so, and the file is marked.

        Args:
            op: name of the operation, of a small set (``read``, ``decode``, ``fetch``, ``compute``...).
            start_ns: begin, as ``time.perf_counter_ns()`` tells it.
            end_ns: end, likewise.
            step: training step; -1: none.
            file: path of the accessed file; None: none.
            offset: first accessed byte; -1: not known.
            bytes: number of requested bytes; -1: not known.
        """
        if not self.enabled:
            return
        try:
            tid = self._thread.tid
            names = self._names
            op_id, file_id = names[op], names[file]
        except (AttributeError, KeyError):
            try:
                tid, op_id, file_id = self._introduce(op, file)
            except OSError as error:
                self._end_early(error)
                return
        # One tuple holds the free slots and their buffer, and next() of a range is atomic under the
        # interpreter lock: threads need no other lock until the segment is full.
        slots, buffer = self.segment
        slot = next(slots, -1)
        while slot < 0:
            try:
                slots, buffer = self._grow(slots)
            except OSError as error:
                self._end_early(error)
                return
            slot = next(slots, -1)
        RECORD.pack_into(buffer, slot, start_ns, end_ns, offset, bytes, step, file_id, tid, op_id)

    @contextlib.contextmanager
    def as_thread(self, number: int, name: str) -> Iterator[None]:
        """Context in which the spans of the calling thread count as those of another one, which runs no Python.

        Args:
            number: that the kernel gave the thread.
            name: of the thread, for the table of threads.
        """
        if self.enabled and number not in self._others:
            try:
                self._introduce_other(number, name)
            except OSError as error:
                self._end_early(error)
        local, before = self._thread, getattr(self._thread, "tid", None)
        local.tid = number
        try:
            yield
        finally:
            if before is None:
                del local.tid
            else:
                local.tid = before

    def ids(self, op: str, file: str | None) -> tuple[int, int, int]:
        """Ids of this thread and of two names in the records of this process; they hold until a fork."""
        try:
            return self._introduce(op, file) if self.enabled else _DROPPED
        except OSError as error:
            self._end_early(error)
            return _DROPPED

    def keep(self, count: int) -> bool:
        """Reserves budget for ``count`` records that are added later, within :meth:`kept`.

        Returns:
            Whether the budget held them.  If not, it is exhausted: no process of the rank records any more.
        """
        if not self.enabled:
            return False
        with self._lock:
            if not self._spend(count * RECORD.size):
                return False
            self._kept += count * RECORD.size
            return True

    @contextlib.contextmanager
    def kept(self) -> Iterator[int]:
        """Context in which records may be added for which :meth:`keep` has reserved budget.

        Yields the end of the recording (monotonic ns); 0 if it goes on.  Later spans must not be added.
        """
        with self._lock:
            full_ns = 0 if self._budget is None else self._budget.full_ns
            enabled = self.enabled or (self._kept > 0 and not self._failed)
            was, self.enabled, self._uses_kept = self.enabled, enabled, True
            if not was:
                self.segment = NO_SEGMENT
        try:
            yield full_ns
        finally:
            with self._lock:
                self.enabled, self._uses_kept = was and self.enabled, False

    def span(
        self, op: str, *, step: int = -1, file: str | None = None, offset: int = -1, bytes: int = -1
    ) -> Span | NullSpan:
        """Context that records its duration as a span; arguments as for :meth:`add`.

        The context's ``step``, ``file``, ``offset`` and ``bytes`` may be set inside, when they become known.
        The span is recorded even when the body raises.
        """
        if not self.enabled:
            return NULL_SPAN
        return Span(self, op, step=step, file=file, offset=offset, bytes=bytes)

    def close(self) -> None:
        """Closes the files, once no other thread records; a later span opens new files."""
        with self._lock:
            descriptors, self._descriptors = self._descriptors, None
            self.segment, self._names, self._thread = NO_SEGMENT, {None: 0}, threading.local()
            self._others = set()
            if self._budget is not None:
                self._budget.close()
                self._budget = None
            for descriptor in descriptors or ():
                os.close(descriptor)

    def __getstate__(self) -> dict[str, Any]:
        names = ("directory", "rank", "enabled", "role", "limit_bytes")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def _forget(self) -> None:
        """Resets the recorder without changing inherited mappings (called after fork, in the child)."""
        inherited = getattr(self, "_budget", None)
        if inherited is not None:
            inherited.close()
        self._budget, self._kept, self._uses_kept, self._failed = None, 0, False, False
        for descriptor in getattr(self, "_descriptors", None) or ():
            with contextlib.suppress(OSError):
                os.close(descriptor)
        # Reentrant, since a finaliser that the collector runs inside a locked part may record, too.
        self._lock = threading.RLock()
        self._thread = threading.local()
        self._others = set()
        self._names = {None: 0}
        self._descriptors = None
        self.segment = NO_SEGMENT
        self._mapped, self._spent = 0, 0
        self._header = None

    def _introduce(self, op: str, file: str | None) -> tuple[int, int, int]:
        """Ids of this thread and of two names; new ids are written to the table of names."""
        with self._lock:
            opened = self._open()
            if opened is None:
                return _DROPPED
            names_fd = opened[1]
            tid = getattr(self._thread, "tid", None)
            if tid is None:
                tid = threading.get_native_id()
                if not self._tell(names_fd, {"tid": tid, "thread": threading.current_thread().name}):
                    return _DROPPED
                self._thread.tid = tid
            for name in (op, file):
                if name not in self._names:
                    number = len(self._names)
                    if not self._tell(names_fd, {"id": number, "name": name}):
                        return _DROPPED
                    self._names[name] = number
            return tid, self._names[op], self._names[file]

    def _introduce_other(self, number: int, name: str) -> None:
        with self._lock:
            opened = self._open()
            if opened is not None and self._tell(opened[1], {"tid": number, "thread": name}):
                self._others.add(number)

    def _tell(self, descriptor: int, value: dict[str, Any]) -> bool:
        line = span_files.json_line(value)
        if not self._spend(len(line)):
            return False
        span_files.write_line(descriptor, line)
        return True

    def _spend(self, size: int, files: int = 0) -> bool:
        """Takes bytes from the budget; if it is exhausted, this process drops later records."""
        if self._budget is None:
            self._budget = Budget(self.directory, self.rank)
        if self._uses_kept and self._kept:
            self._kept = max(0, self._kept - size)
            return True
        self._spent += size
        is_over = self.limit_bytes is not None and self._spent > self.limit_bytes
        if not is_over and self._budget.take(size, files):
            return True
        if is_over:
            self._mark_end()
        self.enabled = False
        self.segment = span_files.buffer_in_memory()
        return False

    def _grow(self, full: Iterator[int]) -> Segment:
        with self._lock:
            if self.segment[0] is not full:  # another thread was faster
                return self.segment
            opened = self._open()
            if opened is not None and self.segment[0] is full:
                size = min(max(UNIT, self._mapped), _LARGEST)
                if self._uses_kept and self._kept:
                    size = min(size, max(UNIT, -(-self._kept // UNIT) * UNIT))
                if self._spend(size):
                    self.segment = self._map(opened[0], size)
            return self.segment

    def _open(self) -> tuple[int, int] | None:
        """Opens the files of this process at the first call; returns None if the budget is exhausted."""
        if self._descriptors is None:
            if not self._spend(UNIT, files=2):
                return None
            self.directory.mkdir(parents=True, exist_ok=True)
            records_fd, names_fd = span_files.create_span_files(self.directory, f"rank{self.rank}-{os.getpid()}")
            anchor = (time.perf_counter_ns(), time.time_ns())
            head = {"version": VERSION, "rank": self.rank, **describe_process(self.role, anchor)}
            try:
                span_files.write_line(names_fd, span_files.json_line(head))
                self._mapped = 0
                slots, buffer = self._map(records_fd, UNIT)
            except OSError:
                os.close(records_fd)
                os.close(names_fd)
                raise
            HEADER.pack_into(buffer, next(slots), MAGIC, VERSION, RECORD.size, self.rank, os.getpid(), *anchor, 0)
            self._header = buffer
            self._descriptors, self.segment = (records_fd, names_fd), (slots, buffer)
        return self._descriptors

    def _end_early(self, error: OSError) -> None:
        """Ends the recording of this process, with a warning."""
        with self._lock:
            if not self.enabled:
                return
            self.enabled, self._failed = False, True
            self._mark_end()
        line = refused(f"spans cannot be recorded in {self.directory}", error, elsewhere="set trace.spans=false")
        warn(f"{line}; all later spans of process {os.getpid()} are missing")

    def _mark_end(self) -> None:
        if self._header is not None:
            ENDED_EARLY.pack_into(self._header, HEADER.size - ENDED_EARLY.size, 1)

    def _map(self, descriptor: int, size: int) -> Segment:
        segment = span_files.map_segment(descriptor, self._mapped, size)
        self._mapped += size
        return segment


NULL = Recorder(Path(os.devnull), rank=-1, enabled=False)
"""Recorder that is off: it has the same interface and records nothing."""
