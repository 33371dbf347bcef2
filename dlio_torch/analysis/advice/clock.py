"""The replay of one rank's batches; the model that it follows is in :mod:`dlio_torch.analysis.advice.model`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dlio_torch.analysis.advice.handover import HandOver
from dlio_torch.analysis.advice.times import RankTimes
from dlio_torch.analysis.makers import Floats


@dataclass(frozen=True)
class Reading:
    """Who makes batches.

    Attributes:
        by: the trainer itself, threads of its process, or worker processes.
        makers: threads or workers of a rank; 0 for the trainer itself.
        depth: batches of a rank that are asked for ahead.
    """

    by: Literal["trainer", "threads", "workers"]
    makers: int = 0
    depth: int = 0


class RankClock:
    """One rank in the replay: the clock of its trainer and of its makers, seconds.

    Args:
        times: what was measured.
        reading: who makes the batches now.
        slowed: factor on the time of making them and of the maker's part of their hand-over.
        hand_over: what it takes.
        locked: of each batch the time in which its thread holds a lock that the others need.
        starts: whether makers begin as late in an epoch as those that were measured.

    Attributes:
        now: when the trainer has done what it was told last.
        asked: when it asked for its batch.
        waited: how long it waited for it.
    """

    def __init__(
        self,
        times: RankTimes,
        reading: Reading,
        slowed: float,
        hand_over: HandOver,
        locked: Floats,
        starts: bool,
    ) -> None:
        self.times, self._reading = times, reading
        self._serial, self._handing = hand_over.serial, hand_over.handing * slowed
        self._made = _filled(times.made, times.fetch) * slowed
        self._locked = locked * slowed
        self._starts = starts
        self._first = 0
        self._free: list[float] = []
        self._ready: list[float] = []
        self._taken: list[float] = []
        self._lock_until = 0.0
        self.now = self.asked = self.waited = 0.0

    def take(self, k: int) -> None:
        """Wait for batch ``k`` and compute, up to the allreduce."""
        epoch = self.times.epoch
        if k == 0 or epoch[k] != epoch[k - 1]:
            self._first, self._taken = k, []
            begin = self.now + (float(self.times.begun[k]) if self._starts else 0.0)
            self._free = [begin] * max(1, self._reading.makers)
            self._ready = self._free.copy()
            self._lock_until = begin
        self.asked = self.now
        taken = self._has(k)
        self._taken.append(taken)
        self.waited = taken - self.asked
        self.now = taken + float(self.times.before[k])

    def _has(self, k: int) -> float:
        made = float(self._made[k])
        if self._reading.by == "trainer":
            return self.asked + made
        number = k - self._first
        maker = number % self._reading.makers
        begin = self._free[maker]
        if number >= self._reading.depth:
            begin = max(begin, self._taken[number - self._reading.depth])
        if self._locked[k]:
            begin = max(begin, self._lock_until)
            self._lock_until = begin + float(self._locked[k])
        self._free[maker] = end = begin + made
        self._ready[maker] = max(end, self._ready[maker]) + self._handing
        return max(self.asked, self._ready[maker]) + self._serial

    def go_on(self, k: int, reduce: float | None) -> None:
        """The allreduce, and the rest of the step."""
        own = float(self.times.reduce[k]) if reduce is None else reduce
        self.now += own + float(self.times.after[k])


def _filled(values: Floats, otherwise: Floats) -> Floats:
    filled: Floats = np.where(np.isnan(values), otherwise, values)
    return filled
