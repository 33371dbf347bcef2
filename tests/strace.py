"""Run a program under strace and read what it did with files.

Only calls on files are traced (``TRACED``), with the path of each descriptor (``-y``), of all threads and
child processes (``-f``).  A call that another thread's call interrupted in the log (``<unfinished ...>``,
``<... resumed>``) is put together again; it stands where it began.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

OPENS = ("open", "openat", "creat")
READS = ("read", "pread64", "readv", "preadv", "preadv2")
WRITES = ("write", "pwrite64", "writev", "pwritev", "pwritev2")
TRACED = (*OPENS, *READS, *WRITES, "lseek", "fsync", "fdatasync", "close", "rename", "unlink", "ftruncate")

_LINE = re.compile(r"(?P<tid>\d+)\s+(?P<time>\d+\.\d+) (?P<rest>.*)")
_RESUMED = re.compile(r"<\.\.\. (?P<name>\w+) resumed>(?P<rest>.*)")
_CALL = re.compile(r"(?P<name>\w+)\((?P<arguments>.*)\)\s+= (?P<result>-?\d+|\?)(?P<tail>.*)")
_DESCRIPTOR = re.compile(r"-?\d+<(?P<path>[^>]*)>")
_OPENED = re.compile(r"<(?P<path>[^>]*)>")
_UNFINISHED = " <unfinished ...>"


@dataclass(frozen=True)
class Call:
    """One system call.

    Attributes:
        tid: thread; the main thread of a process has its process id.
        time_s: wall-clock time of its begin.
        name: of the call.
        path: file of the descriptor, or that was opened; empty where there is none.
        arguments: as strace prints them.
        result: return value; negative: failed.
    """

    tid: int
    time_s: float
    name: str
    path: str
    arguments: str
    result: int

    @property
    def offset(self) -> int | None:
        """File offset of a positioned read or write."""
        if self.name not in ("pread64", "pwrite64", "preadv", "pwritev", "preadv2", "pwritev2"):
            return None
        position = -2 if self.name.endswith("v2") else -1
        return int(self.arguments.split(", ")[position])


def need_strace() -> None:
    """Skip where strace is missing or may not trace."""
    program = shutil.which("strace")
    if program is None:
        pytest.skip("strace is not installed: system calls cannot be looked at")
    tried = subprocess.run(
        [program, "-f", "--seccomp-bpf", "-e", "trace=close", "true"], capture_output=True, check=False
    )
    if tried.returncode != 0:
        pytest.skip(f"strace cannot trace here: {tried.stderr.decode(errors='replace').strip().splitlines()[-1]}")


def trace(
    command: Sequence[str | Path], log: Path, *, cwd: Path, env: Mapping[str, str], timeout_s: float = 120.0
) -> list[Call]:
    """Run ``command`` under strace; it must succeed.

    Args:
        command: program and arguments.
        log: where strace writes.
        cwd: working directory.
        env: environment.
        timeout_s: longest time.
    """
    strace = ["strace", "-f", "--seccomp-bpf", "-y", "-ttt", "-s", "0", "-qq", "-e", f"trace={','.join(TRACED)}"]
    done = subprocess.run(
        [*strace, "-e", "signal=none", "-o", str(log), *map(str, command)],
        cwd=cwd,
        env=dict(env),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with log.open(errors="replace") as lines:
        return list(parse(lines))


def parse(lines: Iterator[str] | Sequence[str]) -> Iterator[Call]:
    """The calls of a log of ``strace -f -y -ttt``, in the order in which they began."""
    begun: list[tuple[int, float, str | None]] = []  # thread, time, text; None: not ended yet
    waiting: dict[int, tuple[int, str]] = {}
    for line in lines:
        found = _LINE.match(line)
        if found is None:
            continue
        tid, time_s, rest = int(found["tid"]), float(found["time"]), found["rest"].rstrip("\n")
        resumed = _RESUMED.match(rest)
        if resumed is not None:
            if tid in waiting:
                place, start = waiting.pop(tid)
                begun[place] = (tid, begun[place][1], start + resumed["rest"])
        elif rest.endswith(_UNFINISHED):
            waiting[tid] = (len(begun), rest.removesuffix(_UNFINISHED))
            begun.append((tid, time_s, None))
        else:
            begun.append((tid, time_s, rest))
    for tid, time_s, text in begun:
        call = None if text is None else _CALL.match(text)
        if call is None or call["result"] == "?":
            continue
        # What was opened stands behind the result, other calls' files in their first argument.
        opens = call["name"] in OPENS
        path = _OPENED.match(call["tail"]) if opens else _DESCRIPTOR.match(call["arguments"])
        name = "" if path is None else path["path"]
        yield Call(tid, time_s, call["name"], name, call["arguments"], int(call["result"]))
