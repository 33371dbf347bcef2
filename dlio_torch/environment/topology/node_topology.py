"""Topology of a node as one record: processors, NUMA nodes, memory, GPUs, storage, network, virtualisation."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dlio_torch.environment.cpu_lists import format_cpus
from dlio_torch.environment.topology.containers import Virtualisation, virtualisation
from dlio_torch.environment.topology.gpu_devices import Gpu, gpus
from dlio_torch.environment.topology.host_memory import HostMemory, host_memory
from dlio_torch.environment.topology.network_devices import (
    InfinibandPort,
    NetworkInterface,
    infiniband_ports,
    network_interfaces,
)
from dlio_torch.environment.topology.numa import PROC, SYS, NumaNode, numa_nodes
from dlio_torch.environment.topology.processors import Processors, processors
from dlio_torch.environment.topology.storage_devices import PathStorage, StorageDevice, storage_devices, storage_of


@dataclass(frozen=True)
class Topology:
    """Topology of a node; each part explains under ``why`` those of its values that are not known.

    Attributes:
        processors: sockets, cores, caches and usable CPUs.
        numa_nodes: NUMA nodes.
        memory: memory of the node.
        gpus: GPUs; those with a number under ``visible`` can be used by CUDA programs.
        storage: block devices.
        paths: storage of the paths of interest, by name.
        interfaces: network interfaces.
        infiniband: ports of InfiniBand and RoCE devices.
        virtualisation: container and virtual machine.
        why: reason of each empty list, by attribute.
    """

    processors: Processors
    numa_nodes: Sequence[NumaNode]
    memory: HostMemory
    gpus: Sequence[Gpu]
    storage: Sequence[StorageDevice]
    paths: Mapping[str, PathStorage]
    interfaces: Sequence[NetworkInterface]
    infiniband: Sequence[InfinibandPort]
    virtualisation: Virtualisation
    why: Mapping[str, str]

    def to_record(self) -> dict[str, Any]:
        """The topology as JSON-compatible values; CPUs of a NUMA node as text, such as ``0-3,8``."""
        record: dict[str, Any] = _plain(asdict(self))
        for entry, node in zip(record["numa_nodes"], self.numa_nodes, strict=True):
            entry["cpus"] = format_cpus(node.cpus)
        for entry, gpu in zip(record["gpus"], self.gpus, strict=True):
            entry["mig"] = None if gpu.mig is None else [instance._asdict() for instance in gpu.mig]
        return record


def describe_topology(
    sys: Path = SYS,
    proc: Path = PROC,
    *,
    paths: Mapping[str, Path | str] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Topology:
    """Describes the topology of this node; uses no GPU and changes nothing.

    Args:
        sys: folder of the kernel's devices; control groups are looked up in the folder that contains ``proc``.
        proc: folder of the kernel's processes.
        paths: paths of interest by name, for example ``{"data": ...}``.
        environ: environment variables of the programs that the topology is for.
    """
    parts: dict[str, Sequence[Any]] = {
        "gpus": gpus(sys, environ),
        "storage": storage_devices(sys, proc),
        "interfaces": network_interfaces(sys),
        "infiniband": infiniband_ports(sys),
    }
    reasons = {
        "gpus": "neither nvidia-smi nor the PCI bus shows a GPU",
        "storage": "/sys/block shows no device, as in some containers",
        "interfaces": "/sys/class/net shows no interface besides the loopback",
        "infiniband": "/sys/class/infiniband shows no device",
    }
    return Topology(
        processors=processors(sys, proc),
        numa_nodes=numa_nodes(sys),
        memory=host_memory(sys, proc),
        paths={name: storage_of(Path(path), sys, proc) for name, path in (paths or {}).items()},
        virtualisation=virtualisation(sys, proc, environ),
        why={name: reason for name, reason in reasons.items() if not parts[name]},
        **parts,
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value
