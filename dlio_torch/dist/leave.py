"""Ending a rank's process whatever its other threads are doing.

A rank that learns of another's failure is usually blocked in native code that will never return, and
the destructors of communication libraries may wait for peers that are gone.  So these processes end
by ``os._exit``, after what must not be lost has been done under a deadline.
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

ERROR = "dlio_torch: error: "
"""Begins the line that says why a run has failed, as on the command line."""


def bounded(work: Callable[[], object], timeout_s: float) -> None:
    """Do ``work`` in a thread of its own and wait ``timeout_s`` seconds for it at most."""
    thread = threading.Thread(target=work, name="dlio_torch-bounded", daemon=True)
    thread.start()
    thread.join(timeout_s)


def say(line: str) -> None:
    """Print one line on stderr, without waiting for ever for a reader or for a lock of the main thread."""
    # One write with its newline: the ranks of a host often share one stderr.
    text = " ".join(line.split()) + "\n"
    bounded(lambda: (sys.stderr.write(text), sys.stderr.flush()), 0.5)


def end_children(grace_s: float = 0.3) -> None:
    """End every descendant process: SIGTERM, and SIGKILL for those alive after ``grace_s`` seconds.

    Python's resource tracker is spared: it ends by itself after it has removed the shared memory
    that the others left.
    """
    spared = resource_tracker_pid()
    try:
        children = [child for child in psutil.Process().children(recursive=True) if child.pid != spared]
    except psutil.Error:
        return
    for child in children:
        _signal(child.terminate)
    alive = psutil.wait_procs(children, timeout=grace_s)[1] if children else []
    for child in alive:
        _signal(child.kill)


def _signal(send: Callable[[], None]) -> None:
    with suppress(psutil.Error):  # it has ended meanwhile
        send()


def leave(exit_code: int) -> NoReturn:
    """End this process now: flush what is buffered, no destructors, no exit handlers."""
    bounded(_flush, 0.5)
    os._exit(exit_code)


def leave_at_exit(exit_code: int, deadline_s: float) -> None:
    """Make the interpreter's exit quick and its code certain.

    When the interpreter exits, children are ended and the process leaves with ``exit_code`` before
    any other exit handler or destructor runs (Horovod's shutdown waits for ranks that are gone).
    After ``deadline_s`` seconds it leaves in any case.
    """

    def at_exit() -> None:
        end_children()
        leave(exit_code)

    def at_deadline() -> None:
        time.sleep(deadline_s)
        at_exit()

    atexit.register(at_exit)  # the last one registered is the first one called
    threading.Thread(target=at_deadline, name="dlio_torch-deadline", daemon=True).start()


def _flush() -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed, or replaced by what cannot flush
            stream.flush()
