"""Checks that a test of loaders leaves no worker processes and no threads."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator

import psutil


@contextlib.contextmanager
def none_left() -> Iterator[None]:
    """At the end: no worker processes and no threads that were not there before."""
    threads = set(threading.enumerate())
    yield
    end = time.monotonic() + 10
    while left := [thread.name for thread in threading.enumerate() if thread not in threads] + workers():
        assert time.monotonic() < end, left
        time.sleep(0.01)


def worker_pids() -> list[int]:
    """Ids of the processes of :func:`workers`."""
    return [int(line.split()[0]) for line in workers()]


def workers() -> list[str]:
    """Running children of this process but helpers of multiprocessing and of tests: id and command line."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            line = " ".join(child.cmdline())
            helper = any(name in line for name in ("multiprocessing.resource_tracker", "fork_server.py")) or (
                "multiprocessing.forkserver" in line and child.ppid() == os.getpid()
            )
            if not helper and child.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{child.pid} {line}")
        except psutil.NoSuchProcess:
            continue
    return found
