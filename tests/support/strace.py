"""Run a program under strace and read what it did with files.

Only calls on files are traced (``TRACED``), with the path of each descriptor (``-y``), of all threads and
child processes (``-f``).  A call that another thread's call interrupted in the log (``<unfinished ...>``,
``<... resumed>``) is put together again; it stands where it began, and ``ended`` says where it ended.
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
        began, ended: lines of the log.
    """

    tid: int
    time_s: float
    name: str
    path: str
    arguments: str
    result: int
    began: int = -1
    ended: int = -1

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
    command: Sequence[str | Path],
    log: Path,
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout_s: float = 120.0,
    traced: Sequence[str] = TRACED,
) -> list[Call]:
    """Run ``command`` under strace; it must succeed.

    Args:
        command: program and arguments.
        log: where strace writes.
        cwd: working directory.
        env: environment, of strace, too.
        timeout_s: longest time.
        traced: names of the calls; a leading ``?`` lets strace not know one.
    """
    strace = ["strace", "-f", "--seccomp-bpf", "-y", "-ttt", "-s", "0", "-qq", "-e", f"trace={','.join(traced)}"]
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
    begun: list[_Begun] = []
    waiting: dict[int, _Begun] = {}
    for number, line in enumerate(lines):
        found = _LINE.match(line)
        if found is None:
            continue
        tid, rest = int(found["tid"]), found["rest"].rstrip("\n")
        resumed = _RESUMED.match(rest)
        if resumed is not None:
            if tid in waiting:
                call = waiting.pop(tid)
                call.text, call.complete, call.ended = call.text + resumed["rest"], True, number
            continue
        complete = not rest.endswith(_UNFINISHED)
        begun.append(_Begun(tid, float(found["time"]), rest.removesuffix(_UNFINISHED), complete, number, number))
        if not complete:
            waiting[tid] = begun[-1]
    for call in begun:
        parts = _CALL.match(call.text) if call.complete else None
        if parts is None or parts["result"] == "?":
            continue
        # What was opened stands behind the result, other calls' files in their first argument.
        opens = parts["name"] in OPENS
        path = _OPENED.match(parts["tail"]) if opens else _DESCRIPTOR.match(parts["arguments"])
        name = "" if path is None else path["path"]
        result = int(parts["result"])
        yield Call(call.tid, call.time_s, parts["name"], name, parts["arguments"], result, call.began, call.ended)


@dataclass
class _Begun:
    """A call whose text may not be complete yet."""

    tid: int
    time_s: float
    text: str
    complete: bool
    began: int
    ended: int
