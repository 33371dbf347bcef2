"""Short switch interval of the interpreter while native threads or workers read.

A thread that comes back from a native call waits for the interpreter lock up to ``sys.getswitchinterval()``, 5 ms, if
another thread computes: as long as it takes to read several batches.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_INTERVAL_S = 0.0001


class ShortSwitchInterval:
    """Switch interval that is short while at least one object needs it."""

    def __init__(self) -> None:
        self._needed_by: set[int] = set()
        self._before = 0.0

    def begin(self, user: object) -> None:
        """Shorten the interval until :meth:`end`."""
        if not self._needed_by:
            self._before = sys.getswitchinterval()
            sys.setswitchinterval(min(_INTERVAL_S, self._before))
        self._needed_by.add(id(user))

    @contextmanager
    def during(self, user: object) -> Iterator[None]:
        """Shorten the interval inside a ``with`` block."""
        self.begin(user)
        try:
            yield
        finally:
            self.end(user)

    def end(self, user: object) -> None:
        """Restore the interval, unless others need it; a second call does nothing."""
        if id(user) in self._needed_by:
            self._needed_by.discard(id(user))
            if not self._needed_by:
                sys.setswitchinterval(self._before)


SHORT = ShortSwitchInterval()
"""The interpreter's only one."""
