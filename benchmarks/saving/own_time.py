"""Time that a call spends outside of the calls of libraries and of the system: that of this tool's own code."""

from __future__ import annotations

import sys
import sysconfig
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

_PACKAGES = sysconfig.get_paths()["purelib"]
_SYSTEM = ("posix", "_io", "fcntl", "_thread", "select")
_LIBRARIES = ("torch", "numpy", "safetensors", "_pickle", "_hashlib")


class OwnTime:
    """Divides the time of a call in this thread between this tool and what it calls.

    A call of a function of another package, or of a built-in function that makes system calls, belongs to the library
    or system, with all that it calls.  All else is the tool's, the cost of this measurement too, so that the share is
    an upper limit.
    """

    def __init__(self) -> None:
        self.own_s = 0.0
        """Seconds of the tool's own code."""
        self.seconds = 0.0
        """Seconds of the whole call."""
        self.outside = 0
        """Number of calls of libraries and of the system."""
        self._depth, self._began, self._outside_s = 0, 0.0, 0.0

    @property
    def share(self) -> float:
        """The tool's share of the call."""
        return self.own_s / self.seconds

    def measure(self, call: Callable[[], object]) -> None:
        """Runs ``call``, and sets the figures."""
        self.outside, self._outside_s = 0, 0.0
        began = time.perf_counter()
        sys.setprofile(self._event)
        try:
            call()
        finally:
            sys.setprofile(None)
        self.seconds = time.perf_counter() - began
        self.own_s = self.seconds - self._outside_s

    def _event(self, frame: FrameType, event: str, function: Any) -> None:
        if event in ("call", "c_call"):
            if self._depth:
                self._depth += 1
            elif _in_library(frame) if event == "call" else _is_foreign(function):
                self._depth, self._began = 1, time.perf_counter()
                self.outside += 1
        elif self._depth:
            self._depth -= 1
            if not self._depth:
                self._outside_s += time.perf_counter() - self._began


def _in_library(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_PACKAGES)


def _is_foreign(function: Any) -> bool:
    """Whether a built-in function, or the type of a built-in method, belongs to a library or makes system calls."""
    kind = type(getattr(function, "__self__", None))
    names = (getattr(function, "__module__", None) or "", kind.__module__)
    return any(name.partition(".")[0] in (*_SYSTEM, *_LIBRARIES) for name in names)
