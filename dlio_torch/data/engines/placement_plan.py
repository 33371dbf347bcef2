"""Plans the placement of a rank's readers from the topology of its node.

``numa``: all readers of a rank share the CPUs of a NUMA node, that of its GPU if batches go to one.  ``cores``: each
reader has CPUs that no other reader of the node has.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dlio_torch.data.engines.facts import Demand
from dlio_torch.data.workers.placement import UNPLACED, Cpus, Placement
from dlio_torch.environment.topology.gpu_devices import gpu_node
from dlio_torch.environment.topology.numa import SYS, CpuPlace, cpu_places, cpu_sets
from dlio_torch.units import counted

if TYPE_CHECKING:
    from dlio_torch.config.schema import Config


@dataclass(frozen=True)
class LocalRank:
    """Position of a rank on its node.

    Attributes:
        number: of the rank among the ranks of the node, from 0; it chooses GPU and NUMA node.
        share: number of the rank among those ranks of the node that may use the same CPUs, from 0.
        shares: number of these ranks; a launcher may have given each rank CPUs of its own.
    """

    number: int = 0
    share: int = 0
    shares: int = 1

    @classmethod
    def of(cls, rank: int, number: int, ranks: Sequence[tuple[str, str]]) -> LocalRank:
        """Position of a rank.

        Args:
            rank: number of the rank.
            number: of the rank on its node.
            ranks: host and usable CPUs of each rank.
        """
        equal = [other for other, place in enumerate(ranks) if place == ranks[rank]]
        return cls(number, equal.index(rank), len(equal))


def plan_placement(config: Config, demand: Demand, rank: LocalRank, sys: Path = SYS) -> Placement:
    """Plans the CPUs of a rank's readers.

    Args:
        config: the experiment.
        demand: workers and threads of the loader.
        rank: position of the rank on its node.
        sys: folder of the kernel's devices.
    """
    if config.loader.affinity == "none":
        return UNPLACED
    usable = os.sched_getaffinity(0)
    if config.loader.affinity == "numa":
        node, why = gpu_node(rank.number, sys) if config.train.device == "cuda" else (None, "")
        placement = on_nodes(cpu_sets(usable, sys), rank, node, why)
    else:
        busy = config.compute.threads if config.compute.mode == "spin" else 1
        placement = on_cores(cpu_places(usable, sys), demand, rank, busy)
    return replace(placement, usable=tuple(sorted(usable)))


def on_nodes(sets: Mapping[int, Cpus], rank: LocalRank, gpu: int | None = None, gpu_why: str = "") -> Placement:
    """Places all readers of a rank on the CPUs of one NUMA node.

    Args:
        sets: usable CPUs of each node.
        rank: its number chooses the node if no GPU does.
        gpu: node of the rank's GPU; ``None``: the rank has none, or its node is not known.
        gpu_why: why the node of the rank's GPU is not known; empty: it is known, or not needed.
    """
    if gpu is not None and gpu in sets:
        return Placement((sets[gpu],))
    node = sorted(sets)[rank.number % len(sets)]
    if gpu is not None:
        gpu_why = f"the process may use no CPU of NUMA node {gpu} of its GPU"
    notes = () if not gpu_why else (f"{gpu_why}; the local rank chooses NUMA node {node}",)
    return Placement((sets[node],), notes=notes)


def on_cores(places: Sequence[CpuPlace], demand: Demand, rank: LocalRank, busy: int = 1) -> Placement:
    """Gives each reader CPUs of its own, and the remaining ones to the trainer.

    A worker with reader threads gets a CPU for each of them if there are enough.  Readers get different cores before
    two of them get hardware threads of the same core.

    Args:
        places: the usable CPUs, in the order of nodes and cores.
        demand: workers and threads of the loader.
        rank: position of the rank on its node; ranks have equal parts of the CPUs that they share.
        busy: threads of the trainer, which get CPUs before readers get a second one.
    """
    part = _part(places, rank)
    cpus = [place.cpu for place in sorted(part, key=lambda place: (place.sibling, place))]
    readers = demand.workers or demand.threads
    if len(cpus) <= readers:
        return Placement(tuple((cpu,) for cpu in cpus), notes=_crowded(cpus, readers, len(places), rank))
    threads = max(1, demand.threads) if demand.workers else 1
    each = max(1, min(threads, (len(cpus) - busy) // readers))
    own_cpus = (tuple(cpus[number * each : (number + 1) * each]) for number in range(readers))
    return Placement(tuple(own_cpus), tuple(cpus[readers * each :]))


def _part(places: Sequence[CpuPlace], rank: LocalRank) -> Sequence[CpuPlace]:
    """CPUs of a rank: an equal part of consecutive ones, or one that ranks share if there are more ranks than CPUs."""
    share, shares, total = rank.share, rank.shares, len(places)
    if shares > total:
        return [places[share % total]]
    return places[share * total // shares : (share + 1) * total // shares]


def _crowded(cpus: Sequence[int], readers: int, total: int, rank: LocalRank) -> tuple[str, ...]:
    if len(cpus) == readers and rank.shares <= total:
        return ()
    of_ranks = f" of each of {rank.shares} ranks" if rank.shares > 1 else ""
    return (
        f"{counted(readers, 'reader')}{of_ranks} share {counted(len(cpus), 'CPU')} round robin: this process may use "
        f"{counted(total, 'CPU')} of the node",
    )


def placement_lines(config: Config, placement: Placement) -> list[str]:
    """Lines on how a placement differs from the requested one."""
    return [f"loader.affinity={config.loader.affinity}: {note}" for note in placement.notes]
