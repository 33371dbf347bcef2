"""What file a descriptor is, and where its offset stands, followed through open, dup, lseek, fork and threads.

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
class OpenFile:
    """An open file, shared by all descriptors that were made from one.

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
        """The offset of an access that moved some bytes (-1: not known), and move on."""
        if writes and self.append:
            self.position = None
            return -1
        if self.position is None:
            return -1
        at = self.position
        self.position += max(moved, 0)
        return at


@dataclass(slots=True)
class Task:
    """A thread: its process and its table of descriptors."""

    pid: int
    table: dict[int, OpenFile] = field(default_factory=dict)


class Tasks:
    """All threads of a log."""

    def __init__(self) -> None:
        self._tasks: dict[int, Task] = {}
        self._forking: dict[int, bytes] = {}

    def of(self, tid: int) -> Task:
        """The task of a thread; one that was not seen to start belongs to who is just starting one, if any."""
        task = self._tasks.get(tid)
        if task is None:
            parent = next(reversed(self._forking), None)
            if parent is None:
                task = self._tasks[tid] = Task(tid)
            else:
                task = self.start(parent, tid, self._forking[parent])
        return task

    def begins(self, tid: int, text: bytes) -> None:
        """A call that starts a thread or process has begun, and its end stands further down."""
        self.of(tid)
        self._forking.pop(tid, None)
        self._forking[tid] = text

    def ends(self, tid: int) -> None:
        """That call has ended."""
        self._forking.pop(tid, None)

    def start(self, parent: int, tid: int, text: bytes) -> Task:
        """A thread or process that a task started; ``text`` holds the flags."""
        known = self._tasks.get(tid)
        origin = self.of(parent)
        if known is not None and (known.table is origin.table or known.pid != tid):
            return known
        # A task that was seen before its start has opened files of its own, which count.
        own = {} if known is None else known.table
        pid = origin.pid if b"CLONE_THREAD" in text else tid
        table = origin.table if b"CLONE_FILES" in text else {**origin.table}
        table.update(own)
        task = self._tasks[tid] = Task(pid, table)
        return task

    def exits(self, tid: int) -> None:
        """A thread has ended; its number may come again."""
        self._tasks.pop(tid, None)


def look_up(table: dict[int, OpenFile], descriptor: int, path: str | None) -> OpenFile:
    """The open file of a descriptor; one that the log did not show being opened is made, its offset unknown.

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
    found = OpenFile(path, None, is_file=path is None or path.startswith("/"))
    if descriptor >= 0:
        table[descriptor] = found
    return found
