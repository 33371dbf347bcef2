"""Block devices of a node: model, size, NUMA node, PCIe link, and the mounts and paths that lie on them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dlio_torch.environment.mounts import Mount, mount_of, mounts
from dlio_torch.environment.topology.kernel_files import entries, node_of, number_of, text_of
from dlio_torch.environment.topology.numa import PROC, SYS
from dlio_torch.environment.topology.pci_link import PcieLink, pci_folder, pcie_link

_SECTOR = 512  # unit of /sys/block/*/size, whatever the device's sectors are
_CONTROLLER = re.compile(r"nvme\d+")
_NO_DEVICE = "it belongs to no PCI device"


@dataclass(frozen=True)
class StorageDevice:
    """Block device.

    Attributes:
        name: for example ``nvme0n1``.
        model: model; ``None`` if the kernel shows none.
        size_bytes: its size.
        rotational: whether it is a hard disk; ``None`` if the kernel does not show it.
        pci_address: address of its controller; ``None`` if it has none.
        numa_node: NUMA node next to the controller, ``None`` likewise.
        link: PCIe link of the controller, ``None`` likewise.
        parts: devices that it consists of, for software RAID and logical volumes.
        mounts: mount points of its file systems that this process sees.
        why: reason of each ``None``, by attribute.
    """

    name: str
    model: str | None
    size_bytes: int
    rotational: bool | None
    pci_address: str | None
    numa_node: int | None
    link: PcieLink | None
    parts: Sequence[str] = ()
    mounts: Sequence[str] = ()
    why: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PathStorage:
    """Storage of a path of interest.

    Attributes:
        path: the path.
        mount_point: mount that contains it; ``None`` if the kernel does not show it.
        file_system: kind of file system, ``None`` likewise.
        devices: block devices that hold it, those behind software RAID and logical volumes included; empty for
            network file systems and file systems in memory.
        why: reason of each ``None`` and of an empty list, by attribute.
    """

    path: str
    mount_point: str | None
    file_system: str | None
    devices: Sequence[str]
    why: Mapping[str, str] = field(default_factory=dict)


def storage_devices(sys: Path = SYS, proc: Path = PROC) -> tuple[StorageDevice, ...]:
    """Block devices of the node that hold data; loop devices and memory disks only if something is mounted from them.

    Args:
        sys: folder of the kernel's devices.
        proc: folder of the kernel's processes.
    """
    try:
        known = mounts(proc.parent)
    except OSError:
        known = []
    devices = (_device(folder, known) for folder in entries(sys / "block"))
    return tuple(device for device in devices if device.size_bytes and (not _is_virtual(device) or device.mounts))


def storage_of(path: Path, sys: Path = SYS, proc: Path = PROC) -> PathStorage:
    """Storage of a path; if the path does not exist yet, that of its nearest existing parent.

    Args:
        path: the path.
        sys: folder of the kernel's devices.
        proc: folder of the kernel's processes.
    """
    place = Path(os.path.realpath(path.expanduser()))
    mount = mount_of(place, proc.parent)
    if mount is None:
        why = dict.fromkeys(("mount_point", "file_system", "devices"), "/proc/self/mountinfo does not show the mount")
        return PathStorage(str(path), None, None, (), why)
    folder = next((folder for folder in entries(sys / "block") if mount in _mounts_on(folder, [mount])), None)
    names = () if folder is None else tuple(dict.fromkeys((folder.name, *_all_parts(folder))))
    reason = f"the file system {mount.file_system} shows no block device"
    return PathStorage(str(path), mount.point, mount.file_system, names, {} if names else {"devices": reason})


def _device(folder: Path, known: Sequence[Mount]) -> StorageDevice:
    pci = _pci(folder)
    model, rotational = text_of(folder / "device/model"), number_of(folder / "queue/rotational")
    node = None if pci is None else node_of(pci)
    values = {"model": model, "rotational": rotational, "pci_address": pci, "numa_node": node, "link": pci}
    why = dict.fromkeys(("model", "rotational"), "the kernel does not show it")
    why |= dict.fromkeys(("pci_address", "link"), _NO_DEVICE)
    why["numa_node"] = _NO_DEVICE if pci is None else "the kernel shows no NUMA node for its controller"
    return StorageDevice(
        folder.name,
        model,
        (number_of(folder / "size") or 0) * _SECTOR,
        None if rotational is None else rotational == 1,
        None if pci is None else pci.name,
        node,
        None if pci is None else pcie_link(pci),
        tuple(_all_parts(folder)),
        tuple(dict.fromkeys(mount.point for mount in _mounts_on(folder, known))),
        {name: why[name] for name, value in values.items() if value is None},
    )


def _is_virtual(device: StorageDevice) -> bool:
    return re.fullmatch(r"(loop|ram|zram)\d+", device.name) is not None


def _mounts_on(folder: Path, known: Sequence[Mount]) -> list[Mount]:
    """Mounts of a device or its partitions, by device number, or by name if a file system has its own number."""
    parts = [folder, *(part for part in entries(folder) if (part / "partition").exists())]
    numbers, names = {text_of(part / "dev") for part in parts}, {f"/dev/{part.name}" for part in parts}
    names |= {f"/dev/mapper/{name}" for part in parts if (name := text_of(part / "dm/name")) is not None}
    return [mount for mount in known if mount.device_number in numbers or mount.device in names]


def _all_parts(folder: Path) -> Iterator[str]:
    """Devices below software RAID and logical volumes, the devices of partitions in their place."""
    for part in entries(folder / "slaves"):
        place = part.resolve()
        disk = place.parent if (place / "partition").exists() else place
        yield disk.name
        yield from _all_parts(disk)


def _pci(folder: Path) -> Path | None:
    pci = pci_folder(folder)
    # With native multipathing an NVMe namespace belongs to a subsystem, which lists its controllers.
    controllers = (path for path in entries(folder / "device") if _CONTROLLER.fullmatch(path.name))
    return pci or next((pci for controller in controllers if (pci := pci_folder(controller)) is not None), None)
