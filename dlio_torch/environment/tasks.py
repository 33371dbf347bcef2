"""What a process or a thread does at this moment, as the kernel tells it: ``/proc/<pid>/task/<tid>`` (proc(5)).

Nobody has to keep books for it, so it costs nothing until somebody asks.  What the kernel does not tell this user is
left out.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Numbers of calls on a descriptor, and of those that open a path (by the argument that is the path), by machine.
_READS = {
    "x86_64": {0: "reads", 1: "writes", 17: "reads", 18: "writes", 19: "reads", 20: "writes", 74: "flushes",
               75: "flushes", 295: "reads", 296: "writes", 327: "reads", 328: "writes", 40: "writes", 5: "looks at"},
    "aarch64": {63: "reads", 64: "writes", 67: "reads", 68: "writes", 65: "reads", 66: "writes", 82: "flushes",
                83: "flushes", 69: "reads", 70: "writes", 286: "reads", 287: "writes", 71: "writes", 80: "looks at"},
}  # fmt: skip
_OPENS = {"x86_64": {2: 0, 257: 1, 4: 0, 6: 0, 262: 1, 332: 1}, "aarch64": {56: 1, 79: 1, 291: 1}}
_STATES = {
    "D": "blocked in the kernel, where no signal reaches it",
    "T": "stopped by a signal (SIGSTOP); SIGCONT lets it go on",
    "t": "stopped by a debugger",
    "Z": "dead",
    "R": "running",
}
_PATH_BYTES = 4096


@dataclass(frozen=True)
class Task:
    """A thread.

    Attributes:
        tid: its number.
        name: its name.
        state: letter of the kernel: R runs, S sleeps, D sleeps where no signal wakes it, T is stopped.
        call: what it does with ``file``; empty where that is not known, or it is in no such call.
        file: the file.
        where: the function of the kernel that it sleeps in; may be empty.
    """

    tid: int
    name: str
    state: str
    call: str
    file: str
    where: str

    @property
    def is_telling(self) -> bool:
        """Whether there is more to say than that it waits for other threads."""
        return bool(self.file) or self.state in "DTtZ"

    def __str__(self) -> str:
        """What it does, as the end of a sentence that begins with who it is."""
        parts = [f"{self.call} {self.file}"] if self.file else []
        state = _STATES.get(self.state, "asleep")
        if self.where:
            state += f" in {self.where}"
        return f"{parts[0]} ({state})" if parts else f"is {state}"


def tasks_of(pid: int, root: Path = Path("/proc")) -> Iterator[Task]:
    """The threads of a process, its main thread first; none where it has ended."""
    try:
        tids = sorted(int(name) for name in os.listdir(root / str(pid) / "task"))
    except (OSError, ValueError):
        return
    for tid in tids:
        task = task_of(pid, tid, root)
        if task is not None:
            yield task


def is_dead(pid: int | None, root: Path = Path("/proc")) -> bool:
    """Whether a process has ended; it may still wait to be asked how, which would take that from who is to."""
    state = _text(root / str(pid) / "stat").rpartition(")")[2].split()
    return not state or state[0] == "Z"


def task_of(pid: int, tid: int, root: Path = Path("/proc")) -> Task | None:
    """A thread of a process; ``None``: there is none."""
    folder = root / str(pid) / "task" / str(tid)
    stat = _text(folder / "stat")
    if not stat:
        return None
    name, _, rest = stat.partition("(")[2].rpartition(")")
    state = (rest.split() or ["?"])[0]
    call, file = _call(folder, root / str(pid))
    where = _text(folder / "wchan")
    return Task(tid, name, state, call, file, "" if where in ("0", "") else where)


def _call(folder: Path, process: Path) -> tuple[str, str]:
    """What a thread does with which file."""
    words = _text(folder / "syscall").split()
    machine = platform.machine()
    try:
        number, arguments = int(words[0]), [int(word, 16) for word in words[1:]]
        if (kind := _READS.get(machine, {}).get(number)) is not None:
            file = os.readlink(process / "fd" / str(arguments[0]))
            # Pipes, sockets and events have no path: the thread waits for another one.
            return (kind, file) if file.startswith("/") else ("", "")
        if (place := _OPENS.get(machine, {}).get(number)) is not None:
            return "opens", _string(process, arguments[place])
    except (OSError, ValueError, IndexError):
        pass
    return "", ""


def _string(process: Path, address: int) -> str:
    """The text at an address of a process."""
    with open(process / "mem", "rb", buffering=0) as memory:
        memory.seek(address)
        return memory.read(min(_PATH_BYTES, 4096 - address % 4096)).split(b"\0")[0].decode(errors="replace")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
