"""Numbers of objects, which neither change the objects nor keep them alive."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable


class Numbers:
    """Numbers of objects in the order in which they are first seen, from 0."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[Callable[[], object] | None, int]] = {}
        self._next = 0
        self._lock = threading.RLock()

    def number(self, thing: object) -> int:
        """The number of an object, which is known by its identity (its address, where nothing else tells it)."""
        with self._lock:
            entry = self._entries.get(id(thing))
            if entry is None or (entry[0] is not None and entry[0]() is not thing):
                entry = (_reference(thing), self._next)
                self._entries[id(thing)] = entry
                self._next += 1
            return entry[1]


def _reference(thing: object) -> Callable[[], object] | None:
    try:
        return weakref.ref(thing)
    except TypeError:  # a list, for example
        return None
