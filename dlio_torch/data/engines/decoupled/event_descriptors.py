"""Calls on event descriptors (``eventfd``) that keep the interpreter lock.

They never block.  Python's own give the lock up, and a thread that computes keeps it for a switch interval then.
"""

from __future__ import annotations

import ctypes

_LIBRARY = ctypes.PyDLL(None)
_LIBRARY.eventfd_write.argtypes = [ctypes.c_int, ctypes.c_uint64]
_LIBRARY.eventfd_read.argtypes = [ctypes.c_int, ctypes.c_void_p]


def set_event(descriptor: int) -> None:
    """Make a non-blocking event descriptor readable."""
    _LIBRARY.eventfd_write(descriptor, 1)


def clear_event(descriptor: int) -> None:
    """Make a non-blocking event descriptor unreadable."""
    value = ctypes.c_uint64()
    _LIBRARY.eventfd_read(descriptor, ctypes.byref(value))
