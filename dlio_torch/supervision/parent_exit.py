"""Exit of the parent: a process ends when the process that started it ends for any reason.

Run as a program, ``python parent_exit.py PARENT COMMAND...`` becomes COMMAND, which gets SIGTERM when its parent ends.
It imports the standard library alone and takes some milliseconds.

Python has nothing for this beyond ``multiprocessing.parent_process().sentinel``, which only its own children have and
which needs a thread that runs: a stopped process, or one in a read that holds the interpreter lock, would stay.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_POLL_S = 0.5


def die_with_parent(signal_number: int = signal.SIGKILL) -> None:
    """Have the kernel send a signal to this process when the thread that started it ends (prctl(2), PR_SET_PDEATHSIG).

    SIGKILL also ends a process that is stopped or waits in a library.  The setting survives execve(2).  If the kernel
    refuses it, nothing changes.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0)


def exit_with_parent() -> None:
    """End this process with code 1 when its parent ends; for processes of :mod:`multiprocessing`."""
    # Imported here: a program that is started by this file needs neither.
    import multiprocessing
    from multiprocessing.connection import wait

    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def exit_after() -> None:
        wait([parent.sentinel])
        os._exit(1)  # nobody is left to read a message

    threading.Thread(target=exit_after, name="dlio_torch-parent", daemon=True).start()


@contextlib.contextmanager
def on_parent_exit(parent: int, action: Callable[[], object]) -> Iterator[None]:
    """Call ``action`` from another thread if the parent of this process has ended, or ends during the body.

    Args:
        parent: id of the parent process, read earlier.
        action: called once at most.
    """
    done = threading.Event()

    def poll() -> None:
        while os.getppid() == parent:
            if done.wait(_POLL_S):
                return
        action()

    threading.Thread(target=poll, name="dlio_torch-parent", daemon=True).start()
    try:
        yield
    finally:
        done.set()


def main(arguments: list[str]) -> int:
    """Replace this process by the command ``arguments[1:]``; returns if its parent ``arguments[0]`` has ended."""
    die_with_parent(signal.SIGTERM)
    if os.getppid() != int(arguments[0]):
        return 128 + signal.SIGTERM
    os.execv(arguments[1], arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
