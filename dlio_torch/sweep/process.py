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
from typing import NamedTuple

import psutil

import dlio_torch
from dlio_torch.errors import PreconditionError
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
        peak_rss_bytes: largest resident set of any one of them.
    """

    exit_code: int
    error: str
    wall_s: float
    cpu_s: float
    peak_rss_bytes: int


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
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-I", str(Path(__file__).with_name("bound.py")), str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=environment(),
                start_new_session=True,
            )
    except OSError as error:
        raise PreconditionError(f"a run cannot be started: {error}", hint="see the folder of the study") from error
    timed_out = False
    try:
        found = _wait(process, start + timeout_s)
        if found is None:
            timed_out = True
            found = _end(process)
    except BaseException:
        _end(process)
        raise
    wall = time.monotonic() - start
    if timed_out:
        reason, code = f"took longer than {format_duration(timeout_s)}", TIMED_OUT
    else:
        reason, code = _error(log, found.code) if found.code else "", found.code
    return Ended(code if code >= 0 else 128 - code, reason, wall, found.cpu_s, found.peak_rss_bytes)


def environment() -> dict[str, str]:
    """Variables of this process, and the place that this package was imported from, where that is no installation."""
    variables = dict(os.environ)
    home = Path(dlio_torch.__file__).resolve().parent.parent
    if home.name not in ("site-packages", "dist-packages"):
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(home), variables.get("PYTHONPATH", "")]))
    return variables


class _Counted(NamedTuple):
    """Exit code (negative: the signal), CPU seconds and largest resident set of a process and what it waited for."""

    code: int
    cpu_s: float = 0.0
    peak_rss_bytes: int = 0


def _wait(process: subprocess.Popen[bytes], until: float) -> _Counted | None:
    """How the process ended; ``None`` where it still runs at ``until``."""
    while True:
        # Not Popen.wait(): only wait4(2) tells what this one child and its descendants have used.
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return _Counted(process.returncode, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)
        if time.monotonic() >= until:
            return None
        time.sleep(_POLL_S)


def _end(process: subprocess.Popen[bytes]) -> _Counted:
    """Interrupt a run as Ctrl-C does; kill what is left of it and of its children after a while."""
    if process.returncode is not None:
        return _Counted(process.returncode)
    family = _family(process.pid)
    found = None
    try:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        found = _wait(process, time.monotonic() + _PATIENCE_S)
    finally:  # also where a second interrupt cuts the patience short
        for member in [*family, *_family(process.pid)]:
            with contextlib.suppress(psutil.Error):
                member.kill()
        if found is None and process.returncode is None:
            found = _wait(process, time.monotonic() + _PATIENCE_S)
    return found or _Counted(-signal.SIGKILL)


def _family(pid: int) -> list[psutil.Process]:
    """A process and all its descendants; those of torchrun are in sessions of their own."""
    try:
        leader = psutil.Process(pid)
        return [leader, *leader.children(recursive=True)]
    except psutil.Error:
        return []


def _error(log: Path, code: int) -> str:
    """What the run said went wrong: its own line where there is one, else the last one."""
    lines = list(_tail(log))
    for line in lines:
        found = _ERROR.fullmatch(line)
        if found:
            return found.group(1)
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
