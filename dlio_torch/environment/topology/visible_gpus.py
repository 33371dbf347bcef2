"""GPUs that CUDA programs see: ``CUDA_VISIBLE_DEVICES`` with indices, UUIDs and MIG instances."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from dlio_torch.environment.nvidia_smi import MigInstance

VARIABLE = "CUDA_VISIBLE_DEVICES"


class CudaGpu(Protocol):
    """Protocol of a GPU, as far as its visibility depends on it."""

    @property
    def uuid(self) -> str | None:
        """Identifier, ``GPU-...``; ``None`` if it is not known."""

    @property
    def mig(self) -> Sequence[MigInstance] | None:
        """MIG instances; ``None`` if they are not known."""


class VisibleGpu(NamedTuple):
    """Device that CUDA programs see.

    Attributes:
        gpu: number of the GPU, in the order of the list of GPUs.
        instance: identifier of its MIG instance; ``None``: the whole GPU.
    """

    gpu: int
    instance: str | None = None


def visible_gpus(gpus: Sequence[CudaGpu], environ: Mapping[str, str] = os.environ) -> list[VisibleGpu]:
    """Devices in the order of their numbers in CUDA.

    CUDA reads the variable up to the first entry that names no device, and sees none if a device occurs twice.  It sees
    one MIG instance at most, and then no other GPU.  GPUs count in the order of PCI addresses; for GPUs of several
    models CUDA has that order only with ``CUDA_DEVICE_ORDER=PCI_BUS_ID``.

    Args:
        gpus: the GPUs of the machine.
        environ: environment variables of the programs.
    """
    whole = [device for number, gpu in enumerate(gpus) for device in _devices(number, gpu)]
    chosen = whole if VARIABLE not in environ else _chosen(gpus, environ[VARIABLE])
    instance = next((device for device in chosen if device.instance is not None), None)
    return chosen if instance is None else [instance]


def _chosen(gpus: Sequence[CudaGpu], text: str) -> list[VisibleGpu]:
    devices: list[VisibleGpu] = []
    for entry in text.split(","):
        device = _named(gpus, entry.strip())
        if device is None:
            break
        devices.append(device)
    return devices if len(set(devices)) == len(devices) else []


def _named(gpus: Sequence[CudaGpu], entry: str) -> VisibleGpu | None:
    """Device that an entry names: an index, a UUID, or the beginning of only one UUID."""
    if entry.isdecimal():
        return next(iter(_devices(int(entry), gpus[int(entry)])), None) if int(entry) < len(gpus) else None
    if entry.startswith("MIG-"):
        named = [VisibleGpu(n, part.uuid) for n, gpu in enumerate(gpus) for part in gpu.mig or () if part.uuid == entry]
    elif entry.startswith("GPU-"):
        matching = ((n, gpu) for n, gpu in enumerate(gpus) if (gpu.uuid or "").startswith(entry))
        named = [device for n, gpu in matching for device in _devices(n, gpu)[:1]]
    else:
        named = []
    return named[0] if len(named) == 1 else None


def _devices(number: int, gpu: CudaGpu) -> list[VisibleGpu]:
    return [VisibleGpu(number, part.uuid) for part in gpu.mig or ()] or [VisibleGpu(number)]
