"""Runs each case in a fork of this process, which has imported what every case needs.

The child leads a process group, which is killed where it takes too long; it may use a bounded amount of memory
beyond what it began with, write files of a bounded size, and fork a bounded number of times.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fuzzing.cases import Case

MEMORY_BYTES = 3 << 30
FILE_BYTES = 1 << 30
MOST_FORKS = 100
FORKED_TOO_OFTEN = 99
AFTERWARDS = 97
"""Exit code where the second call of a case failed."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of a case: exit code, output, time and memory.

    Attributes:
        code: exit code; None: it was killed, as it took too long.
        out: what it printed.
        err: what it said on stderr.
        seconds: wall time.
        grown_bytes: peak of its memory beyond that of the process it was forked from.
        written: files that it left, relative to its folder, without those of the case.
    """

    code: int | None
    out: str
    err: str
    seconds: float
    grown_bytes: int
    written: tuple[str, ...]


def prepare() -> None:
    """Imports the modules that every case needs, once."""
    for name in ("run", "explain", "upkeep", "sweep", "tune", "headspace", "launch", "predict", "record",
                 "inspect", "import_dlio"):  # fmt: skip
        importlib.import_module(f"dlio_torch.commands.{name}")
    for name in ("dlio_torch.preflight.dry_run", "dlio_torch.execution.pipeline", "dlio_torch.execution.training",
                 "dlio_torch.execution.summary", "dlio_torch.clean.recipe_files", "dlio_torch.doctor",
                 "torch.utils.data", "torchdata.nodes", "h5py"):  # fmt: skip
        importlib.import_module(name)


def run(case: Case, folder: Path, limit_s: float) -> Outcome:
    """Runs a case in the existing, empty folder ``folder``."""
    for name, content in case.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    before = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    out, err = folder.with_suffix(".out"), folder.with_suffix(".err")
    base = _resident()
    began = time.perf_counter()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _be_the_child(case, folder, out, err)
    code, peak = _wait(child, limit_s)
    seconds = time.perf_counter() - began
    written = sorted({path.relative_to(folder).as_posix() for path in folder.rglob("*")} - before)
    texts = [path.read_bytes().decode("utf-8", "backslashreplace") for path in (out, err)]
    return Outcome(code, *texts, seconds, max(0, peak - base), tuple(written))


def _wait(child: int, limit_s: float) -> tuple[int | None, int]:
    """Waits for a child; returns its exit code (None: it took too long) and its peak memory."""
    until = time.monotonic() + limit_s
    late = False
    while True:
        pid, status, used = os.wait4(child, os.WNOHANG)
        if pid:
            break
        if time.monotonic() > until and not late:
            late = True
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.002)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)  # what it has left behind
    return (None if late else os.waitstatus_to_exitcode(status)), used.ru_maxrss * 1024


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _be_the_child(case: Case, folder: Path, out: Path, err: Path) -> None:
    try:
        os.setsid()
        for number, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout = open(1, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        os.chdir(folder)
        now = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY_BYTES,) * 2)
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        for name, value in case.environ.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        forks = [0]

        def count() -> None:
            forks[0] += 1
            if forks[0] > MOST_FORKS:
                os._exit(FORKED_TOO_OFTEN)

        os.register_at_fork(before=count)
        from dlio_torch import cli

        code = cli.main(list(case.argv))
        if code == 0 and case.then:
            code = AFTERWARDS if cli.main(list(case.then)) else 0
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        code = 98
    os._exit(code)
