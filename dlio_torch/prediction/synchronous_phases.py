"""Times of phases that all ranks enter at once: opening the first files, loading data, checkpoints."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import simpy

from dlio_torch.prediction.cluster import VISITS, Cluster, Node
from dlio_torch.prediction.rank_workload import RankWorkload

Process = Generator[simpy.Event, object, None]


def begin_s(cluster: Cluster, ranks: int, workload: RankWorkload, header_requests: float, cached: float) -> float:
    """Seconds in which all producers of all ranks, at once, open their first files and load data.

    Args:
        cluster: a new one.
        ranks: how many.
        workload: of the measured run.
        header_requests: reads of opening a file.
        cached: share of the bytes that memory delivers.
    """
    env = simpy.Environment()

    def producer(node: Node) -> Process:
        opens = workload.first_opens
        if opens > 0:
            yield env.timeout(cluster.open(env.now, opens) - env.now)
            if header_requests and cached < 1:
                requests = opens * header_requests * (1 - cached)
                yield env.timeout(cluster.read_header(env.now, node, requests) - env.now)

    def loaded(node: Node) -> Process:
        size = workload.load_bytes * (1 - cached) / VISITS
        for _ in range(VISITS):
            requests = max(1.0, size / cluster.system.stripe_bytes)
            yield env.timeout(cluster.read(env.now, node, size, requests) - env.now)

    for rank in range(ranks):
        node = cluster.node_of(rank)
        for _ in range(max(1, workload.setup.producers)):
            env.process(producer(node))
        if workload.load_bytes and cached < 1:
            env.process(loaded(node))
    env.run()
    return float(env.now)


def checkpoint_s(cluster: Cluster, sizes: Sequence[float]) -> float:
    """Seconds in which all ranks that save write to separate files at once.

    Args:
        cluster: a new one.
        sizes: bytes that each of the first ranks writes.
    """
    return max(cluster.write(0.0, cluster.node_of(rank), size) for rank, size in enumerate(sizes))
