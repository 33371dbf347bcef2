"""The heartbeat shows that Python code still runs; when it stops, native code starts an observer of this process.

A library that holds the interpreter lock in a read that never returns (h5py does) blocks every thread of Python, so
the watchdog cannot print anything.  ``native/heartbeat.c`` then starts :mod:`dlio_torch.supervision.hung_process`.
``faulthandler.dump_traceback_later`` needs no interpreter lock either.  Tried in such a read, it prints the Python
stack and exits with code 1, but it names no file, cannot tell a hung read from a long computation, and can write
neither the message nor the run's state.
"""

from __future__ import annotations

import ctypes
import os
import sys

from dlio_torch import native

_NS = 1_000_000_000
_DROPPED = ("LD_PRELOAD",)  # the observer's own system calls do not belong in the recording


class Heartbeat:
    """The heartbeat of this process; a second heartbeat at the same time does nothing.

    Without a compiler there is no native code, and :meth:`beat` does nothing.

    Args:
        patience_s: seconds without a beat after which the observer runs; 0: never.
        limit_s: seconds without a beat after which the observer runs a last time and may end this process; 0: never.
        module: the observer; its ``main`` gets ``arguments``, the id of this process, the seconds without a beat, and
            ``1`` for the last time.
        arguments: three at most.
    """

    def __init__(self, patience_s: float, limit_s: float, module: str, arguments: list[str]) -> None:
        self._library: ctypes.CDLL | None = None
        try:
            library = native.load("heartbeat")
        except native.NativeUnavailable:
            return
        program = f"import sys; sys.path[:] = {sys.path!r}; from {module} import main; main(sys.argv[1:])"
        command = [sys.executable, "-c", program, *arguments]
        environment = [f"{name}={value}" for name, value in os.environ.items() if name not in _DROPPED]
        arrays = (_string_array(command), _string_array(environment))
        start = library.dlio_heartbeat_start
        start.argtypes = [ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p]
        if start(int(patience_s * _NS), int(limit_s * _NS), *map(ctypes.addressof, arrays)) == 0:
            self._library = library
            _ARRAYS.append(arrays)

    def beat(self) -> None:
        """Record that Python code runs."""
        if self._library is not None:
            self._library.dlio_heartbeat_beat()

    def stop(self) -> None:
        """End the heartbeat; afterwards native code starts no observer."""
        if self._library is not None:
            self._library.dlio_heartbeat_stop()
            self._library = None


_ARRAYS: list[object] = []  # never freed: the native thread may still read those of a heartbeat that was just stopped


def _string_array(texts: list[str]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * (len(texts) + 1))(*map(os.fsencode, texts), None)
