"""Beats for the watch of ``heartbeat.c``: it notices when this process runs no Python code any more."""

from __future__ import annotations

import ctypes
import os
import sys

from dlio_torch import native

_NS = 1_000_000_000
_BEFORE = ("LD_PRELOAD",)  # what looks from outside is no part of what is recorded


class Heart:
    """One for a process at a time; a second one does nothing.

    Without a compiler there is none, and :meth:`beat` does nothing.

    Args:
        patience_s: silence after which ``module`` is run; 0: never.
        limit_s: silence after which it is run for the last time, to end this process; 0: never.
        module: its ``main`` gets, behind ``words``, the process, the seconds of silence, and 1 for the last time.
        words: at most three.
    """

    def __init__(self, patience_s: float, limit_s: float, module: str, words: list[str]) -> None:
        self._library: ctypes.CDLL | None = None
        try:
            library = native.load("heartbeat")
        except native.NativeUnavailable:
            return
        program = f"import sys; sys.path[:] = {sys.path!r}; from {module} import main; main(sys.argv[1:])"
        command = [sys.executable, "-c", program, *words]
        environment = [f"{name}={value}" for name, value in os.environ.items() if name not in _BEFORE]
        # They live as long as this object, which lives until it is stopped.
        self._kept = (_words(command), _words(environment))
        start = library.dlio_heart_start
        start.argtypes = [ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p]
        if start(int(patience_s * _NS), int(limit_s * _NS), *map(ctypes.addressof, self._kept)) == 0:
            self._library = library
            _KEPT.append(self._kept)

    def beat(self) -> None:
        """Python code runs."""
        if self._library is not None:
            self._library.dlio_heart_beat()

    def stop(self) -> None:
        """Watch no more."""
        if self._library is not None:
            self._library.dlio_heart_stop()
            self._library = None


_KEPT: list[object] = []  # the watching thread may still look at the words of one that was stopped a moment ago


def _words(texts: list[str]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * (len(texts) + 1))(*map(os.fsencode, texts), None)
