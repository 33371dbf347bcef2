"""States of threads as the kernel reports them in ``/proc/<pid>/task/<tid>`` (proc(5)): call, file, kernel function.

Nothing is recorded beforehand, so it costs nothing until it is read.  Details that the kernel hides from this user are
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
    "D": "blocked in the kernel and not reachable by signals",
    "T": "stopped by a signal (SIGSTOP); SIGCONT continues the process",
    "t": "stopped by a debugger",
    "Z": "dead",
    "R": "running",
}
_PATH_BYTES = 4096


@dataclass(frozen=True)
class ThreadState:
    """The state of one thread.

    Attributes:
        tid: its number.
        name: its name.
        state: letter of the kernel: R runs, S sleeps, D sleeps and ignores signals, T is stopped.
        call: verb of its system call on ``file``; empty if unknown, or if it is in no such call.
        file: path of the file.
        kernel_function: function of the kernel in which it sleeps; may be empty.
    """

    tid: int
    name: str
    state: str
    call: str
    file: str
    kernel_function: str

    @property
    def is_informative(self) -> bool:
        """Whether the state shows more than that the thread waits for other threads."""
        return bool(self.file) or self.state in "DTtZ"

    def __str__(self) -> str:
        """A predicate, such as ``reads FILE (asleep in pipe_read)``; the caller puts the subject before it."""
        state = _STATES.get(self.state, "asleep")
        if self.kernel_function:
            state += f" in {self.kernel_function}"
        return f"{self.call} {self.file} ({state})" if self.file else f"is {state}"


def threads_of(pid: int, root: Path = Path("/proc")) -> Iterator[ThreadState]:
    """Threads of a process, its main thread first; empty if the process has ended."""
    try:
        tids = sorted(int(name) for name in os.listdir(root / str(pid) / "task"))
    except (OSError, ValueError):
        return
    for tid in tids:
        thread = thread_state(pid, tid, root)
        if thread is not None:
            yield thread


def has_ended(pid: int | None, root: Path = Path("/proc")) -> bool:
    """Whether a process has ended.

    It does not wait for the process (wait(2)), so that the parent can still collect the exit status.
    """
    state = _text(root / str(pid) / "stat").rpartition(")")[2].split()
    return not state or state[0] == "Z"


def thread_state(pid: int, tid: int, root: Path = Path("/proc")) -> ThreadState | None:
    """The state of a thread of a process; ``None`` if the thread has ended."""
    folder = root / str(pid) / "task" / str(tid)
    stat = _text(folder / "stat")
    if not stat:
        return None
    name, _, rest = stat.partition("(")[2].rpartition(")")
    state = (rest.split() or ["?"])[0]
    call, file = _call(folder, root / str(pid))
    function = _text(folder / "wchan")
    return ThreadState(tid, name, state, call, file, "" if function in ("0", "") else function)


def _call(folder: Path, process: Path) -> tuple[str, str]:
    """Verb and file of a thread's system call; both empty if it is in none that reads, writes or opens a file."""
    words = _text(folder / "syscall").split()
    machine = platform.machine()
    try:
        number, arguments = int(words[0]), [int(word, 16) for word in words[1:]]
        if (verb := _READS.get(machine, {}).get(number)) is not None:
            file = os.readlink(process / "fd" / str(arguments[0]))
            # Pipes, sockets and events have no path: the thread waits for another one.
            return (verb, file) if file.startswith("/") else ("", "")
        if (argument := _OPENS.get(machine, {}).get(number)) is not None:
            return "opens", _string(process, arguments[argument])
    except (OSError, ValueError, IndexError):
        pass
    return "", ""


def _string(process: Path, address: int) -> str:
    """The string at an address of a process."""
    with open(process / "mem", "rb", buffering=0) as memory:
        memory.seek(address)
        return memory.read(min(_PATH_BYTES, 4096 - address % 4096)).split(b"\0")[0].decode(errors="replace")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
