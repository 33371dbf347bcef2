"""Servers of the simulation: each is busy until a known time and sums up its work.

A server takes what it is given in the order of arrival.  As the simulation's clock never goes back, the time at which
it will be done is known on arrival; a process waits once, for that time, whatever it passes through.
"""

from __future__ import annotations

import heapq


class Server:
    """A server that serves one request at a time, in order of arrival.

    Attributes:
        free: when it has done all that it was given, seconds.
        work: seconds that it was given in all.
    """

    __slots__ = ("free", "work")

    def __init__(self) -> None:
        self.free = 0.0
        self.work = 0.0

    def serve(self, now: float, seconds: float) -> float:
        """Time at which ``seconds`` of work that arrive at ``now`` are done."""
        self.free = (self.free if self.free > now else now) + seconds
        self.work += seconds
        return self.free


class Pool:
    """Several equal servers with one queue.

    Args:
        size: how many.

    Attributes:
        size: how many.
        work: seconds that they were given in all.
    """

    __slots__ = ("_free", "size", "work")

    def __init__(self, size: int) -> None:
        self.size = size
        self.work = 0.0
        self._free = [0.0] * size

    def serve(self, now: float, seconds: float) -> float:
        """Time at which ``seconds`` of work that arrive at ``now`` are done."""
        done = max(self._free[0], now) + seconds
        heapq.heapreplace(self._free, done)
        self.work += seconds
        return done
