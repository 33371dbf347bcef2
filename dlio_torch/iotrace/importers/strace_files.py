"""Tracks the files and offsets of descriptors through open, dup, lseek, fork and threads.

A kernel's table maps descriptors to open files; ``dup`` and ``fork`` share the open file with its offset,
threads (``CLONE_FILES``) share the whole table.  That is kept here.  What a log cannot show is approximated:

* a table that a process inherits is copied when the log shows its ``clone``; calls of other threads in between
  are taken in the order of the log;
* two reads of one descriptor by two threads at once get their offsets in the order in which they ended;
* descriptors closed by ``execve`` are only forgotten when their number is used again.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class TracedFile:
    """An open file, shared by its duplicated descriptors.

    Args:
        path: its path, None where the log does not show it.
        position: its offset, None where it is not known.
        is_file: False for pipes, sockets and the like.
        append: whether each write goes to its end, wherever that is.
    """

    path: str | None
    position: int | None
    is_file: bool = True
    append: bool = False

    def advance(self, moved: int, writes: bool) -> int:
        """Offset of an access (-1: not known); moves the file position forward."""
        if writes and self.append:
            self.position = None
            return -1
        if self.position is None:
            return -1
        offset = self.position
        self.position += max(moved, 0)
        return offset


@dataclass(slots=True)
class TracedTask:
    """A thread: its process and its table of descriptors."""

    pid: int
    table: dict[int, TracedFile] = field(default_factory=dict)


class TracedTasks:
    """All threads of a log."""

    def __init__(self) -> None:
        self._tasks: dict[int, TracedTask] = {}
        self._forking: dict[int, bytes] = {}

    def of(self, tid: int) -> TracedTask:
        """Task of a thread; a thread of unknown start belongs to the task that is starting a thread, if any."""
        task = self._tasks.get(tid)
        if task is None:
            parent = next(reversed(self._forking), None)
            if parent is None:
                task = self._tasks[tid] = TracedTask(tid)
            else:
                task = self.start(parent, tid, self._forking[parent])
        return task

    def begins(self, tid: int, text: bytes) -> None:
        """Marks that a task begins an interrupted call that starts a thread or process."""
        self.of(tid)
        self._forking.pop(tid, None)
        self._forking[tid] = text

    def ends(self, tid: int) -> None:
        """Marks that the interrupted call of a task ends."""
        self._forking.pop(tid, None)

    def start(self, parent: int, tid: int, text: bytes) -> TracedTask:
        """Adds a thread or process that a task started; ``text`` contains the flags."""
        known = self._tasks.get(tid)
        origin = self.of(parent)
        if known is not None and (known.table is origin.table or known.pid != tid):
            return known
        # A task that was seen before its start has opened files of its own, which count.
        opened_before = {} if known is None else known.table
        pid = origin.pid if b"CLONE_THREAD" in text else tid
        table = origin.table if b"CLONE_FILES" in text else {**origin.table}
        table.update(opened_before)
        task = self._tasks[tid] = TracedTask(pid, table)
        return task

    def exits(self, tid: int) -> None:
        """Marks that a thread has ended; its number may be used again."""
        self._tasks.pop(tid, None)


def look_up(table: dict[int, TracedFile], descriptor: int, path: str | None) -> TracedFile:
    """Open file of a descriptor; a new one with unknown offset if the log does not show its open.

    Args:
        table: the process's descriptors.
        descriptor: the number.
        path: what ``-y`` prints, None without; where it contradicts the table, it is right.
    """
    known = table.get(descriptor)
    if known is not None and (path is None or known.path == path):
        return known
    if path is not None:
        # It may be a copy that the log did not show being made (dup, fcntl): then it moves their offset, too.
        for other in table.values():
            if other.path == path:
                other.position = None
    opened = TracedFile(path, None, is_file=path is None or path.startswith("/"))
    if descriptor >= 0:
        table[descriptor] = opened
    return opened
