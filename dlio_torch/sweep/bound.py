"""Becomes another program that is told to end when its parent dies, whatever the parent died of.

Run as a script, ``python bound.py PARENT COMMAND...``; only the standard library is imported, so that it takes some
milliseconds.  A run whose study was killed (SIGKILL) would otherwise go on, and disturb what is measured next.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # prctl(2); it survives execve()


def main(arguments: list[str]) -> int:
    """Replace this process by ``arguments[1:]``; returns only where the parent is gone already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != int(arguments[0]):
        return 128 + signal.SIGTERM
    os.execv(arguments[1], arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
