"""Locks around libraries that are not made for threads."""

from __future__ import annotations

import os
import threading


def library_lock() -> threading.Lock:
    """A lock for the calls of one library in this process.

    A process that is forked meanwhile must not find the library in the middle of something: forking waits for it.
    """
    lock = threading.Lock()
    os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock
