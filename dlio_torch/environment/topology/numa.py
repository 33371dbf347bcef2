"""NUMA nodes: their CPUs, memory and distances, and the CPUs in an order that keeps cores and nodes together."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from dlio_torch.environment.cpu_lists import parse_cpus
from dlio_torch.environment.topology.kernel_files import cpus_of, number_of, numbered, text_of

SYS, PROC = Path("/sys"), Path("/proc")


@dataclass(frozen=True)
class NumaNode:
    """NUMA node of the machine.

    Attributes:
        number: number of the node.
        cpus: its CPUs; empty for a node that has memory only.
        memory_bytes: its memory; ``None`` if the kernel does not show it.
        free_bytes: its free memory, ``None`` likewise.
        distances: relative cost of its memory for each node, in the order of nodes: 10 for the node itself.
        why: reason of each ``None``, by attribute.
    """

    number: int
    cpus: tuple[int, ...]
    memory_bytes: int | None = None
    free_bytes: int | None = None
    distances: tuple[int, ...] = ()
    why: Mapping[str, str] = field(default_factory=dict)


class CpuPlace(NamedTuple):
    """Place of a CPU in the machine.

    Attributes:
        node: number of its NUMA node.
        core: socket and number of its physical core.
        sibling: index among the hardware threads of the core.
        cpu: its number.
    """

    node: int
    core: tuple[int, int]
    sibling: int
    cpu: int


def numa_nodes(sys: Path = SYS) -> tuple[NumaNode, ...]:
    """NUMA nodes of the machine; one node with all CPUs if the kernel shows none."""
    nodes = tuple(_node(number, folder) for number, folder in numbered(sys / "devices/system/node", "node"))
    return nodes or (_explained(NumaNode(0, online_cpus(sys)), "the kernel shows no NUMA nodes"),)


def online_cpus(sys: Path = SYS) -> tuple[int, ...]:
    """CPUs that are switched on; empty if the kernel does not show them."""
    return cpus_of(sys / "devices/system/cpu/online")


def allowed_cpus(proc: Path = PROC) -> tuple[int, ...]:
    """CPUs in the affinity mask of this process's main thread; empty if the kernel does not show it."""
    return cpus_of_task(proc / "self")


def cpus_of_task(folder: Path) -> tuple[int, ...]:
    """CPUs in the affinity mask of a process or thread.

    Args:
        folder: ``/proc/PID`` or ``/proc/PID/task/TID``.
    """
    line = next((line for line in (text_of(folder / "status") or "").splitlines() if "Cpus_allowed_list:" in line), "")
    return parse_cpus(line.partition(":")[2])


def cpu_sets(cpus: Collection[int], sys: Path = SYS) -> dict[int, tuple[int, ...]]:
    """CPUs by NUMA node, without nodes that have none of them.

    Args:
        cpus: the usable CPUs.
        sys: folder of the kernel's devices.
    """
    sets: dict[int, tuple[int, ...]] = {}
    for place in cpu_places(cpus, sys):
        sets[place.node] = tuple(sorted((*sets.get(place.node, ()), place.cpu)))
    return sets


def cpu_places(cpus: Collection[int], sys: Path = SYS) -> list[CpuPlace]:
    """Places of CPUs, ordered by node, core and hardware thread."""
    nodes = {cpu: node.number for node in numa_nodes(sys) for cpu in node.cpus}
    return sorted(_place(cpu, nodes.get(cpu, 0), sys) for cpu in cpus)


def _place(cpu: int, node: int, sys: Path) -> CpuPlace:
    folder = sys / f"devices/system/cpu/cpu{cpu}/topology"
    siblings = cpus_of(folder / "thread_siblings_list")
    socket, core = (number_of(folder / name) for name in ("physical_package_id", "core_id"))
    # Without the kernel's word each CPU counts as a core.
    place = (socket or 0, core if core is not None and siblings else cpu)
    return CpuPlace(node, place, siblings.index(cpu) if cpu in siblings else 0, cpu)


def _node(number: int, folder: Path) -> NumaNode:
    distances = tuple(int(word) for word in (text_of(folder / "distance") or "").split() if word.isdecimal())
    total, free = (_memory(folder, name) for name in ("MemTotal", "MemFree"))
    node = NumaNode(number, cpus_of(folder / "cpulist"), total, free, distances)
    return _explained(node, f"/sys/devices/system/node/node{number}/meminfo does not show it")


def _explained(node: NumaNode, reason: str) -> NumaNode:
    """The node with the reason of those values that are not known."""
    absent = [name for name in ("memory_bytes", "free_bytes") if getattr(node, name) is None]
    return replace(node, why=dict.fromkeys(absent, reason))


def _memory(folder: Path, name: str) -> int | None:
    # "Node 0 MemTotal:       32658264 kB"
    for line in (text_of(folder / "meminfo") or "").splitlines():
        words = line.split()
        if len(words) > 3 and words[2] == f"{name}:" and words[3].isdecimal():
            return int(words[3]) * 1024
    return None
