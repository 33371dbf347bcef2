"""Simulates ranks and their producers as SimPy processes on the servers of one cluster.

A producer takes batch k when it has finished its last one and the trainer has taken batch ``k - depth``, as in
:mod:`dlio_torch.analysis.advice.loader_model`.  It opens files at the metadata servers, reads in a few visits to the
targets, and works on a core of its node.  The trainer takes batches in order, computes, waits for the slowest rank if
gradients are reduced, and requests the next batch.  Times of production and of compute are drawn from the measured
ones.

The requests of a batch are served in at most four visits, so that a batch costs about ten events whatever its size.
The number of steps suffices for a mean; it is smaller with more ranks.  The first steps, in which queues fill, do not
count.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from random import Random

import simpy

from dlio_torch.prediction.cluster import VISITS, Cluster
from dlio_torch.prediction.rank_workload import RankWorkload

_BATCHES = 20_000
_LEAST, _MOST = 8, 1000  # steps of a rank that count

Process = Generator[simpy.Event, object, None]


@dataclass(frozen=True)
class RankDemand:
    """Work of each batch of each rank, at the simulated number of ranks.

    Attributes:
        workload: of the measured run.
        scale: a batch of a rank, of a measured one.
        size: bytes that it reads from the storage.
        requests: that it reads them with.
        opens: files that it opens there.
        reduce_s: what the exchange of its gradients takes.
    """

    workload: RankWorkload
    scale: float
    size: float
    requests: float
    opens: float
    reduce_s: float


@dataclass(frozen=True)
class Steady:
    """Result of a simulation, without its first steps.

    Attributes:
        batches_per_s: of all ranks together.
        step_s: mean seconds from one batch of a rank to the next.
        wait: share of that in which a trainer waited for its batch.
        compute: share of compute.
        reduce: share of the exchange and of waiting for other ranks.
        busy: for each kind of server the share of the time in which they worked, of the busiest one of nodes.
        events: batches that were simulated.
    """

    batches_per_s: float
    step_s: float
    wait: float
    compute: float
    reduce: float
    busy: dict[str, float]
    events: int


def steady(demand: RankDemand, cluster: Cluster, ranks: int, seed: int) -> Steady:
    """Simulates ``ranks`` ranks; the result is deterministic for the same arguments.

    Args:
        demand: what a batch asks for.
        cluster: a new one.
        ranks: how many.
        seed: of the times that are drawn.
    """
    skipped = min(8, demand.workload.setup.depth) + 3
    count = skipped + min(_MOST, max(_LEAST, _BATCHES // ranks))
    env = simpy.Environment()
    run = _Run(env, demand, cluster, ranks, skipped, count)
    members = [_Rank(run, rank, Random(seed * 1_000_003 + rank)) for rank in range(ranks)]
    env.run(until=run.done)
    spans = [rank.end - rank.begin for rank in members]
    steps, total = count - skipped, sum(spans)
    return Steady(
        batches_per_s=sum(steps / span for span in spans),
        step_s=total / steps / ranks,
        wait=sum(rank.waited for rank in members) / total,
        compute=sum(rank.computed for rank in members) / total,
        reduce=sum(rank.reduced for rank in members) / total,
        busy=_busy(cluster, env.now),
        events=sum(rank.batches for rank in members),
    )


def _busy(cluster: Cluster, seconds: float) -> dict[str, float]:
    busy = {
        "storage targets": sum(target.work for target in cluster.targets) / len(cluster.targets),
        "one storage target": max(target.work for target in cluster.targets),
        "metadata servers": cluster.metadata.work / cluster.metadata.size,
        "a node's network link": max(node.link.work for node in cluster.nodes),
        "a node's cores": max(node.cores.work / node.cores.size if node.cores else 0.0 for node in cluster.nodes),
    }
    return {name: min(1.0, work / seconds) for name, work in busy.items()}


class _Run:
    """Shared state of the ranks: clock, barrier, and end of the simulation."""

    def __init__(
        self, env: simpy.Environment, demand: RankDemand, cluster: Cluster, ranks: int, skipped: int, count: int
    ) -> None:
        self.env, self.demand, self.cluster, self.ranks = env, demand, cluster, ranks
        self.skipped, self.count = skipped, count
        # Lists: one number of an array costs ten times as much.
        work = demand.workload
        self.cpu, self.blocked = (work.cpu * demand.scale).tolist(), (work.blocked * demand.scale).tolist()
        self.compute, self.after = work.compute.tolist(), work.after.tolist()
        self.done = env.event()
        self._left = ranks
        self._arrived, self._barrier = 0, env.event()

    def barrier(self) -> simpy.Event:
        """Event that occurs when every rank has reached the barrier."""
        self._arrived += 1
        barrier = self._barrier
        if self._arrived == self.ranks:
            self._arrived, self._barrier = 0, self.env.event()
            barrier.succeed()
        return barrier

    def finished(self) -> None:
        """Counts a rank as finished; the rank continues, so that the others do not get faster."""
        self._left -= 1
        if not self._left:
            self.done.succeed()


class _Rank:
    """A simulated rank: its trainer and its producers."""

    def __init__(self, run: _Run, rank: int, random: Random) -> None:
        self._run, self._env, self._random = run, run.env, random
        self._work = run.demand.workload
        self._node = run.cluster.node_of(rank)
        self._phase = random.random()
        self._ready: set[int] = set()
        self._wanted: tuple[int, simpy.Event] | None = None
        self._taken = 0
        self._credits: dict[int, simpy.Event] = {}
        self._lock = simpy.Resource(self._env) if self._work.locked else None
        self.begin = self.end = self.waited = self.computed = self.reduced = 0.0
        self.batches = 0
        setup = self._work.setup
        for producer in range(setup.producers):
            self._env.process(self._producer(producer, setup.producers, setup.depth))
        self._env.process(self._trainer())

    def _trainer(self) -> Process:
        env, work, run = self._env, self._work, self._run
        barrier = work.barrier and run.ranks > 1
        k = 0
        while True:
            if k == run.skipped:
                self.begin, self.waited, self.computed, self.reduced = env.now, 0.0, 0.0, 0.0
            elif k == run.count:
                self.end = env.now
                run.finished()
            counts = k < run.count
            requested = env.now
            if not work.setup.producers:
                yield from self._make(k)
            elif k not in self._ready:
                self._wanted = (k, env.event())
                yield self._wanted[1]
            self._ready.discard(k)
            self._take()
            if work.serial:
                yield env.timeout(work.serial)
            drawn = int(self._random.random() * len(run.compute))
            compute, after = run.compute[drawn], run.after[drawn]
            waited = env.now - requested
            yield env.timeout(compute)
            came = env.now
            if barrier:
                yield run.barrier()
                if run.demand.reduce_s:
                    yield env.timeout(run.demand.reduce_s)
            if counts:
                self.waited += waited
                self.computed += compute
                self.reduced += env.now - came
            # Time has to pass, whatever was measured, or the loop would not end.
            yield env.timeout(max(after, 1e-9))
            k += 1

    def _take(self) -> None:
        self._taken += 1
        credit = self._credits.pop(self._taken, None)
        if credit is not None:
            credit.succeed()

    def _producer(self, first: int, step: int, depth: int) -> Process:
        k = first
        while True:
            needed = k - depth + 1
            if needed > self._taken:
                self._credits[needed] = self._env.event()
                yield self._credits[needed]
            yield from self._make(k)
            self._env.process(self._transfer(k))
            k += step

    def _transfer(self, number: int) -> Process:
        yield self._env.timeout(self._work.sending)
        self._ready.add(number)
        if self._wanted is not None and self._wanted[0] == number:
            self._wanted[1].succeed()
            self._wanted = None

    def _make(self, k: int) -> Process:
        env, run, demand, work = self._env, self._run, self._run.demand, self._work
        self.batches += 1
        opens = int((k + 1) * demand.opens + self._phase) - int(k * demand.opens + self._phase)
        drawn = int(self._random.random() * len(run.cpu))
        cpu, blocked = run.cpu[drawn], run.blocked[drawn]
        if self._lock is None:
            yield from self._input(opens)
            yield env.timeout(self._worked(cpu) - env.now + blocked)
            return
        with self._lock.request() as turn:
            yield turn
            yield from self._input(opens)
            yield env.timeout(self._worked(cpu * work.locked) - env.now + blocked)
        yield env.timeout(self._worked(cpu * (1 - work.locked)) - env.now)

    def _input(self, opens: int) -> Process:
        env, demand, cluster = self._env, self._run.demand, self._run.cluster
        if opens:
            yield env.timeout(cluster.open(env.now, opens) - env.now)
        if demand.size > 0:
            visits = min(VISITS, max(1, round(demand.requests)))
            size, requests = demand.size / visits, demand.requests / visits
            for _ in range(visits):
                yield env.timeout(cluster.read(env.now, self._node, size, requests) - env.now)

    def _worked(self, seconds: float) -> float:
        cores = self._node.cores
        return self._env.now + seconds if cores is None else cores.serve(self._env.now, seconds)
