"""GPUs of a node: name, memory, PCIe link, NUMA node, NVLinks, MIG instances, and which of them CUDA programs see."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from dlio_torch.environment.gpu import gpu_of
from dlio_torch.environment.nvidia_smi import (
    PROGRAM,
    GpuQueryFailed,
    MigInstance,
    mebibytes,
    mig_instances,
    nvlinks,
    query_gpus,
)
from dlio_torch.environment.topology.kernel_files import entries, node_of, number_of, text_of
from dlio_torch.environment.topology.numa import SYS
from dlio_torch.environment.topology.pci_link import PcieLink, pcie_link
from dlio_torch.environment.topology.visible_gpus import visible_gpus

_NVIDIA, _AMD, _INTEL = "0x10de", "0x1002", "0x8086"
_VENDORS = {_NVIDIA: "NVIDIA", _AMD: "AMD", _INTEL: "Intel"}
_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")
"""PCI classes of GPUs: VGA, 3D and display controllers, and processing accelerators."""
_LINK = ("pcie.link.gen.current", "pcie.link.width.current", "pcie.link.gen.max", "pcie.link.width.max")
_NO_NODE = "the kernel shows no NUMA node for it"
_FIELDS = ("index", "uuid", "name", "memory.total", "pci.bus_id", *_LINK)
_NO_NVIDIA = "only NVIDIA's driver tells it"


_NO_LINK = PcieLink.known(None, None, None, None)
_Links = dict[int, dict[int, int]]
_Parts = dict[int, tuple[MigInstance, ...]]
ValueT = TypeVar("ValueT")


@dataclass(frozen=True)
class _Answer(Generic[ValueT]):
    """Answer of a query, or the reason why there is none."""

    value: ValueT | None
    why: str


@dataclass(frozen=True)
class Gpu:
    """GPU of the node.

    Attributes:
        number: number in the order of PCI addresses; nvidia-smi counts NVIDIA's GPUs in the same order.
        vendor: ``NVIDIA``, ``AMD`` or ``Intel``.
        name: model; ``None`` if it is not known.
        memory_bytes: its memory; ``None`` if it is not known, or is the memory of the CPU.
        uuid: identifier of the driver, ``None`` likewise.
        pci_address: for example ``0000:3b:00.0``.
        numa_node: NUMA node next to it; ``None`` if the kernel shows none.
        link: PCIe link.
        nvlinks: number of NVLinks to other GPUs, by their numbers; ``None`` if it is not known.
        mig: MIG instances; empty without MIG mode, ``None`` if they are not known.
        visible: numbers that CUDA gives to it or its MIG instances; empty if ``CUDA_VISIBLE_DEVICES`` hides it,
            ``None`` if CUDA cannot use it.
        why: reason of each ``None``, by attribute.
    """

    number: int
    vendor: str
    name: str | None
    memory_bytes: int | None
    uuid: str | None
    pci_address: str
    numa_node: int | None
    link: PcieLink = _NO_LINK
    nvlinks: Mapping[int, int] | None = None
    mig: Sequence[MigInstance] | None = ()
    visible: Sequence[int] | None = ()
    why: Mapping[str, str] = field(default_factory=dict)


def gpus(sys: Path = SYS, environ: Mapping[str, str] = os.environ) -> tuple[Gpu, ...]:
    """GPUs of the node: NVIDIA's by ``nvidia-smi``, other ones and those of which it says nothing by the PCI bus.

    Args:
        sys: folder of the kernel's devices.
        environ: environment variables of the programs that use GPUs.
    """
    try:
        known, why = _by_nvidia_smi(sys), "nvidia-smi does not list it"
    except GpuQueryFailed as error:
        known, why = [], error.message
    addresses = {gpu.pci_address for gpu in known}
    other = (_by_pci_bus(folder, why) for folder in _gpu_folders(sys) if folder.name not in addresses)
    ordered = sorted((*known, *other), key=lambda gpu: (gpu.vendor != "NVIDIA", gpu.pci_address))
    return _with_visibility([replace(gpu, number=number) for number, gpu in enumerate(ordered)], environ)


def gpu_node(local_rank: int, sys: Path = SYS, environ: Mapping[str, str] = os.environ) -> tuple[int | None, str]:
    """NUMA node of a rank's GPU, and why it is not known.

    Args:
        local_rank: number of the rank on its node.
        sys: folder of the kernel's devices.
        environ: environment variables of the rank.
    """
    seen = {number: gpu for gpu in gpus(sys, environ) for number in gpu.visible or ()}
    if not seen:
        return None, "no GPU is visible"
    gpu = seen[gpu_of(local_rank, len(seen))]
    return gpu.numa_node, "" if gpu.numa_node is not None else f"GPU {gpu.number}: {gpu.why['numa_node']}"


def _by_nvidia_smi(sys: Path) -> list[Gpu]:
    rows, links, parts = query_gpus(_FIELDS), _answered(nvlinks), _answered(mig_instances)
    return [_nvidia(row, sys, links, parts) for row in rows]


def _nvidia(row: Mapping[str, str], sys: Path, links: _Answer[_Links], parts: _Answer[_Parts]) -> Gpu:
    index, address = int(row["index"]), _address(row["pci.bus_id"])
    folder = sys / "bus/pci/devices" / address
    link = PcieLink.known(*(_count(row[name]) for name in _LINK))
    why = {"numa_node": _NO_NODE, "nvlinks": links.why, "mig": parts.why}
    why["memory_bytes"] = f"nvidia-smi shows {row['memory.total']} for its memory"
    return _explained(
        Gpu(
            index,
            _VENDORS[_NVIDIA],
            row["name"],
            mebibytes(row["memory.total"]),
            row["uuid"],
            address,
            node_of(folder),
            link if link.width is not None else pcie_link(folder),
            None if links.value is None else links.value.get(index, {}),
            None if parts.value is None else parts.value.get(index, ()),
        ),
        why,
    )


def _by_pci_bus(folder: Path, nvidia_why: str) -> Gpu:
    vendor = text_of(folder / "vendor") or ""
    reason = nvidia_why if vendor == _NVIDIA else "the kernel does not show it"
    why = dict.fromkeys(("name", "memory_bytes", "uuid"), reason)
    why |= {"numa_node": _NO_NODE, "nvlinks": nvidia_why if vendor == _NVIDIA else _NO_NVIDIA}
    return _explained(
        Gpu(
            0,
            _VENDORS[vendor],
            text_of(folder / "product_name"),  # amdgpu's files, as are the next two
            number_of(folder / "mem_info_vram_total"),
            text_of(folder / "unique_id"),
            folder.name,
            node_of(folder),
            pcie_link(folder),
        ),
        why,
    )


def _explained(gpu: Gpu, why: Mapping[str, str]) -> Gpu:
    """The GPU with the reasons of those values that are not known."""
    return replace(gpu, why={name: reason for name, reason in why.items() if getattr(gpu, name) is None})


def _with_visibility(devices: Sequence[Gpu], environ: Mapping[str, str]) -> tuple[Gpu, ...]:
    """The GPUs with their numbers in CUDA; GPUs that nvidia-smi does not list count only if it is not installed."""
    absent = shutil.which(PROGRAM) is None
    cuda = [gpu for gpu in devices if gpu.vendor == _VENDORS[_NVIDIA] and (gpu.uuid is not None or absent)]
    numbers: dict[int, tuple[int, ...]] = {gpu.number: () for gpu in cuda}
    for number, device in enumerate(visible_gpus(cuda, environ)):
        numbers[cuda[device.gpu].number] += (number,)
    return tuple(replace(gpu, **_visibility(gpu, numbers.get(gpu.number))) for gpu in devices)


def _visibility(gpu: Gpu, numbers: Sequence[int] | None) -> dict[str, Any]:
    if numbers is None:
        reason = "nvidia-smi does not list it" if gpu.vendor == _VENDORS[_NVIDIA] else "CUDA does not use it"
        return {"visible": None, "why": {**gpu.why, "visible": reason}}
    return {"visible": numbers}


def _gpu_folders(sys: Path) -> Iterator[Path]:
    for folder in entries(sys / "bus/pci/devices"):
        kind = (text_of(folder / "class") or "")[:6]
        if kind in _CLASSES and text_of(folder / "vendor") in _VENDORS:
            yield folder


def _address(bus_id: str) -> str:
    """Address as the kernel writes it: ``00000000:3B:00.0`` is ``0000:3b:00.0`` there."""
    return bus_id.lower()[-12:]


def _count(cell: str) -> int | None:
    return int(cell) if cell.isdigit() else None


def _answered(query: Callable[[], ValueT]) -> _Answer[ValueT]:
    try:
        return _Answer(query(), "")
    except GpuQueryFailed as error:
        return _Answer(None, error.message)
