"""End of a process with its parent, however that ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
from collections.abc import Callable, Iterator

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_POLL_S = 0.5


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends (``prctl(2)``, PR_SET_PDEATHSIG).

    A process that is stopped, or waits in a library, ends at once, too.  Where the kernel refuses it, nothing changes.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


@contextlib.contextmanager
def watched_parent(parent: int, end: Callable[[], object]) -> Iterator[None]:
    """Call ``end`` from another thread if the parent of this process has ended, or ends during the body.

    Args:
        parent: its process, as this one knew it before.
        end: called once at the most.
    """
    over = threading.Event()

    def look() -> None:
        while os.getppid() == parent:
            if over.wait(_POLL_S):
                return
        end()

    threading.Thread(target=look, name="watch of the parent", daemon=True).start()
    try:
        yield
    finally:
        over.set()
