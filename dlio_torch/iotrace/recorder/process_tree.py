"""Accounts for processes that no recorded process waits for: the program itself, and orphans.

Each recorded process reads the counters of the children that it waits for (``native/posix_trace_children.h``).  It
records children that did not load the library, and children that loaded it and then executed a program that did not.
The process that starts a recording does the same for the program, and for orphans: processes whose parent has ended.
During the recording, orphans become its children (``PR_SET_CHILD_SUBREAPER`` of prctl(2)) instead of those of process
1.  The kernel's counters of every process are therefore read at its end, unless its parent ignores the ends of its
children (``SIGCHLD``).

The result is the file ``tree.json`` of the events folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from dlio_torch.iotrace.events.posix_accounts import TREE_FILE
from dlio_torch.iotrace.recorder.io_counters import io_counters
from dlio_torch.units import format_size

_SUBREAPER = 36  # of linux/prctl.h


class ProcessTree:
    """Reads the kernel's counters of ended processes that were not recorded.

    Args:
        directory: events folder, where the marks of the processes lie.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._host = os.uname().nodename
        self._processes: list[dict[str, Any]] = []
        self._adopts = False

    @contextlib.contextmanager
    def adopting(self) -> Iterator[None]:
        """A context in which orphans become children of this process.

        Nothing is adopted where this process has other threads or children: their processes are not ours to end.
        """
        alone = threading.active_count() == 1 and not psutil.Process().children()
        self._adopts = alone and ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0) == 0
        try:
            yield
        finally:
            if self._adopts:
                ctypes.CDLL(None).prctl(_SUBREAPER, 0, 0, 0, 0)

    def end_orphans(self, program: int) -> None:
        """Waits for ended orphans and records each of them, but not the program itself."""
        while self._adopts:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None or ended.si_pid == program:
                return
            self.record_unrecorded(ended.si_pid)
            os.waitpid(ended.si_pid, 0)

    def record_unrecorded(self, pid: int) -> None:
        """Records the bytes of an unrecorded process, which still runs or is a zombie."""
        mark = self._directory / f".{self._host}-{pid}"
        began_ns, read_bytes, written, _ = _read(mark)
        moved = io_counters(pid)
        if moved is not None and began_ns is not None:
            self._processes.append(
                {
                    "child": pid,
                    "name": _name(pid),
                    "read": moved.rchar - read_bytes,
                    "written": moved.wchar - written,
                    "began": began_ns,
                    "ended": time.monotonic_ns(),
                }
            )
        mark.unlink(missing_ok=True)

    def said(self) -> list[str]:
        """One sentence for each unrecorded process."""
        return [
            f"{process['name']} (process {process['child']}) was not recorded; by the kernel's count, the process "
            f"read {format_size(process['read'])} and wrote {format_size(process['written'])}"
            for process in self._processes
        ]

    def close(self) -> list[str]:
        """Records processes that still run or that no process waited for, and writes the file.

        Returns:
            What a reader of the recording must know, one sentence each.
        """
        notes = []
        for process in psutil.Process().children(recursive=True) if self._adopts else ():
            if _read(self._directory / f".{self._host}-{process.pid}")[0] is not None:
                notes.append(
                    f"{_name(process.pid)} (process {process.pid}) did not load the recorder and still ran when the "
                    "program ended: only its bytes until then are counted"
                )
                self.record_unrecorded(process.pid)
        for mark in sorted(self._directory.glob(f".{self._host}-*")):
            began_ns, _, _, name = _read(mark)
            pid = mark.name.rpartition("-")[2]
            if began_ns and not Path(f"/proc/{pid}").exists():
                notes.append(
                    f"{name} (process {pid}) did not load the recorder, and no recorded process waited for it: "
                    "its bytes are not known"
                )
        if self._processes:
            about = {"host": self._host, "pid": os.getpid(), "processes": self._processes}
            (self._directory / TREE_FILE).write_text(json.dumps(about), encoding="utf-8")
        return notes


def _read(mark: Path) -> tuple[int | None, int, int, str]:
    """Reads the mark of a process: begin of its last program, bytes read and written until then, its name.

    The time is 0 where there is no mark (nothing was recorded), None where the last program loaded the library.
    """
    try:
        words = mark.read_text(encoding="utf-8", errors="replace").split(" ", 3)
        began_ns, read_bytes, written, name = words
        return int(began_ns), int(read_bytes), int(written), name
    except FileNotFoundError:
        return 0, 0, 0, ""
    except (OSError, ValueError):
        return None, 0, 0, ""


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").rstrip("\n")
    except OSError:
        return "?"
