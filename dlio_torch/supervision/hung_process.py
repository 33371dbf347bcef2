"""The observer of a hung process: a program that prints what the process does, and ends the process at the time limit.

``native/heartbeat.c`` starts it when no Python code has run in the process for a while.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from dlio_torch.errors import RunFailed
from dlio_torch.run_directory import run_state
from dlio_torch.supervision.process_exit import kill_descendants
from dlio_torch.supervision.thread_states import threads_of
from dlio_torch.syserrors import say

END_PROCESS = 77
"""Exit code of the observer that tells ``heartbeat.c`` to end the process; ``heartbeat.c`` has the same constant."""
_SAMPLE_S = 1.0


def main(arguments: Sequence[str]) -> None:
    """Print what the process does; at the time limit, end the process unless it computes or is stopped.

    Args:
        arguments: path of ``state.json`` (may be empty), prefix of the line, id of the process, seconds without Python
            code, ``1`` for the last time.
    """
    state, prefix, pid_text, seconds, last = arguments
    pid = int(pid_text)
    threads = list(threads_of(pid))
    if not threads:
        return
    # A thread that reads a file holds the interpreter lock; the main thread may only wait for the lock.
    thread = next((thread for thread in threads if thread.file), threads[0])
    line = f"no Python code ran for {seconds} s: process {pid} {thread}"
    if last != "1" or thread.state in "tT" or _computes(pid):
        say(f"{prefix}{line}")
        return
    line = f"{line}; check the file system, or raise loader.timeout_s"
    say(f"{prefix}error: {line}")
    if state:
        run_state.end(Path(state), line, RunFailed.exit_code)
    kill_descendants(pid, spared=os.getpid())
    sys.exit(END_PROCESS)


def _computes(pid: int) -> bool:
    """Whether the process used a quarter of a core or more in the last second."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        used = sum(process.cpu_times()[:2])
        time.sleep(_SAMPLE_S)
        return sum(process.cpu_times()[:2]) - used > _SAMPLE_S / 4
    return False
