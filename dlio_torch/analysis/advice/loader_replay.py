"""Replays the batches of one rank through the model of :mod:`dlio_torch.analysis.advice.loader_model`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dlio_torch.analysis.advice.batch_times import RankTimes
from dlio_torch.analysis.advice.transfer_times import TransferTime
from dlio_torch.analysis.producers import Floats


@dataclass(frozen=True)
class LoaderSetup:
    """Number, kind and prefetch depth of the producers of batches.

    Attributes:
        by: the trainer itself, threads of its process, or worker processes.
        producers: threads or workers of a rank; 0 for the trainer itself.
        depth: batches of a rank that are asked for ahead.
    """

    by: Literal["trainer", "threads", "workers"]
    producers: int = 0
    depth: int = 0


class RankClock:
    """Clocks of one rank's trainer and producers during the replay, in seconds.

    Args:
        times: what was measured.
        setup: the threads or workers that produce the batches now.
        slowed: factor on the time of making them and of the producer's part of their transfer.
        transfer: what it takes.
        locked: of each batch the time in which its thread holds a lock that the others need.
        starts: whether producers begin as late in an epoch as those that were measured.

    Attributes:
        now: when the trainer has done what it was told last.
        requested_at: when it asked for its batch.
        waited: how long it waited for it.
    """

    def __init__(
        self,
        times: RankTimes,
        setup: LoaderSetup,
        slowed: float,
        transfer: TransferTime,
        locked: Floats,
        starts: bool,
    ) -> None:
        self.times, self._reading = times, setup
        self._serial, self._sending = transfer.serial, transfer.sending * slowed
        self._production = _filled(times.production, times.fetch) * slowed
        self._locked = locked * slowed
        self._starts = starts
        self._first = 0
        self._free: list[float] = []
        self._ready: list[float] = []
        self._taken: list[float] = []
        self._lock_until = 0.0
        self.now = self.requested_at = self.waited = 0.0

    def take(self, k: int) -> None:
        """The trainer takes batch ``k`` and computes, up to the allreduce."""
        epoch = self.times.epoch
        if k == 0 or epoch[k] != epoch[k - 1]:
            self._first, self._taken = k, []
            begin = self.now + (float(self.times.begun[k]) if self._starts else 0.0)
            self._free = [begin] * max(1, self._reading.producers)
            self._ready = self._free.copy()
            self._lock_until = begin
        self.requested_at = self.now
        taken = self._has(k)
        self._taken.append(taken)
        self.waited = taken - self.requested_at
        self.now = taken + float(self.times.before[k])

    def _has(self, k: int) -> float:
        production = float(self._production[k])
        if self._reading.by == "trainer":
            return self.requested_at + production
        number = k - self._first
        producer = number % self._reading.producers
        begin = self._free[producer]
        if number >= self._reading.depth:
            begin = max(begin, self._taken[number - self._reading.depth])
        if self._locked[k]:
            begin = max(begin, self._lock_until)
            self._lock_until = begin + float(self._locked[k])
        self._free[producer] = end = begin + production
        self._ready[producer] = max(end, self._ready[producer]) + self._sending
        return max(self.requested_at, self._ready[producer]) + self._serial

    def go_on(self, k: int, reduce: float | None) -> None:
        """The trainer ends the step: the allreduce, and the rest of the step."""
        reduce_s = float(self.times.reduce[k]) if reduce is None else reduce
        self.now += reduce_s + float(self.times.after[k])


def _filled(values: Floats, otherwise: Floats) -> Floats:
    filled: Floats = np.where(np.isnan(values), otherwise, values)
    return filled
