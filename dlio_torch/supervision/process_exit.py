"""Exit of this process while other threads are blocked: children end, buffers are flushed, then ``os._exit``.

A rank that learns of another rank's failure is usually blocked in native code that never returns, and destructors of
communication libraries may wait for ranks that are gone.  ``sys.exit`` would wait for both.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

import psutil

from dlio_torch.environment.private_names import resource_tracker_pid

ERROR_PREFIX = "dlio_torch: error: "
"""Start of the line on the standard error that says why a run failed."""


def run_bounded(work: Callable[[], object], timeout_s: float) -> None:
    """Run ``work`` in a new thread; return when the work is done, or after ``timeout_s`` seconds."""
    thread = threading.Thread(target=work, name="dlio_torch-bounded", daemon=True)
    thread.start()
    thread.join(timeout_s)


def print_line(line: str) -> None:
    """Print one line on the standard error; waits half a second at most for a reader or a lock of the main thread."""
    # One write with its newline: the ranks of a host often share one stderr.
    text = " ".join(line.split()) + "\n"
    run_bounded(lambda: (sys.stderr.write(text), sys.stderr.flush()), 0.5)


def end_children(grace_s: float = 0.3) -> None:
    """End every descendant process: SIGTERM first, SIGKILL after ``grace_s`` seconds.

    Python's resource tracker is spared: it ends by itself after it has removed the shared memory
    that the others left.
    """
    tracker = resource_tracker_pid()
    try:
        children = [child for child in psutil.Process().children(recursive=True) if child.pid != tracker]
    except psutil.Error:
        return
    for child in children:
        _signal(child.terminate)
    alive = psutil.wait_procs(children, timeout=grace_s)[1] if children else []
    for child in alive:
        _signal(child.kill)


def kill_descendants(pid: int, spared: int = 0) -> None:
    """Kill (SIGKILL) all descendants of a process, also those in other sessions, except the process ``spared``."""
    with suppress(psutil.Error):
        for child in psutil.Process(pid).children(recursive=True):
            if child.pid != spared:
                _signal(child.kill)


def _signal(send: Callable[[], None]) -> None:
    with suppress(psutil.Error):  # it has ended meanwhile
        send()


def exit_now(exit_code: int) -> NoReturn:
    """End this process now: flush what is buffered, run no destructors and no exit handlers."""
    run_bounded(_flush, 0.5)
    os._exit(exit_code)


def ensure_exit(exit_code: int, deadline_s: float) -> None:
    """Make sure that the process ends soon, with this code.

    When the interpreter exits, children are ended and the process ends with ``exit_code`` before
    any other exit handler or destructor runs (Horovod's shutdown waits for ranks that are gone).
    After ``deadline_s`` seconds the process ends in any case.
    """

    def at_exit() -> None:
        end_children()
        exit_now(exit_code)

    def at_deadline() -> None:
        time.sleep(deadline_s)
        at_exit()

    atexit.register(at_exit)  # registered last, called first
    threading.Thread(target=at_deadline, name="dlio_torch-deadline", daemon=True).start()


def _flush() -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed, or replaced by what cannot flush
            stream.flush()
