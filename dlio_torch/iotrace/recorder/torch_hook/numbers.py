"""Numbers of objects, which neither change the objects nor keep them alive."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable


class Numbers:
    """Numbers of objects in the order in which they are first seen, from 0."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[Callable[[], object] | None, int]] = {}
        self._count = itertools.count()

    def known(self, thing: object) -> int | None:
        """The number of an object; None if it has none yet."""
        entry = self._entries.get(id(thing))
        return None if entry is None or (entry[0] is not None and entry[0]() is not thing) else entry[1]

    def number(self, thing: object) -> int:
        """The number of an object, which is known by its identity (its address, where nothing else tells it)."""
        # Without a lock, which a fork would copy in whatever state it is.
        number = self.known(thing)
        if number is None:
            number = next(self._count)
            self._entries[id(thing)] = (_reference(thing), number)
        return number


def _reference(thing: object) -> Callable[[], object] | None:
    try:
        return weakref.ref(thing)
    except TypeError:  # a list, for example
        return None
