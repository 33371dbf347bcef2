"""Named intervals (spans) of every process and thread, recorded at the cost of about a microsecond.

Every process that records owns two files in the events folder::

    rank<r>-<pid>[-n].spans   a header, then records of 48 bytes, written through a shared mapping
    rank<r>-<pid>[-n].names   JSON lines: the process, its threads, and the strings that records refer to

A shared mapping belongs to the kernel as soon as a record is stored, so a process that ends by SIGKILL
or ``os._exit`` (as loader workers do) loses nothing.  A name is in the ``.names`` file before the
first record that refers to it.  :mod:`dlio_torch.trace.events` reads both.

What the processes of a rank may record together is bounded by :mod:`dlio_torch.trace.budget`, where there is one.

The clock is ``time.perf_counter_ns()``: on Linux CLOCK_MONOTONIC, one clock for all processes of a
machine.  The header holds one reading of it beside the wall clock (the anchor).
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import mmap
import os
import struct
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from dlio_torch.syserrors import refused, warn
from dlio_torch.trace.budget import Budget
from dlio_torch.trace.process import describe_process

MAGIC = b"DLIOSPAN"
VERSION = 1
# magic, version, record size, rank, pid, anchor: monotonic ns, anchor: wall-clock ns, 1: the recording ended early
HEADER = struct.Struct("<8sIIiiqqq")
# start ns, end ns, offset, bytes, step, file, tid, op.  The op (0: none) is stored last: a record that
# was cut short by SIGKILL has none and is left out by the reader.
RECORD = struct.Struct("<qqqqiIII")
assert HEADER.size == RECORD.size
_ENDED_EARLY = struct.Struct("<q")
# Mappings start at multiples of this, and no record crosses from one into the next.
_UNIT = math.lcm(RECORD.size, mmap.ALLOCATIONGRANULARITY)
_LARGEST = 256 * _UNIT

_Segment = tuple[Iterator[int], Any]
_NOTHING: _Segment = (iter(()), b"")
_DROPPED = (0, 1, 0)  # ids of a record that goes nowhere


class Recorder:
    """Records spans of this process, of all its threads, and of the processes that inherit or unpickle it.

    A recorder opens its files with the first span; a process that records nothing leaves no file.
    After ``fork``, and in a spawned worker that received the recorder with its Dataset, the first span
    opens files of that process.

    Args:
        directory: the events folder of the run; made when needed.
        rank: rank that this process, or the trainer above it, has.
        enabled: whether anything is recorded; :data:`NULL` is a recorder that is off.
        role: what a process is called that is no loader worker and no other child process.
    """

    _lock: threading.RLock
    _thread: threading.local
    _names: dict[str | None, int]
    _descriptors: tuple[int, int] | None  # of the records and of the names
    _segment: _Segment
    _mapped: int  # bytes of the records file
    _header: Any  # mapped
    _failed: bool
    _budget: Budget | None
    _kept: int  # bytes of the budget that were taken before their use
    _uses_kept: bool

    def __init__(self, directory: Path | str, rank: int, enabled: bool = True, role: str = "trainer") -> None:
        self.directory = Path(directory).absolute()
        self.rank = rank
        self.enabled = enabled
        self.role = role
        self._forget()
        if enabled:
            # Hooks cannot be taken back, so they must not keep the recorder alive.
            forget = weakref.WeakMethod(self._forget)
            os.register_at_fork(after_in_child=lambda: _call(forget))

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
        """Record an interval that has ended.

        Args:
            op: what was done, one of few names (``read``, ``decode``, ``fetch``, ``compute``...).
            start_ns: ``time.perf_counter_ns()`` before it.
            end_ns: ``time.perf_counter_ns()`` after it.
            step: training step, -1: none.
            file: path that was touched, if one.
            offset: first byte that was touched, -1: not known.
            bytes: number of bytes that were asked for, -1: not known.

        Where the file system has no room for the record, or cannot map files, this process records nothing more: a
        line says so, and so does the file.
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
        slots, buffer = self._segment
        slot = next(slots, -1)
        while slot < 0:
            try:
                slots, buffer = self._grow(slots)
            except OSError as error:
                self._end_early(error)
                return
            slot = next(slots, -1)
        RECORD.pack_into(buffer, slot, start_ns, end_ns, offset, bytes, step, file_id, tid, op_id)

    def keep(self, count: int) -> bool:
        """Take room for ``count`` records that are added within :meth:`kept`, however full it is by then.

        Returns:
            Whether there was room; if not, nothing is recorded any more, by no process of the rank.
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
        """A context in which records may be added for which :meth:`keep` has taken room.

        Gives the time (monotonic ns) when the recording was over; 0 where it goes on.  What began later is not to be
        added.
        """
        with self._lock:
            full_ns = 0 if self._budget is None else self._budget.full_ns
            enabled = self.enabled or (self._kept > 0 and not self._failed)
            was, self.enabled, self._uses_kept = self.enabled, enabled, True
            if not was:
                self._segment = _NOTHING
        try:
            yield full_ns
        finally:
            with self._lock:
                self.enabled, self._uses_kept = was and self.enabled, False

    def span(
        self, op: str, *, step: int = -1, file: str | None = None, offset: int = -1, bytes: int = -1
    ) -> Span | NullSpan:
        """A context that records the time spent inside; arguments as for :meth:`add`.

        The context's ``step``, ``file``, ``offset`` and ``bytes`` may be set inside, when they become known.
        The span is recorded even when the body raises.
        """
        if not self.enabled:
            return _NULL_SPAN
        return Span(self, op, step=step, file=file, offset=offset, bytes=bytes)

    def close(self) -> None:
        """Release the files, once no other thread records; a later span opens new ones."""
        with self._lock:
            descriptors, self._descriptors = self._descriptors, None
            self._segment, self._names, self._thread = _NOTHING, {None: 0}, threading.local()
            if self._budget is not None:
                self._budget.close()
                self._budget = None
            for descriptor in descriptors or ():
                os.close(descriptor)

    def __getstate__(self) -> dict[str, Any]:
        return {"directory": self.directory, "rank": self.rank, "enabled": self.enabled, "role": self.role}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def _forget(self) -> None:
        """Start anew without touching what this process inherited (called after fork, in the child)."""
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
        self._names = {None: 0}
        self._descriptors = None
        self._segment = _NOTHING
        self._mapped = 0
        self._header = None

    def _introduce(self, op: str, file: str | None) -> tuple[int, int, int]:
        """Ids of this thread and of two names, written to the table of names where they are new."""
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

    def _tell(self, descriptor: int, value: dict[str, Any]) -> bool:
        line = _line(value)
        if not self._spend(len(line)):
            return False
        _write_line(descriptor, line)
        return True

    def _spend(self, size: int, files: int = 0) -> bool:
        """Take bytes of the budget; where it is used up, what comes next in this process goes nowhere."""
        if self._budget is None:
            self._budget = Budget(self.directory, self.rank)
        if self._uses_kept and self._kept:
            self._kept = max(0, self._kept - size)
            return True
        if self._budget.take(size, files):
            return True
        self.enabled = False
        self._segment = iter(range(0, _UNIT, RECORD.size)), bytearray(_UNIT)
        return False

    def _grow(self, full: Iterator[int]) -> _Segment:
        with self._lock:
            if self._segment[0] is not full:  # another thread was faster
                return self._segment
            opened = self._open()
            if opened is not None and self._segment[0] is full:
                size = min(max(_UNIT, self._mapped), _LARGEST)
                if self._uses_kept and self._kept:
                    size = min(size, max(_UNIT, -(-self._kept // _UNIT) * _UNIT))
                if self._spend(size):
                    self._segment = self._map(opened[0], size)
            return self._segment

    def _open(self) -> tuple[int, int] | None:
        """The files of this process, made at the first call, with header and first segment; None where it may not."""
        if self._descriptors is None:
            if not self._spend(_UNIT, files=2):
                return None
            self.directory.mkdir(parents=True, exist_ok=True)
            records_fd, names_fd = _create(self.directory, f"rank{self.rank}-{os.getpid()}")
            anchor = (time.perf_counter_ns(), time.time_ns())
            head = {"version": VERSION, "rank": self.rank, **describe_process(self.role, anchor)}
            try:
                _write_line(names_fd, _line(head))
                self._mapped = 0
                slots, buffer = self._map(records_fd, _UNIT)
            except OSError:
                os.close(records_fd)
                os.close(names_fd)
                raise
            HEADER.pack_into(buffer, next(slots), MAGIC, VERSION, RECORD.size, self.rank, os.getpid(), *anchor, 0)
            self._header = buffer
            self._descriptors, self._segment = (records_fd, names_fd), (slots, buffer)
        return self._descriptors

    def _end_early(self, error: OSError) -> None:
        """Record nothing more, and say so."""
        with self._lock:
            if not self.enabled:
                return
            self.enabled, self._failed = False, True
            if self._header is not None:
                _ENDED_EARLY.pack_into(self._header, HEADER.size - _ENDED_EARLY.size, 1)
        line = refused(f"spans cannot be recorded in {self.directory}", error, elsewhere="set trace.spans=false")
        warn(f"{line}; from here on those of process {os.getpid()} are missing")

    def _map(self, descriptor: int, size: int) -> _Segment:
        # Without reserved blocks a full disk would end the process with SIGBUS at some later store.
        os.posix_fallocate(descriptor, self._mapped, size)
        buffer = mmap.mmap(descriptor, size, offset=self._mapped)
        self._mapped += size
        return iter(range(0, size, RECORD.size)), buffer


class Span:
    """A context that records its duration; see :meth:`Recorder.span`."""

    __slots__ = ("_recorder", "_start_ns", "bytes", "file", "offset", "op", "step")

    def __init__(self, recorder: Recorder, op: str, *, step: int, file: str | None, offset: int, bytes: int) -> None:
        self._recorder = recorder
        self.op = op
        self.step = step
        self.file = file
        self.offset = offset
        self.bytes = bytes

    def __enter__(self) -> Span:
        self._start_ns = time.perf_counter_ns()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        end_ns = time.perf_counter_ns()
        self._recorder.add(
            self.op, self._start_ns, end_ns, step=self.step, file=self.file, offset=self.offset, bytes=self.bytes
        )


class NullSpan:
    """The context of a recorder that is off: one shared object that keeps nothing."""

    __slots__ = ()
    step: int
    file: str | None
    offset: int
    bytes: int

    def __setattr__(self, name: str, value: object) -> None:
        """Accept what a :class:`Span` accepts, and drop it."""

    def __enter__(self) -> NullSpan:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        return None


_NULL_SPAN = NullSpan()
NULL = Recorder(Path(os.devnull), rank=-1, enabled=False)
"""A recorder that is off: same interface, keeps nothing."""


def _create(directory: Path, stem: str) -> tuple[int, int]:
    """New files for records and names; a process id that came round again gets a number."""
    number = 1
    while True:
        path = directory / (stem if number == 1 else f"{stem}-{number}")
        try:
            records_fd = os.open(f"{path}.spans", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            number += 1
            continue
        return records_fd, os.open(f"{path}.names", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)


def _line(value: dict[str, Any]) -> bytes:
    # ASCII escapes carry any file name, undecodable bytes (lone surrogates) included.
    return json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"


def _write_line(descriptor: int, line: bytes) -> None:
    if os.write(descriptor, line) < len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _call(reference: weakref.WeakMethod[Any]) -> None:
    method = reference()
    if method is not None:
        method()
