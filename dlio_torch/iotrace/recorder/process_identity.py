"""Identity of a process: its role in the run, its start method, and its clock."""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

_START_METHODS = {"ForkProcess": "fork", "SpawnProcess": "spawn", "ForkServerProcess": "forkserver"}


def role_of_this_process(default: str) -> str:
    """Role of this process: ``loader worker <n>``, the name of another child process, or ``default``."""
    # Only a process that has loaded torch's worker loop can be such a worker; do not load it for the question.
    loop = sys.modules.get("torch.utils.data._utils.worker")
    info = loop.get_worker_info() if loop is not None else None
    if info is not None:
        return f"loader worker {info.id}"
    return default if multiprocessing.parent_process() is None else multiprocessing.current_process().name


def clock_id() -> str:
    """Name of this process's monotonic clock: equal names mean the same machine since the same boot."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/time')}"
    except OSError:
        return socket.gethostname()


def describe_process(role: str, anchor: tuple[int, int]) -> dict[str, Any]:
    """First line of a table of names: the description of the process, as values for JSON.

    Args:
        role: name of this process if it is no child of another (see :func:`role_of_this_process`).
        anchor: readings of ``time.perf_counter_ns()`` and ``time.time_ns()`` at the same moment.
    """
    return {
        "pid": os.getpid(),
        "parent_pid": os.getppid(),
        "role": role_of_this_process(role),
        "start_method": _START_METHODS.get(type(multiprocessing.current_process()).__name__),
        "host": socket.gethostname(),
        "clock": clock_id(),
        "monotonic_ns": anchor[0],
        "time_ns": anchor[1],
    }


def call_after_fork(method: Callable[[], None]) -> None:
    """Calls a bound method in each forked child, as long as its object lives."""
    # Hooks cannot be removed, so they must not keep the object alive.
    reference = weakref.WeakMethod(method)

    def call() -> None:
        bound = reference()
        if bound is not None:
            bound()

    os.register_at_fork(after_in_child=call)
