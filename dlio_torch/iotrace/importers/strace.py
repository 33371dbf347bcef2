"""Reads the text of strace: system calls on files by all threads and processes.

``file`` is what ``-y`` prints (the kernel's name, symbolic links resolved) or, without ``-y``, the path that
``open`` was called with.  Offsets of ``read`` and ``write`` are followed per open file
(:mod:`dlio_torch.iotrace.importers.strace_files`) where the log shows the open or a seek, and are -1 elsewhere.
Calls on pipes, sockets and the like are left out.  strace slows each call down by some 50 µs or more, so
``trusted_times`` is False.  A trace does not tell ranks: all processes have rank 0.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dlio_torch.errors import DataError
from dlio_torch.iotrace.events import call_names
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.iotrace.importers import strace_calls, strace_lines
from dlio_torch.iotrace.importers.event_rows import POSIX, TableBuilder, imported_process, in_range, small
from dlio_torch.iotrace.importers.strace_files import TracedFile, TracedTasks, look_up
from dlio_torch.iotrace.importers.strace_times import StampedLines

_ENDS = re.compile(rb"(?:^|, )(\d{1,10})(?=[<,\]])")
_COUNTED = strace_calls.MOVES | strace_calls.OPENS | strace_calls.ON_DESCRIPTOR | strace_calls.ON_PATH


def read_strace(path: Path, files: Sequence[Path]) -> Recording:
    """Reads one log of ``strace -f``, or the files that ``strace -ff`` writes, one per thread.

    Args:
        path: what the user named.
        files: the logs.

    Raises:
        DataError: a file cannot be read, has no times, or no call on files is in any of them.
    """
    reader = _StraceReader(path, StampedLines(files))
    reader.read()
    if not len(reader.builder):
        raise DataError(
            f"{path} contains no system call on a file" + (f" ({'; '.join(reader.notes())})" if reader.notes() else ""),
            hint="trace the program with: strace -f -y -ttt -T -e trace=%file,%desc -o LOG PROGRAM",
        )
    return reader.recording()


class _StraceReader:
    def __init__(self, path: Path, lines: StampedLines) -> None:
        self.path = path
        self.lines = lines
        self.builder = TableBuilder()
        self.tasks = TracedTasks()
        self.left_out: Counter[str] = Counter()
        self.untimed = 0
        self._processes: dict[int, int] = {}
        self._seen: set[str] = set()
        self._main: int | None = None

    def read(self) -> None:
        """Reads all lines, in order of time."""
        waiting: dict[int, tuple[int, bytes]] = {}
        for now, said, rest in self.lines:
            tid = self._thread(said, rest, waiting)
            start, whole = now, rest
            if (begun := strace_lines.is_begin(rest)) is not None:
                waiting[tid] = (now, begun)
                if _name(begun) in strace_calls.STARTS:
                    self.tasks.begins(tid, begun)
                continue
            if (ended := strace_lines.is_end(rest)) is not None:
                if tid not in waiting:
                    self.left_out["half"] += 1
                    continue
                start, begun = waiting.pop(tid)
                whole = begun + ended[1]
                self.tasks.ends(tid)
            elif strace_lines.is_remark(rest):
                if rest.startswith((b"+++ exited", b"+++ killed")):
                    self.tasks.exits(tid)
                continue
            call = strace_lines.call(whole)
            if call is None:
                self.left_out["damaged"] += 1
            elif call.result is None:
                self.left_out["half"] += call.name in _COUNTED
            else:
                self._call(tid, start, call)
        begun_only = (_name(begun) for _, begun in waiting.values())
        self.left_out["half"] += sum(name in _COUNTED for name in begun_only)

    def _thread(self, said: int | None, rest: bytes, waiting: dict[int, tuple[int, bytes]]) -> int:
        """Thread of a line, which strace names only with -f and with several threads."""
        if said is not None:
            self._main = said if self._main is None else self._main
            return said
        ended = strace_lines.is_end(rest)
        if ended is not None:
            prefix = ended[0].encode() + b"("
            return next((tid for tid, (_, begun) in waiting.items() if begun.startswith(prefix)), self._main or 0)
        return self._main or 0

    def _call(self, tid: int, start: int, call: strace_lines.Call) -> None:
        assert call.result is not None
        name, result, failed = call.name, call.result, call.result < 0
        task = self.tasks.of(tid)
        table = task.table
        offset = size = -1
        file: TracedFile | None = None
        target: tuple[TracedFile, int] | None = None
        if name in strace_calls.MOVES:
            number, path = strace_lines.descriptor(call.arguments)
            file = look_up(table, number, path)
            size = -1 if failed else result
            place = strace_calls.POSITIONED.get(name)
            given = None if place is None else strace_lines.tail(call.arguments, place)[0]
            writes = name not in strace_calls.READS
            if given is not None and given >= 0:
                # Linux appends, whatever the offset says.
                offset = -1 if writes and file.append else given
            elif not failed:
                offset = file.advance(size, writes)
        elif name in strace_calls.OPENS:
            path = call.path or _full_path(call.arguments)
            file = TracedFile(path, 0, is_file=path is None or call.path is None or path.startswith("/"))
            file.append = b"O_APPEND" in call.arguments
            if not failed:
                table[result] = file
        elif name == "close":
            number, path = strace_lines.descriptor(call.arguments)
            file = look_up(table, number, path)
            table.pop(number, None)
        elif name in ("lseek", "_llseek"):
            number, path = strace_lines.descriptor(call.arguments)
            file = look_up(table, number, path)
            if not failed:
                offset = file.position = result if name == "lseek" else _seek_result(call.arguments)
        elif name in ("mmap", "mmap2"):
            mapped = strace_lines.mapping(call.arguments)
            if mapped is None:
                return
            number, path, size, offset = mapped
            file = look_up(table, number, path)
        elif name in strace_calls.COPIES:
            copy = strace_lines.copy(call.arguments, sends=name in strace_calls.SENDS)
            if copy is None:
                self.left_out["damaged"] += 1
                return
            size = -1 if failed else result
            file, written = look_up(table, *copy.source), look_up(table, *copy.target)
            if not failed:
                offset = file.advance(size, writes=False) if copy.read_at is None else copy.read_at
                written_at = written.advance(size, writes=True) if copy.written_at is None else copy.written_at
                target = (written, written_at)
        elif name in strace_calls.ON_DESCRIPTOR:
            file = look_up(table, *strace_lines.descriptor(call.arguments))
        elif name in strace_calls.ON_PATH:
            path = _full_path(call.arguments)
            # An empty path (AT_EMPTY_PATH) means the descriptor itself.
            empty = b', "", ' in call.arguments
            file = look_up(table, *strace_lines.descriptor(call.arguments)) if empty else TracedFile(path, None)
        else:
            self._follow(tid, call, table)
            return
        op = call_names.normal_name(name)
        self._seen.add(call_names.class_of(op))
        if name in strace_calls.OPENS and (failed or strace_calls.OPENDIR in call.arguments):
            op = call_names.FAILED_OPEN if failed else "opendir"
        rows = [(op, file, offset)] if target is None else [(op, file, offset), ("write", *target)]
        if not any(touched.is_file for _, touched, _ in rows):
            self.left_out["no file"] += 1
        for op, touched, position in rows:
            if touched.is_file:
                self._row(task.pid, tid, start, call.took_ns, op, touched, position, size)

    def _row(
        self, pid: int, tid: int, start: int, took: int | None, op: str, file: TracedFile, offset: int, size: int
    ) -> None:
        if not in_range(offset, size, start):
            self.left_out["damaged"] += 1
            return
        self.untimed += took is None
        process = self._processes.setdefault(pid, len(self._processes))
        op_number = self.builder.ops.number(op)
        file_number = -1 if file.path is None else self.builder.files.number(file.path)
        self.builder.row(
            start, start + (took or 0), offset, size, process, small(tid), -1, file_number, op_number, POSIX
        )

    def _follow(self, tid: int, call: strace_lines.Call, table: dict[int, TracedFile]) -> None:
        """Tracks calls that change descriptors or start threads."""
        name, result = call.name, call.result
        assert result is not None
        if result < 0:
            return
        if name in strace_calls.DUPLICATES or (name == "fcntl" and b"F_DUPFD" in call.arguments):
            table[result] = look_up(table, *strace_lines.descriptor(call.arguments))
        elif name == "close_range" and b"CLOSE_RANGE" not in call.arguments:
            first, last = (end or 0 for end in strace_lines.tail(call.arguments.rpartition(b", ")[0], 2))
            for number in [number for number in table if first <= number <= last]:
                del table[number]
        elif name in strace_calls.STARTS and result > 0:
            # A fork (without flags in the log) copies the table.
            self.tasks.start(tid, result, call.arguments)
        elif name in strace_calls.NO_FILES:
            table[result] = TracedFile(None, None, is_file=False)
        elif name in strace_calls.PAIRS:
            for number in _ENDS.findall(call.arguments.partition(b"[")[2]):
                table[int(number)] = TracedFile(None, None, is_file=False)

    def notes(self) -> list[str]:
        """Remarks on omitted lines."""
        notes = list(self.lines.cut)
        if self.lines.timeless:
            notes.append(f"{self.lines.timeless} lines have no time (strace -ttt writes it)")
        if self.left_out["damaged"]:
            notes.append(f"{self.left_out['damaged']} lines could not be understood")
        if self.left_out["half"]:
            notes.append(f"{self.left_out['half']} calls lack their begin or their end")
        if self.left_out["no file"]:
            notes.append(f"{self.left_out['no file']} calls on pipes, sockets and similar descriptors are left out")
        return notes

    def recording(self) -> Recording:
        """The recording, once all lines are read."""
        processes = [imported_process(0, small(pid), role=f"process {pid}") for pid in self._processes]
        events = self.builder.table(processes)
        if self.lines.relative:
            # The log does not tell the day.
            events = replace(events, anchor_time_ns=0)
        frame = events.frame
        notes = ["recorded by strace, which slows down every call: durations are not those of the undisturbed program"]
        if self.untimed:
            which = "no call has" if self.untimed == len(frame) else f"{self.untimed} calls lack"
            notes.append(
                f"{which} its duration (missing durations count as 0 s); run strace with -T to record durations"
            )
        return Recording(
            path=self.path,
            kind="strace",
            events=events,
            sees=frozenset(self._seen),
            runtime_s=int(frame["end_ns"].max() - frame["start_ns"].min()) / 1e9,
            trusted_times=False,
            notes=(*notes, *self.notes()),
            facts={"processes": len(processes)},
        )


def _name(begun: bytes) -> str:
    return begun.partition(b"(")[0].decode("ascii", "replace")


def _full_path(arguments: bytes) -> str | None:
    """Absolute path argument of a call, resolved against the directory that ``-y`` shows for its descriptor."""
    name = strace_lines.string(arguments)
    folder = strace_lines.descriptor(arguments)[1]
    if name is None or (folder is None and not name.startswith("/")):
        return name or None
    return posixpath.normpath(posixpath.join(folder or "/", name)) if name else folder


def _seek_result(arguments: bytes) -> int:
    match = re.search(rb"\[(\d{1,19})\]", arguments)
    return -1 if match is None else int(match[1])
