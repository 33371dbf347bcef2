"""Simulates ranks that read their batches from one shared storage, with readers that cost nothing.

Model, for each rank::

    reader k mod n makes batch k; it begins it when it has made batch k - n and the trainer has taken batch k - depth
    a batch is made when its requests are answered: one after another in each of its lanes, lanes at the same time
    without readers (n = 0) the trainer begins batch k when it asks for it
    the trainer takes batches in order, computes, waits at the barrier for the other ranks, and asks for the next

A request takes its latency, then passes a pipe that all requests of all ranks share, in the order of arrival::

    arrival = begin + latency          end = max(arrival, end of the request before in the pipe) + transfer time

This is a closed queueing network of one delay station and one FIFO server.  Decoding, transfers between processes and
everything else that a loader does takes no time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

Request = tuple[float, float]
"""Own time and transfer time of a request, s."""
Lane = Sequence[Request]
"""Requests that are made one after another."""


@dataclass(frozen=True)
class RankLoad:
    """Batches of one rank in step order, and its readers.

    Attributes:
        batches: lanes of requests of each batch.
        compute: seconds of compute that the trainer does with each batch.
        epoch: epoch of each batch; readers begin an epoch when the trainer does.
        readers: number of readers; 0: the trainer reads.
        depth: batches that are made ahead of the trainer.
    """

    batches: Sequence[Sequence[Lane]]
    compute: Sequence[float]
    epoch: Sequence[int]
    readers: int
    depth: int


def simulate(loads: Sequence[RankLoad], *, barrier: bool) -> list[list[float]]:
    """Simulates the ranks from their first batch to the last that all of them have.

    Args:
        loads: one of each rank.
        barrier: ranks wait for each other after each batch.

    Returns:
        For each rank, the times at which its trainer asks for each batch, and the end of its last step, s.
    """
    batches = min(len(load.batches) for load in loads)
    clock = _Clock()
    meeting = _Barrier(len(loads)) if barrier else None
    ranks = [_SimulatedRank(load, clock, meeting, batches) for load in loads]
    for rank in ranks:
        rank.ask(0.0)
    clock.run()
    return [rank.request_times for rank in ranks]


class _Clock:
    """Future events in order of time, and the pipe that all requests share."""

    def __init__(self) -> None:
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._number = count()
        self._pipe_free = 0.0

    def call(self, time: float, event: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (time, next(self._number), event))

    def run(self) -> None:
        while self._events:
            time, _, event = heapq.heappop(self._events)
            event(time)

    def transferred(self, arrival: float, seconds: float) -> float:
        """End of a transfer; arrivals come in order of time."""
        if seconds <= 0:
            return arrival
        self._pipe_free = max(arrival, self._pipe_free) + seconds
        return self._pipe_free


class _Barrier:
    """Meeting of all ranks after each batch."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._waiting: list[Callable[[float], None]] = []

    def arrive(self, time: float, go_on: Callable[[float], None]) -> None:
        self._waiting.append(go_on)
        if len(self._waiting) == self._ranks:
            released, self._waiting = self._waiting, []
            for event in released:
                event(time)


class _SimulatedRank:
    """Trainer and readers of one rank; ``request_times`` holds the times at which the trainer asks for batches."""

    def __init__(self, load: RankLoad, clock: _Clock, barrier: _Barrier | None, batches: int) -> None:
        self._load, self._clock, self._barrier, self._batches = load, clock, barrier, batches
        self._lanes_left = [len(lanes) for lanes in load.batches[:batches]]
        self._begun, self._ready = [False] * batches, [False] * batches
        self._first = 0  # batch of this epoch
        self._taken = 0
        self.request_times: list[float] = []

    def ask(self, now: float) -> None:
        """The trainer asks for its next batch, or has done its last step."""
        self.request_times.append(now)
        k = self._taken
        if k == self._batches:
            return
        if k == 0 or self._load.epoch[k] != self._load.epoch[k - 1]:
            self._first = k
            for ahead in range(self._load.readers):
                self._begin(k + ahead, now)
        if not self._load.readers:
            self._start(k, now)
        elif self._ready[k]:
            self._take(now)

    def _begin(self, k: int, now: float) -> None:
        """A reader begins a batch, unless it is busy, has no such batch, or is as far ahead as it may be."""
        load = self._load
        if k >= self._batches or self._begun[k] or load.epoch[k] != load.epoch[self._first]:
            return
        is_free = k - load.readers < self._first or self._ready[k - load.readers]
        if is_free and k - load.depth < max(self._taken, self._first):
            self._start(k, now)

    def _start(self, k: int, now: float) -> None:
        self._begun[k] = True
        lanes = [lane for lane in self._load.batches[k] if lane]
        self._lanes_left[k] = len(lanes)
        for lane in lanes:
            self._request(k, lane, 0, now)
        if not lanes:
            self._clock.call(now, lambda time: self._finish(k, time))

    def _request(self, k: int, lane: Lane, place: int, now: float) -> None:
        latency, transfer = lane[place]
        self._clock.call(
            now + latency, lambda time: self._arrive(k, lane, place, self._clock.transferred(time, transfer))
        )

    def _arrive(self, k: int, lane: Lane, place: int, end: float) -> None:
        if place + 1 < len(lane):
            self._request(k, lane, place + 1, end)
            return
        self._lanes_left[k] -= 1
        if not self._lanes_left[k]:
            self._clock.call(end, lambda time: self._finish(k, time))

    def _finish(self, k: int, now: float) -> None:
        self._ready[k] = True
        if k == self._taken and len(self.request_times) > k:
            self._take(now)
        self._begin(k + self._load.readers, now)

    def _take(self, now: float) -> None:
        k = self._taken
        self._taken += 1
        if self._load.readers:
            self._begin(k + self._load.depth, now)
        self._clock.call(now + self._load.compute[k], self._computed)

    def _computed(self, now: float) -> None:
        if self._barrier is None:
            self.ask(now)
        else:
            self._barrier.arrive(now, self.ask)
