"""Looks from outside at a process that runs no Python code any more (``heartbeat.c``), and ends it where it must."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from dlio_torch import runstate
from dlio_torch.environment.tasks import tasks_of
from dlio_torch.errors import RunFailed
from dlio_torch.syserrors import say

TO_END = 77
"""Exit code that tells the process to end; in ``heartbeat.c``, too."""
_LOOK_S = 1.0


def main(words: Sequence[str]) -> None:
    """Say what the process does; at the last time end it, unless it computes or is stopped.

    Args:
        words: its ``state.json`` (may be empty), what stands before the line, the process, the seconds for which it was
            silent, ``1`` for the last time.
    """
    state, before, pid, seconds, last = words
    number = int(pid)
    found = list(tasks_of(number))
    if not found:
        return
    # The main thread may wait for the one that holds the interpreter lock.
    task = next((one for one in found if one.file), found[0])
    line = f"no Python code ran for {seconds} s: process {pid} {task}"
    if last != "1" or task.state in "tT" or _computes(number):
        say(f"{before}{line}")
        return
    line = f"{line}; look at the file system, or raise loader.timeout_s"
    say(f"{before}error: {line}")
    if state:
        runstate.end(Path(state), line, RunFailed.exit_code)
    _end_children(number)
    sys.exit(TO_END)


def _computes(pid: int) -> bool:
    """Whether the process used a core in the last moment."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        used = sum(process.cpu_times()[:2])
        time.sleep(_LOOK_S)
        return sum(process.cpu_times()[:2]) - used > _LOOK_S / 4
    return False


def _end_children(pid: int) -> None:
    """Kill all that the process has started, but us."""
    with contextlib.suppress(psutil.Error):
        for one in psutil.Process(pid).children(recursive=True):
            if one.pid != os.getpid():
                with contextlib.suppress(psutil.Error):
                    one.send_signal(signal.SIGKILL)
