"""What steps would have waited with other readers: a replay of the measured times through a model of the loader.

The model.  Batch k of an epoch, which took ``made[k]`` seconds to make, is made by maker ``k mod n``; the maker
begins when it has finished batch ``k - n`` and when the batch was asked for, which is when the trainer took batch
``k - depth`` (the first ``depth`` are asked for at once)::

    begin[k] = max(end[k - n], taken[k - depth])            end[k]   = begin[k] + made[k]
                                                            ready[k] = max(end[k], ready[k - n]) + handing
    taken[k] = max(asked[k], ready[k]) + serial             asked[k + 1] = taken[k] + compute[k] + rest[k]

``asked`` is when the trainer asks; ``ready`` when the batch has been handed over, which the maker does beside its
next batch.  Without makers (``n = 0``) the trainer makes the batch itself: ``taken[k] = asked[k] + made[k]``.
This is Lindley's recursion (The theory of queues with a single server, 1952) for a closed loop, with the order and
the credits of torch's DataLoader (``prefetch_factor`` batches asked for from each worker) and of reader threads
(``prefetch_batches`` in all).  Its long-run bound is that of operational analysis (Denning and Buzen, The operational
analysis of queueing network models, 1978)::

    step >= max(compute + rest + serial, made / n, handing / n, (made - asleep) / free cores)

of which the last is put in by slowing all makers down where they want more cores than are free.  Where threads
read in turn, or under one lock, their reads follow one another.  Ranks that reduce gradients wait for the last one.

What was not measured and may make the run slower is put in by :meth:`Model.cautious`, which gives the other end of
an interval: two threads of a core that are no faster than one, readers that hold the interpreter's lock, a
hand-over that uses a core, or is all the trainer's own, other programs that go on using the cores that
they have.

What it leaves out: that makers disturb each other by memory and caches, and that a storage which is asked for
more at once answers later.  How far the model is from the run itself (:attr:`Model.error`) says how much of that
there was in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from dlio_torch.analysis.advice.clock import RankClock, Reading
from dlio_torch.analysis.advice.handover import HandOver
from dlio_torch.analysis.advice.times import RankTimes
from dlio_torch.analysis.makers import Floats

_BLOCKS, _LEAST_BLOCK = 8, 4
_OF_MADE = ("made", "asleep", "read", "preprocess")
_THREADS = 4  # of other programs that may wait for each core that they keep busy
_BUSY, _RECEIVING = 0.8, 0.3  # shares of the time
_FULLY = 0.8  # of the cores that makers want: below it, they did not get them


@dataclass(frozen=True)
class Outcome:
    """Mean seconds of a batch: the whole time from one to the next, and what of it the trainer waited."""

    step_s: float
    fetch_s: float


@dataclass(frozen=True)
class Model:
    """A run that can be replayed with other readers.

    Attributes:
        times: what was measured, by rank.
        reading: who made the batches.
        cores: cores of a rank that its makers could use, if nothing else did; None: not known, no limit.
        one_lock: threads of a process read one after another (h5py has one lock for all calls).
        full_cores: of the cores those that share nothing, where two threads run on one; None: as many as ``cores``.
        others: of the cores those that other programs kept busy while the run trained.
        careful: what was not measured takes as long as it may.
    """

    times: Sequence[RankTimes]
    reading: Reading
    cores: float | None
    one_lock: bool = False
    full_cores: float | None = None
    others: float = 0.0
    careful: bool = False

    @cached_property
    def measured(self) -> Outcome:
        """The run itself, of the batches that the model knows."""
        fetch = np.concatenate([one.fetch[one.measured] for one in self.times])
        rest = np.concatenate([(one.before + one.reduce + one.after)[one.measured] for one in self.times])
        return Outcome(float((fetch + rest).mean()), float(fetch.mean()))

    @cached_property
    def modelled(self) -> Outcome:
        """The run as the model has it."""
        return self.outcome(self.reading)

    @property
    def error(self) -> float:
        """Modelled / measured time of a step, less 1."""
        return self.modelled.step_s / self.measured.step_s - 1

    @cached_property
    def noise(self) -> float:
        """Twice the standard error of the mean time of a step, relative: 95 % of means are within.

        From the means of blocks of steps: those of one block are alike, as batches come in bursts.
        """
        noise = [np.inf]
        for one in self.times:
            length = (one.fetch + one.before + one.reduce + one.after)[one.measured]
            if length.size >= 2:
                blocks = min(_BLOCKS, max(2, length.size // _LEAST_BLOCK))
                means = np.array([block.mean() for block in np.array_split(length, blocks)])
                noise.append(float(2 * means.std(ddof=1) / np.sqrt(blocks) / length.mean()))
        return max(noise[1:], default=np.inf)

    @property
    def batches(self) -> int:
        """Measured batches of all ranks."""
        return int(sum(one.measured.sum() for one in self.times))

    def mean(self, name: Literal["made", "asleep", "delay", "read", "preprocess"]) -> float | None:
        """Mean seconds of a batch; None where it was not told."""
        values = np.concatenate([getattr(one, name)[one.measured] for one in self.times])
        return None if not values.size or np.isnan(values).any() else float(values.mean())

    @property
    def cpu_share(self) -> float:
        """Share of the making of batches that needs a core; 1 where it is not told."""
        made, asleep = self.mean("made"), self.mean("asleep")
        return 1.0 if not made or asleep is None else min(1.0, max(0.0, 1 - asleep / made))

    @property
    def starved(self) -> float | None:
        """Share of the makers' time with a batch in which they waited for a core."""
        made, delay = self.mean("made"), self.mean("delay")
        return None if made is None or delay is None or made + delay <= 0 else delay / (made + delay)

    @property
    def taken_by_others(self) -> bool:
        """Whether makers kept fewer cores busy than they wanted and there are, so that something else had them."""
        if self.used is None or not self.cores or self.reading.by == "trainer":
            return False
        wanted = self.reading.makers * self.cpu_share * (1 - (self.idle or 0.0))
        return self.used < _FULLY * min(self.cores, wanted)

    @property
    def used(self) -> float | None:
        """Cores of a rank that the making of batches kept busy, on average; None: not told."""
        made, asleep = self.mean("made"), self.mean("asleep")
        return None if made is None or asleep is None else max(0.0, made - asleep) / self.measured.step_s

    @property
    def idle(self) -> float | None:
        """Share of the makers' time in which they had no batch to make."""
        shares = [one.idle for one in self.times]
        known = [share for share in shares if share is not None]
        return float(np.mean(known)) if known and len(known) == len(shares) else None

    @property
    def knows_hand_over(self) -> bool:
        """Whether the hand-over of batches from other threads or processes was measured."""
        return self.reading.by != "trainer" and all(one.hand_over is not None for one in self.times)

    @property
    def hand_over_s(self) -> float:
        """Seconds in which a batch was handed over to the trainer; 0 where that was not measured."""
        found = self._hand_over(self.reading)
        return found.serial + found.handing

    @property
    def limited_by_hand_over(self) -> bool:
        """Whether makers hand batches over nearly all of the time, or the trainer receives them much of it."""
        found, step = self._hand_over(self.reading), self.measured.step_s
        return found.handing >= _BUSY * self.reading.makers * step or found.serial >= _RECEIVING * step

    def most_makers(self) -> int:
        """Makers of a rank for which there are cores; 0: none, or their number is not known."""
        if self.cores is None or self.cores <= 0:
            return 0
        return int(self.cores / max(self.cpu_share, 0.05) + 1e-6)

    def without(self, parts: Sequence[Literal["read", "preprocess"]], instead_s: float = 0.0) -> Model:
        """The same run, if these parts of making a batch took no time, and something else so much in their place."""
        times = []
        for one in self.times:
            spent = {part: np.nan_to_num(getattr(one, part)) for part in parts}
            nothing: dict[str, Any] = {part: np.zeros(one.made.size) for part in parts}
            times.append(replace(one, made=np.maximum(one.made - sum(spent.values()), 0) + instead_s, **nothing))
        return replace(self, times=times)

    def slower(self, factor: float) -> Model:
        """The same run, if making a batch took longer by this factor."""
        scaled: list[dict[str, Any]] = [{name: getattr(one, name) * factor for name in _OF_MADE} for one in self.times]
        return replace(self, times=[replace(one, **of) for one, of in zip(self.times, scaled, strict=True)])

    def cautious(self) -> Model:
        """The same run, if what was not measured took as long as it may."""
        return replace(self, careful=True)

    def outcome(self, reading: Reading) -> Outcome:
        """The run with other readers."""
        hand_over = self._hand_over(reading)
        slowed = self._slowed(reading)
        ranks = [
            RankClock(one, reading, slowed, hand_over, self._locked(one, reading), self.reading.by != "trainer")
            for one in self.times
        ]
        together = len(ranks) > 1 and any(one.reduce.any() for one in self.times)
        total, waited, count = 0.0, 0.0, 0
        for k in range(min(len(one.fetch) for one in self.times)):
            for rank in ranks:
                rank.take(k)
            if together:
                last = max(rank.now for rank in ranks)
                for rank in ranks:
                    rank.now = last
            for rank in ranks:
                rank.go_on(k, min(float(one.reduce[k]) for one in self.times) if together else None)
                if rank.times.measured[k]:
                    total, waited, count = total + rank.now - rank.asked, waited + rank.waited, count + 1
        return Outcome(total / count, waited / count) if count else Outcome(np.nan, np.nan)

    def _slowed(self, reading: Reading) -> float:
        if reading.by == "trainer" or not self.cores or self.cores <= 0:
            return 1.0
        wanted, before = (self._wanted(one) for one in (reading, self.reading))
        free = self.cores
        if self.careful and self.others:
            # Those that are idle, or a thread's share of all where some have to wait; never none at all.
            share = self.cores / (reading.makers + _THREADS * self.others)
            free = max(self.cores - self.others, reading.makers * share)
        slowed = max(1.0, wanted / free)
        if self.careful and self.full_cores:
            # The run's own makers may have shared cores already.
            slowed = max(slowed, max(1.0, wanted / self.full_cores) / max(1.0, before / self.full_cores))
        return slowed

    def _wanted(self, reading: Reading) -> float:
        """Cores that makers want who always have a batch to make."""
        made, hand_over = self.mean("made"), self._hand_over(reading)
        if not self.careful or not made:
            return reading.makers * self.cpu_share
        busy = made * self.cpu_share + hand_over.handing + hand_over.serial
        return reading.makers * busy / max(made, hand_over.handing)

    def _locked(self, times: RankTimes, reading: Reading) -> Floats:
        """Seconds of each batch in which its thread holds a lock that the others need."""
        none = np.zeros(times.made.size)
        if reading.by != "threads":
            return none
        lock = self.one_lock or times.turns
        held = np.nan_to_num(times.read) if lock else none
        if self.careful and reading.makers > (self.reading.makers if self.reading.by == "threads" else 1):
            # Preprocessing leaves the interpreter's lock free, and so does a thread that waits for a device.
            held = np.maximum(held, times.made - np.nan_to_num(times.preprocess) - np.nan_to_num(times.asleep))
        return held

    def _hand_over(self, reading: Reading) -> HandOver:
        """What it takes; nothing where there is none, or it was not measured."""
        known = [one.hand_over[1 if self.careful else 0] for one in self.times if one.hand_over is not None]
        ours = reading.by != "trainer" and not (reading.by == "threads" and self.reading.by == "workers")
        if not ours or not self.knows_hand_over:
            return HandOver(0.0, 0.0)
        serial, handing = (np.median([(one.serial, one.handing) for one in known], axis=0)).tolist()
        return HandOver(serial, handing)
