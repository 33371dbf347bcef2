"""Locks for libraries that are not thread-safe."""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager

Lock = AbstractContextManager[bool]


def library_lock() -> Lock:
    """Returns the lock that serializes the calls of one library in this process.

    A thread that has it may take it again: between two calls, a file that nobody refers to may be collected and closed.
    A process that is forked meanwhile must not find the library in the middle of something: forking waits for it.
    """
    lock = threading.RLock()
    os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock
