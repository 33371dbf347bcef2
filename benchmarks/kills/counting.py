"""Shared page of a process tree that counts its calls, and determines when a signal is sent to which process.

The library is ``count_calls.c``, compiled at first use; its ``struct page`` is :class:`Page`.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from dlio_torch.native.build import compile_library

Victim = Literal["main", "other", "group"]
_VICTIMS = ("main", "other", "group")
_SHARED_MEMORY = "/dev/shm/"


class Page(ctypes.Structure):
    """Memory layout of the shared page, as ``struct page`` in C."""

    _fields_ = (
        ("count", ctypes.c_int64 * 2),
        ("target", ctypes.c_int64),
        ("number", ctypes.c_int32),
        ("victim", ctypes.c_int32),
        ("changes", ctypes.c_int32),
        ("main", ctypes.c_int32),
        ("killed", ctypes.c_int32),
        ("used", ctypes.c_int32),
        ("what", ctypes.c_char * 500),
        ("shared", ctypes.c_char * 65536),
    )


class Counting:
    """Counts the calls of one process tree on the files below ``folders`` and in /dev/shm.

    Args:
        library: of :func:`library`.
        file: made for the page; its path tells the processes of the tree from all others.
        folders: whose files count.
    """

    def __init__(self, library: Path, file: Path, folders: Iterable[Path]) -> None:
        self.file = file
        with file.open("w+b") as opened:
            opened.truncate(ctypes.sizeof(Page))
            self._map = mmap.mmap(opened.fileno(), ctypes.sizeof(Page))
        self._page = Page.from_buffer(self._map)
        before = os.environ.get("LD_PRELOAD", "")
        self.variables = {
            "LD_PRELOAD": f"{library}:{before}" if before else str(library),
            "KILL_POINTS_PAGE": str(file),
            "KILL_POINTS_PATHS": "\n".join([_SHARED_MEMORY, *map(str, folders)]),
        }
        """Of the environment of the tree's first process."""

    def strike(self, call: int, number: int, victim: Victim, *, changes: bool) -> None:
        """Sets that the signal ``number`` is sent before the ``call``-th call (from 1).

        Args:
            call: of the calls that change files, or of all.
            number: of the signal.
            victim: the first process of the tree, its process group, or any other process when it makes such a call.
            changes: whether only calls that change files count.
        """
        self._page.changes = changes
        self._page.number, self._page.victim, self._page.target = number, _VICTIMS.index(victim), call

    @property
    def calls(self) -> tuple[int, int]:
        """Number of calls until now: all, and those that change files."""
        return int(self._page.count[0]), int(self._page.count[1])

    @property
    def struck(self) -> str:
        """The call before which the signal was sent; empty if it was not sent."""
        return self._page.what.decode(errors="replace") if self._page.killed else ""

    def shared_memory(self) -> list[Path]:
        """Files that the process tree created in /dev/shm and that still exist."""
        made = {Path(_SHARED_MEMORY + name) for name in self._page.shared.decode(errors="replace").split("\n") if name}
        return sorted(path for path in made if path.exists())

    def processes(self) -> dict[int, str]:
        """Processes of the tree that still run, by its session or its environment: id and command line."""
        mark, session = f"KILL_POINTS_PAGE={self.file}".encode(), str(self._page.main)
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
                own = fields[3] == session or mark in (folder / "environ").read_bytes().split(b"\0")
                if own and fields[0] != "Z":
                    line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    found[int(folder.name)] = line.strip()
            except OSError:  # it has ended, or is another user's
                continue
        return found


def library(folder: Path) -> Path:
    """Compiles the library in ``folder``; returns its path.

    Raises:
        OSError: there is no compiler.
    """
    target = folder / "count_calls.so"
    compile_library("count_calls", target, source_dir=Path(__file__).parent)
    return target
