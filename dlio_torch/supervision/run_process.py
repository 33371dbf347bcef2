"""Runs the emulator in a new process; records how the run ended and the resources that it used."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple, Protocol

import psutil

import dlio_torch
from dlio_torch.errors import PreconditionError
from dlio_torch.supervision import parent_exit
from dlio_torch.units import format_duration

TIMED_OUT = 124
"""Exit code of a run that exceeded its time limit, as timeout(1) returns."""

_POLL_S = 0.05
_PATIENCE_S = 10.0  # for a run that was asked to end
_TAIL_BYTES = 65536
# horovodrun begins a line with the rank: [1]<stderr>:
_ERROR = re.compile(r"(?:\[\d+(?:,\d+)?\]<std\w+>: ?)?dlio_torch: (?:rank \d+: )?(?:error: )?(.+)")


@dataclass(frozen=True)
class Ended:
    """End of a run: exit code, error and resource usage.

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
    """Exit code (negative: the signal), CPU seconds and largest resident set of a process and its awaited children."""

    code: int
    cpu_s: float = 0.0
    peak_rss_bytes: int | None = None

    @classmethod
    def of(cls, status: int, cpu_s: float, peak_rss_bytes: int | None) -> Usage:
        """Returns the usage for a status of wait4(2)."""
        return cls(os.waitstatus_to_exitcode(status), cpu_s, peak_rss_bytes)


class RunProcess(Protocol):
    """Protocol of a started process with the process id ``pid``."""

    pid: int

    def wait(self, seconds: float) -> Usage | None:
        """Wait for the end; returns ``None`` after ``seconds``.  After the end, every call returns the same usage."""


def emulator(arguments: Sequence[str], ranks: int = 1, launcher: Sequence[str] = ()) -> list[str]:
    """Returns the command that runs ``python -m dlio_torch arguments`` with ``ranks`` ranks on this host.

    Args:
        arguments: of the command line.
        ranks: number of processes.
        launcher: command that starts them; empty: torchrun, for more than one.
    """
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    return [
        *launcher,
        sys.executable,
        *(torchrun if ranks > 1 and not launcher else []),
        "-m",
        "dlio_torch",
        *arguments,
    ]


def run_process(
    command: Sequence[str],
    log: Path,
    *,
    timeout_s: float,
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Ended:
    """Run ``command`` and wait for its end; its output is written to ``log``.

    It ends with this process, even if that is killed.  It has a session of its own, so that an interrupt at the
    terminal reaches this process alone, which passes it on.

    Args:
        command: program and arguments.
        log: file for its output.
        timeout_s: after it the run is ended, with all its children.
        cwd: its folder; None: the current one.
        environ: its environment; None: :func:`environment`.

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
                env=environment() if environ is None else environ,
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
        reason, code = f"the run took longer than its time limit, {format_duration(timeout_s)}", TIMED_OUT
    else:
        reason, code = _error(log, usage.code) if usage.code else "", usage.code
    return Ended(code if code >= 0 else 128 - code, reason, wall, usage.cpu_s, usage.peak_rss_bytes)


def new_log(log: Path) -> IO[bytes]:
    """Open an empty file for the output of a run; makes its folder.

    Raises:
        PreconditionError: it cannot be written.
    """
    with _startable():
        log.parent.mkdir(parents=True, exist_ok=True)
        return log.open("wb")


def ending_with_this(command: Sequence[str]) -> list[str]:
    """Returns a command that runs ``command`` and ends when the starting process ends."""
    return [sys.executable, "-I", parent_exit.__file__, str(os.getpid()), *command]


def environment() -> dict[str, str]:
    """Returns the environment variables for a run; includes this package's folder if the package is not installed."""
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
        raise PreconditionError(
            f"a run cannot be started: {error}", hint="check the logs in the folder of the study"
        ) from error


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
    """Largest resident set of this program in bytes, from /proc: the figure of getrusage(2) includes the parent's."""
    status = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def _end(process: RunProcess) -> Usage:
    """Interrupt a run as Ctrl-C does; after a while, kill the remaining processes."""
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
    """Returns a process and all its descendants; torchrun starts its ranks in other sessions."""
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
    last = lines[-1] if lines else "the run printed no message"
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
