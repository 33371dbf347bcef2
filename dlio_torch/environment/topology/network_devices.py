"""Network interfaces and InfiniBand ports of a node: speed and NUMA node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dlio_torch.environment.topology.kernel_files import entries, node_of, number_of, numbered, text_of
from dlio_torch.environment.topology.numa import SYS
from dlio_torch.environment.topology.pci_link import PcieLink, pci_folder, pcie_link

_BITS = 8
_NO_NODE = "the kernel shows no NUMA node for it"


@dataclass(frozen=True)
class NetworkInterface:
    """Network interface.

    Attributes:
        name: for example ``eth0``.
        state: ``up``, ``down`` or ``unknown``.
        bytes_per_s: speed of its link in a direction; ``None`` if it is down or virtual.
        pci_address: address of its device; ``None`` for a virtual one.
        numa_node: NUMA node next to its device, ``None`` likewise.
        link: PCIe link of its device, ``None`` likewise.
        why: reason of each ``None``, by attribute.
    """

    name: str
    state: str
    bytes_per_s: float | None
    pci_address: str | None
    numa_node: int | None
    link: PcieLink | None
    why: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class InfinibandPort:
    """Port of an InfiniBand or RoCE device.

    Attributes:
        device: for example ``mlx5_0``.
        port: its number.
        layer: ``InfiniBand`` or ``Ethernet``; ``None`` if the kernel does not show it.
        active: whether it can carry traffic.
        bytes_per_s: rate of the port in a direction, ``None`` likewise.
        numa_node: NUMA node next to the device, ``None`` likewise.
        why: reason of each ``None``, by attribute.
    """

    device: str
    port: int
    layer: str | None
    active: bool
    bytes_per_s: float | None
    numa_node: int | None
    why: Mapping[str, str] = field(default_factory=dict)


def network_interfaces(sys: Path = SYS) -> tuple[NetworkInterface, ...]:
    """Network interfaces that this process sees, without the loopback."""
    return tuple(_interface(folder) for folder in entries(sys / "class/net") if _is_interface(folder))


def infiniband_ports(sys: Path = SYS) -> tuple[InfinibandPort, ...]:
    """Ports of InfiniBand and RoCE devices."""
    return tuple(
        _port(device, number, folder)
        for device in entries(sys / "class/infiniband")
        for number, folder in numbered(device / "ports", "")
    )


def _is_interface(folder: Path) -> bool:
    return folder.name != "lo" and folder.is_dir()  # a bond has a file bonding_masters there


def _interface(folder: Path) -> NetworkInterface:
    speed = number_of(folder / "speed")  # Mbit/s; -1 if it is not known
    device = folder / "device"
    pci = pci_folder(device) if device.exists() else None
    node = None if pci is None else node_of(pci)
    why = {}
    if speed is None or speed <= 0:
        why["bytes_per_s"] = "the link is down, or the interface is virtual and has no speed"
    if pci is None:
        why |= dict.fromkeys(("pci_address", "numa_node", "link"), "the interface belongs to no PCI device")
    elif node is None:
        why["numa_node"] = _NO_NODE
    return NetworkInterface(
        folder.name,
        text_of(folder / "operstate") or "unknown",
        None if "bytes_per_s" in why else (speed or 0) * 1e6 / _BITS,
        None if pci is None else pci.name,
        node,
        None if pci is None else pcie_link(pci),
        why,
    )


def _port(device: Path, number: int, folder: Path) -> InfinibandPort:
    layer, rate, node = text_of(folder / "link_layer"), _rate(folder / "rate"), node_of(device / "device")
    why = {"layer": "the kernel does not show it", "bytes_per_s": "the kernel shows no rate", "numa_node": _NO_NODE}
    values = {"layer": layer, "bytes_per_s": rate, "numa_node": node}
    active = (text_of(folder / "state") or "").endswith(": ACTIVE")
    return InfinibandPort(
        device.name, number, layer, active, rate, node, {name: why[name] for name in why if values[name] is None}
    )


def _rate(path: Path) -> float | None:
    # "100 Gb/sec (4X EDR)", "2.5 Gb/sec (1X SDR)"
    words = (text_of(path) or "").split()
    try:
        return float(words[0]) * 1e9 / _BITS if words[1:2] == ["Gb/sec"] else None
    except ValueError:
        return None
