"""Predicts the waits of a run with other producers: replays its measured times through a loader model.

In the model, producer ``k mod n`` produces batch k of an epoch in ``production[k]`` seconds.  It begins when it has
finished batch ``k - n`` and the trainer has requested batch k.  The trainer requests the first ``depth`` batches at
once, and batch k when it takes batch ``k - depth``::

    begin[k] = max(end[k - n], taken[k - depth])            end[k]   = begin[k] + production[k]
                                                            ready[k] = max(end[k], ready[k - n]) + sending
    taken[k] = max(asked[k], ready[k]) + serial             asked[k + 1] = taken[k] + compute[k] + rest[k]

``asked`` is the time at which the trainer asks, ``ready`` the end of the transfer, which the producer does while it
produces its next batch.  Without producers (``n = 0``) the trainer produces the batch: ``taken[k] = asked[k] +
production[k]``.  This is Lindley's recursion (The theory of queues with a single server, 1952) for a closed loop, with
the order and the credits of torch's DataLoader (``prefetch_factor`` requested batches per worker) and of reader threads
(``prefetch_batches`` in all).  Its long-run bound is that of operational analysis (Denning and Buzen, The operational
analysis of queueing network models, 1978)::

    step >= max(compute + rest + serial, production / n, sending / n, (production - asleep) / free cores)

For the last term, the model slows all producers down if they need more cores than are free.  Threads that read in
turn, or under one lock, read one after another.  Ranks that reduce gradients wait for the slowest one.

:meth:`LoaderModel.cautious` gives the other end of an interval.  It adds the possible costs that were not measured:
two threads of a core are no faster than one, readers hold the interpreter's lock, a transfer uses a core or is all the
trainer's, and other programs keep their cores.

The model neglects that producers disturb each other in memory and caches, and that a storage answers more concurrent
requests later.  :attr:`LoaderModel.error`, the difference between model and run, shows the size of these effects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from dlio_torch.analysis.advice.batch_times import RankTimes
from dlio_torch.analysis.advice.loader_replay import LoaderSetup, RankClock
from dlio_torch.analysis.advice.transfer_times import TransferTime
from dlio_torch.analysis.producers import Floats

_BLOCKS, _LEAST_BLOCK = 8, 4
_OF_PRODUCTION = ("production", "asleep", "read", "preprocess")
_THREADS = 4  # of other programs that may wait for each core that they keep busy
_BUSY, _RECEIVING = 0.8, 0.3  # shares of the time
_FULLY = 0.8  # of the cores that producers want: below it, they did not get them


@dataclass(frozen=True)
class LoaderOutcome:
    """Mean seconds per batch: from one batch to the next, and the trainer's wait."""

    step_s: float
    fetch_s: float


@dataclass(frozen=True)
class LoaderModel:
    """Loader model of a run, which can be replayed with other producers.

    Attributes:
        times: what was measured, by rank.
        setup: the threads or workers that produced the batches.
        cores: cores of a rank that its producers could use, if nothing else did; None: not known, no limit.
        one_lock: threads of a process read one after another (h5py has one lock for all calls).
        full_cores: of the cores those that share nothing, where two threads run on one; None: as many as ``cores``.
        others: of the cores those that other programs kept busy while the run trained.
        careful: what was not measured takes as long as it may.
    """

    times: Sequence[RankTimes]
    setup: LoaderSetup
    cores: float | None
    one_lock: bool = False
    full_cores: float | None = None
    others: float = 0.0
    careful: bool = False

    @cached_property
    def measured(self) -> LoaderOutcome:
        """Measured mean times of the batches that the model covers."""
        fetch = np.concatenate([rank.fetch[rank.measured] for rank in self.times])
        rest = np.concatenate([(rank.before + rank.reduce + rank.after)[rank.measured] for rank in self.times])
        return LoaderOutcome(float((fetch + rest).mean()), float(fetch.mean()))

    @cached_property
    def modelled(self) -> LoaderOutcome:
        """Modelled mean times of the run as it was."""
        return self.outcome(self.setup)

    @property
    def error(self) -> float:
        """Relative error of the modelled time of a step: modelled / measured - 1."""
        return self.modelled.step_s / self.measured.step_s - 1

    @cached_property
    def noise(self) -> float:
        """Twice the relative standard error of the mean time of a step, within which 95 % of repeated means lie.

        From the means of blocks of steps: those of one block are alike, as batches come in bursts.
        """
        noise = [np.inf]
        for rank in self.times:
            length = (rank.fetch + rank.before + rank.reduce + rank.after)[rank.measured]
            if length.size >= 2:
                blocks = min(_BLOCKS, max(2, length.size // _LEAST_BLOCK))
                means = np.array([block.mean() for block in np.array_split(length, blocks)])
                noise.append(float(2 * means.std(ddof=1) / np.sqrt(blocks) / length.mean()))
        return max(noise[1:], default=np.inf)

    @property
    def batches(self) -> int:
        """Number of measured batches of all ranks."""
        return int(sum(rank.measured.sum() for rank in self.times))

    def mean(self, name: Literal["production", "asleep", "delay", "read", "preprocess"]) -> float | None:
        """Mean seconds per batch of one part of its production; None if it was not recorded."""
        values = np.concatenate([getattr(rank, name)[rank.measured] for rank in self.times])
        return None if not values.size or np.isnan(values).any() else float(values.mean())

    @property
    def cpu_share(self) -> float:
        """Share of the production time that needs a core; 1 if it was not recorded."""
        production, asleep = self.mean("production"), self.mean("asleep")
        return 1.0 if not production or asleep is None else min(1.0, max(0.0, 1 - asleep / production))

    @property
    def starved(self) -> float | None:
        """Share of the production time that producers spent in the run queue."""
        production, delay = self.mean("production"), self.mean("delay")
        return None if production is None or delay is None or production + delay <= 0 else delay / (production + delay)

    @property
    def taken_by_others(self) -> bool:
        """Whether other programs used cores that the producers needed."""
        if self.used is None or not self.cores or self.setup.by == "trainer":
            return False
        wanted = self.setup.producers * self.cpu_share * (1 - (self.idle or 0.0))
        return self.used < _FULLY * min(self.cores, wanted)

    @property
    def used(self) -> float | None:
        """Mean number of cores of a rank that production kept busy; None: not recorded."""
        production, asleep = self.mean("production"), self.mean("asleep")
        return None if production is None or asleep is None else max(0.0, production - asleep) / self.measured.step_s

    @property
    def idle(self) -> float | None:
        """Share of the producers' time in which they had no batch to produce."""
        shares = [rank.idle for rank in self.times]
        known = [share for share in shares if share is not None]
        return float(np.mean(known)) if known and len(known) == len(shares) else None

    @property
    def knows_transfer(self) -> bool:
        """Whether the transfer of batches from other threads or processes was measured."""
        return self.setup.by != "trainer" and all(rank.transfer is not None for rank in self.times)

    @property
    def transfer_s(self) -> float:
        """Seconds of a batch's transfer to the trainer; 0 if it was not measured."""
        transfer = self._transfer(self.setup)
        return transfer.serial + transfer.sending

    @property
    def limited_by_transfer(self) -> bool:
        """Whether the transfer limits the run: producers send most of the time, or the trainer receives much of it."""
        transfer, step = self._transfer(self.setup), self.measured.step_s
        return transfer.sending >= _BUSY * self.setup.producers * step or transfer.serial >= _RECEIVING * step

    def most_producers(self) -> int:
        """Largest number of a rank's producers with a core each; 0 if there are none, or cores are not known."""
        if self.cores is None or self.cores <= 0:
            return 0
        return int(self.cores / max(self.cpu_share, 0.05) + 1e-6)

    def without(self, parts: Sequence[Literal["read", "preprocess"]], instead_s: float = 0.0) -> LoaderModel:
        """The same model with some parts of production replaced by a fixed time."""
        times = []
        for rank in self.times:
            spent = {part: np.nan_to_num(getattr(rank, part)) for part in parts}
            nothing: dict[str, Any] = {part: np.zeros(rank.production.size) for part in parts}
            times.append(
                replace(rank, production=np.maximum(rank.production - sum(spent.values()), 0) + instead_s, **nothing)
            )
        return replace(self, times=times)

    def slower(self, factor: float) -> LoaderModel:
        """The same model with production times multiplied by a factor."""
        scaled: list[dict[str, Any]] = [
            {name: getattr(rank, name) * factor for name in _OF_PRODUCTION} for rank in self.times
        ]
        return replace(self, times=[replace(rank, **of) for rank, of in zip(self.times, scaled, strict=True)])

    def cautious(self) -> LoaderModel:
        """The same model with the largest possible cost of everything that was not measured."""
        return replace(self, careful=True)

    def outcome(self, setup: LoaderSetup) -> LoaderOutcome:
        """Replays the run with another setup of producers."""
        transfer = self._transfer(setup)
        slowed = self._slowed(setup)
        ranks = [
            RankClock(rank_times, setup, slowed, transfer, self._locked(rank_times, setup), self.setup.by != "trainer")
            for rank_times in self.times
        ]
        synchronous = len(ranks) > 1 and any(rank_times.reduce.any() for rank_times in self.times)
        total, waited, count = 0.0, 0.0, 0
        for k in range(min(len(rank_times.fetch) for rank_times in self.times)):
            for rank in ranks:
                rank.take(k)
            if synchronous:
                last = max(rank.now for rank in ranks)
                for rank in ranks:
                    rank.now = last
            for rank in ranks:
                rank.go_on(k, min(float(rank_times.reduce[k]) for rank_times in self.times) if synchronous else None)
                if rank.times.measured[k]:
                    total, waited, count = total + rank.now - rank.requested_at, waited + rank.waited, count + 1
        return LoaderOutcome(total / count, waited / count) if count else LoaderOutcome(np.nan, np.nan)

    def _slowed(self, setup: LoaderSetup) -> float:
        if setup.by == "trainer" or not self.cores or self.cores <= 0:
            return 1.0
        wanted, before = (self._wanted(candidate) for candidate in (setup, self.setup))
        free = self.cores
        if self.careful and self.others:
            # Those that are idle, or a thread's share of all where some have to wait; never none at all.
            share = self.cores / (setup.producers + _THREADS * self.others)
            free = max(self.cores - self.others, setup.producers * share)
        slowed = max(1.0, wanted / free)
        if self.careful and self.full_cores:
            # The run's own producers may have shared cores already.
            slowed = max(slowed, max(1.0, wanted / self.full_cores) / max(1.0, before / self.full_cores))
        return slowed

    def _wanted(self, setup: LoaderSetup) -> float:
        """Number of cores that continuously busy producers need."""
        production, transfer = self.mean("production"), self._transfer(setup)
        if not self.careful or not production:
            return setup.producers * self.cpu_share
        busy = production * self.cpu_share + transfer.sending + transfer.serial
        return setup.producers * busy / max(production, transfer.sending)

    def _locked(self, times: RankTimes, setup: LoaderSetup) -> Floats:
        """Seconds per batch in which its thread holds a lock that other threads need."""
        none = np.zeros(times.production.size)
        if setup.by != "threads":
            return none
        lock = self.one_lock or times.turns
        held = np.nan_to_num(times.read) if lock else none
        if self.careful and setup.producers > (self.setup.producers if self.setup.by == "threads" else 1):
            # Preprocessing leaves the interpreter's lock free, and so does a thread that waits for a device.
            held = np.maximum(held, times.production - np.nan_to_num(times.preprocess) - np.nan_to_num(times.asleep))
        return held

    def _transfer(self, setup: LoaderSetup) -> TransferTime:
        """Transfer times of a batch; zero without a transfer, or if it was not measured."""
        known = [rank.transfer[1 if self.careful else 0] for rank in self.times if rank.transfer is not None]
        ours = setup.by != "trainer" and not (setup.by == "threads" and self.setup.by == "workers")
        if not ours or not self.knows_transfer:
            return TransferTime(0.0, 0.0)
        serial, sending = (np.median([(transfer.serial, transfer.sending) for transfer in known], axis=0)).tolist()
        return TransferTime(serial, sending)
