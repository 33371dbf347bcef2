"""Time that a call spends outside of the calls of libraries and of the system: that of this tool's own code."""

from __future__ import annotations

import os
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import dlio_torch

_PACKAGES = sysconfig.get_paths()["purelib"]
_TOOL = (f"{Path(dlio_torch.__file__).parent}{os.sep}", f"{Path(__file__).parent}{os.sep}")
_SYSTEM = ("posix", "io", "_io", "fcntl", "_thread", "select")
_LIBRARIES = ("torch", "numpy", "safetensors", "_pickle", "_hashlib")


class OwnTime:
    """Divides the time of a call in this thread between this tool and what it calls.

    A function of this tool is the tool's, also where a library calls it back.  A function of another package, or a
    built-in function that makes system calls, belongs to the library or system.  Every other function, of Python's
    standard library for example, belongs to its caller.  The time of this measurement is left out, as far as Python
    can tell it: a call of the interpreter to the measurement counts where it happens, so that the tool's time is an
    upper limit.
    """

    def __init__(self) -> None:
        self.own_s = 0.0
        """Seconds of the tool's own code."""
        self.outside_s = 0.0
        """Seconds of libraries and of the system."""
        self.outside = 0
        """Number of calls of libraries and of the system by the tool."""
        self._callers: list[bool] = []  # whether each caller of the current function is outside
        self._is_outside, self._since = False, 0.0

    def measure(self, call: Callable[[], object]) -> None:
        """Runs ``call``, and sets the figures."""
        self.own_s = self.outside_s = 0.0
        self.outside, self._callers, self._is_outside = 0, [], False
        self._since = time.perf_counter()
        sys.setprofile(self._event)
        try:
            call()
        finally:
            sys.setprofile(None)
            self._add(time.perf_counter())

    def _event(self, frame: FrameType, event: str, function: Any) -> None:
        self._add(time.perf_counter())
        if event in ("call", "c_call"):
            self._callers.append(self._is_outside)
            outside = self._belongs_outside(frame if event == "call" else None, function)
            self.outside += outside and not self._is_outside
            self._is_outside = outside
        elif self._callers:
            self._is_outside = self._callers.pop()
        self._since = time.perf_counter()

    def _add(self, now: float) -> None:
        if self._is_outside:
            self.outside_s += now - self._since
        else:
            self.own_s += now - self._since

    def _belongs_outside(self, frame: FrameType | None, function: Any) -> bool:
        if frame is None:
            return self._is_outside or _is_foreign(function)
        path = frame.f_code.co_filename
        if path.startswith(_TOOL):
            return False
        return self._is_outside or path.startswith(_PACKAGES)


def _is_foreign(function: Any) -> bool:
    """Whether a built-in function, or the type of a built-in method, belongs to a library or makes system calls."""
    kind = type(getattr(function, "__self__", None))
    names = (getattr(function, "__module__", None) or "", kind.__module__)
    return any(name.partition(".")[0] in (*_SYSTEM, *_LIBRARIES) for name in names)
