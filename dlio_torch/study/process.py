"""One run of the emulator in a process of its own: how it ended, and what it used."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple, Protocol

import psutil

import dlio_torch
from dlio_torch.errors import PreconditionError
from dlio_torch.supervision import parent_exit
from dlio_torch.units import format_duration

TIMED_OUT = 124
"""Exit code of a run that took too long, as timeout(1) gives it."""

_POLL_S = 0.05
_PATIENCE_S = 10.0  # for a run that was asked to end
_TAIL_BYTES = 65536
_ERROR = re.compile(r"dlio_torch: (?:rank \d+: )?(?:error: )?(.+)")


@dataclass(frozen=True)
class Ended:
    """How a run ended.

    Attributes:
        exit_code: of the process; 128 + n where signal n killed it, 124 where it took too long.
        error: what went wrong in one line; ``""``: nothing.
        wall_s: from its start to its end.
        cpu_s: of it and of all processes that it has waited for, user and system.
        peak_rss_bytes: largest resident set of any one of them; None: not known.
    """

    exit_code: int
    error: str
    wall_s: float
    cpu_s: float
    peak_rss_bytes: int | None


class Usage(NamedTuple):
    """Exit code (negative: the signal), CPU seconds and largest resident set of a process and what it waited for."""

    code: int
    cpu_s: float = 0.0
    peak_rss_bytes: int | None = None

    @classmethod
    def of(cls, status: int, cpu_s: float, peak_rss_bytes: int | None) -> Usage:
        """The usage that belongs to a status of wait4(2)."""
        return cls(os.waitstatus_to_exitcode(status), cpu_s, peak_rss_bytes)


class RunProcess(Protocol):
    """A process that was started; ``pid`` is its number."""

    pid: int

    def wait(self, seconds: float) -> Usage | None:
        """Its end, or ``None`` if that does not come within so many seconds; after the end always the same."""


def emulator(arguments: Sequence[str], ranks: int = 1) -> list[str]:
    """The command that runs ``python -m dlio_torch arguments`` on so many ranks of this host."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    return [sys.executable, *launcher, "-m", "dlio_torch", *arguments]


def run_process(command: Sequence[str], log: Path, *, timeout_s: float, cwd: Path | None = None) -> Ended:
    """Run ``command`` and wait for its end; what it prints goes to ``log``.

    It ends with this process, even if that is killed.  It has a session of its own, so that an interrupt at the
    terminal reaches this process alone, which passes it on.

    Args:
        command: program and arguments.
        log: file for its output.
        timeout_s: after it the run is ended, with all its children.
        cwd: its folder; None: the current one.

    Raises:
        PreconditionError: the log cannot be written, or the program cannot be started.
        KeyboardInterrupt: passed on when the run has ended.
    """
    start = time.monotonic()
    with new_log(log) as output, _startable():
        process = _Child(
            subprocess.Popen(
                ending_with_this(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=environment(),
                start_new_session=True,
            )
        )
    return supervise(process, log, start=start, timeout_s=timeout_s)


def supervise(process: RunProcess, log: Path, *, start: float, timeout_s: float) -> Ended:
    """Wait for the end of a run, which an interrupt or the time limit brings about.

    Args:
        process: of the run.
        log: file of its output.
        start: :func:`time.monotonic` at its start.
        timeout_s: seconds from ``start`` after which the run is ended, with all its children.

    Raises:
        KeyboardInterrupt: passed on when the run has ended.
    """
    timed_out = False
    try:
        usage = process.wait(start + timeout_s - time.monotonic())
        if usage is None:
            timed_out = True
            usage = _end(process)
    except BaseException:
        _end(process)
        raise
    wall = time.monotonic() - start
    if timed_out:
        reason, code = f"took longer than {format_duration(timeout_s)}", TIMED_OUT
    else:
        reason, code = _error(log, usage.code) if usage.code else "", usage.code
    return Ended(code if code >= 0 else 128 - code, reason, wall, usage.cpu_s, usage.peak_rss_bytes)


def new_log(log: Path) -> IO[bytes]:
    """An empty file for the output of a run, in a folder that is made.

    Raises:
        PreconditionError: it cannot be written.
    """
    with _startable():
        log.parent.mkdir(parents=True, exist_ok=True)
        return log.open("wb")


def ending_with_this(command: Sequence[str]) -> list[str]:
    """The command that runs ``command`` and ends with the process that starts it."""
    return [sys.executable, "-I", parent_exit.__file__, str(os.getpid()), *command]


def environment() -> dict[str, str]:
    """Variables of this process, and the place that this package was imported from, where that is no installation."""
    variables = dict(os.environ)
    home = Path(dlio_torch.__file__).resolve().parent.parent
    if home.name not in ("site-packages", "dist-packages"):
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(home), variables.get("PYTHONPATH", "")]))
    return variables


def kill_family(pid: int) -> None:
    """Kill a process and all its descendants, and wait until they are gone."""
    family = _family(pid)
    for member in family:
        with contextlib.suppress(psutil.Error):
            member.kill()
    psutil.wait_procs(family, timeout=_PATIENCE_S)


@contextlib.contextmanager
def _startable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PreconditionError(f"a run cannot be started: {error}", hint="see the folder of the study") from error


class _Child:
    """A child of this process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.pid = process.pid
        # Until it executes its program a child has the memory of this process, and Linux counts that as the child's.
        self._inherited_bytes = _peak_rss_bytes()
        self._process = process
        self._usage: Usage | None = None

    def wait(self, seconds: float) -> Usage | None:
        until = time.monotonic() + seconds
        while self._usage is None:
            # Not Popen.wait(): only wait4(2) tells what this one child and its descendants have used.
            pid, status, used = os.wait4(self.pid, os.WNOHANG)
            if pid:
                peak = used.ru_maxrss * 1024
                known = peak if peak > self._inherited_bytes else None
                self._usage = Usage.of(status, used.ru_utime + used.ru_stime, known)
                self._process.returncode = self._usage.code
            elif time.monotonic() >= until:
                return None
            else:
                time.sleep(_POLL_S)
        return self._usage


def _peak_rss_bytes() -> int:
    """Largest resident set that this program has had (not getrusage(2): what was inherited is part of its figure)."""
    status = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def _end(process: RunProcess) -> Usage:
    """Interrupt a run as Ctrl-C does; kill what is left of it and of its children after a while."""
    if (usage := process.wait(0)) is not None:
        return usage
    family = _family(process.pid)
    try:
        for leader in family[:1]:
            with contextlib.suppress(psutil.Error):
                leader.send_signal(signal.SIGINT)
        usage = process.wait(_PATIENCE_S)
    finally:  # also where a second interrupt cuts the patience short
        for member in [*family, *_family(process.pid)]:
            with contextlib.suppress(psutil.Error):
                member.kill()
        if usage is None:
            usage = process.wait(_PATIENCE_S)
    return usage or Usage(-signal.SIGKILL)


def _family(pid: int) -> list[psutil.Process]:
    """A process and all its descendants; those of torchrun are in sessions of their own."""
    try:
        leader = psutil.Process(pid)
        return [leader, *leader.children(recursive=True)]
    except psutil.Error:
        return []


def _error(log: Path, code: int) -> str:
    """The error of a run: its error line if it wrote one, else its last line."""
    lines = list(_tail(log))
    for line in lines:
        match = _ERROR.fullmatch(line)
        if match:
            return match.group(1)
    last = lines[-1] if lines else "it said nothing"
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        return f"killed by {name}: {last}"
    return last


def _tail(log: Path) -> Iterator[str]:
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        for line in file.read().decode("utf-8", "replace").splitlines():
            if line.strip():
                yield line.strip()
