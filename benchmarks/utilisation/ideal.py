"""Ideal loader on a known storage, as SimPy processes: the truth for the benchmark ``au_truth``.

It shares no code with the package's own simulation.  A worker reads the requests of its batch one after another; the
storage answers each after its latency and jitter, and sends its bytes through one pipe.  As in torch's DataLoader a
worker has two batches to make at most; without workers the trainer reads.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence

import simpy

from dlio_torch.data.engines.delayed_reads import StorageDelay

Process = Generator[simpy.Event, object, object]
AHEAD = 2


def ideal_utilisation(
    storage: StorageDelay, sizes: Sequence[int], step_s: float, workers: int, ranks: int, steps: int = 2000
) -> float:
    """Accelerator utilisation with loaders that cost nothing, mean over ranks.

    Args:
        storage: time that each request takes.
        sizes: bytes of the requests of one batch, in their order.
        step_s: compute time of a step, s.
        workers: worker processes of each rank; 0: the trainer reads.
        ranks: number of ranks that share the storage.
        steps: number of steps of each rank.
    """
    env = simpy.Environment()
    pipe, chance = simpy.Resource(env), random.Random(1)
    ends: list[float] = []

    def read() -> Process:
        for size in sizes:
            yield env.timeout(storage.latency_s + chance.uniform(0, storage.jitter_s))
            if storage.bytes_per_s:
                with pipe.request() as turn:
                    yield turn
                    yield env.timeout(size / storage.bytes_per_s)

    def worker(tokens: simpy.Store, batches: simpy.Store) -> Process:
        while True:
            yield tokens.get()
            yield from read()
            yield batches.put(None)

    def trainer() -> Process:
        queues = [(simpy.Store(env), simpy.Store(env)) for _ in range(workers)]
        for tokens, batches in queues:
            tokens.items.extend([None] * AHEAD)
            env.process(worker(tokens, batches))
        for step in range(steps):
            if workers:
                tokens, batches = queues[step % workers]
                yield batches.get()
                yield tokens.put(None)
            else:
                yield from read()
            yield env.timeout(step_s)
        ends.append(env.now)

    trainers = [env.process(trainer()) for _ in range(ranks)]
    env.run(until=simpy.AllOf(env, trainers))
    return sum(steps * step_s / end for end in ends) / ranks
