"""PCIe link of a device: generation and number of lanes, now and at most."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from dlio_torch.environment.topology.kernel_files import number_of, text_of

_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_GENERATIONS = {"2.5": 1, "5": 2, "8": 3, "16": 4, "32": 5, "64": 6}
"""Transfer rate of a lane in GT/s -> generation of PCIe."""
_BYTES_PER_S = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""Payload rate of a lane and direction by generation, after line coding."""


@dataclass(frozen=True)
class PcieLink:
    """PCIe link of a device; each value is ``None`` if it is not known.

    Attributes:
        generation: generation now; an idle GPU may run at a lower one than under load.
        width: lanes now.
        most_generation: largest generation that device and slot support.
        most_width: largest number of lanes, likewise.
        why: reason of each ``None``, by attribute.
    """

    generation: int | None = None
    width: int | None = None
    most_generation: int | None = None
    most_width: int | None = None
    why: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def known(
        cls, generation: int | None, width: int | None, most_generation: int | None, most_width: int | None
    ) -> PcieLink:
        """Link with these values, and the reason of each ``None``."""
        link = cls(generation, width, most_generation, most_width)
        absent = [name for name in ("generation", "width", "most_generation", "most_width") if not getattr(link, name)]
        return replace(link, why=dict.fromkeys(absent, "the device or the virtual machine does not show its PCIe link"))

    @property
    def bytes_per_s(self) -> float | None:
        """Largest payload rate in a direction, from the lanes now at the largest generation."""
        generation = self.most_generation or self.generation
        rate = _BYTES_PER_S.get(generation or 0)
        return None if rate is None or self.width is None else rate * self.width


def pcie_link(device: Path) -> PcieLink:
    """Link of a device in ``/sys/bus/pci/devices``.

    Args:
        device: folder of the device.
    """
    return PcieLink.known(
        _generation(device / "current_link_speed"),
        number_of(device / "current_link_width") or None,
        _generation(device / "max_link_speed"),
        _width(device / "max_link_width"),
    )


def pci_folder(device: Path) -> Path | None:
    """Folder of the nearest PCI device that a device belongs to; ``None`` if it belongs to none."""
    place = device.resolve()
    return next((folder for folder in (place, *place.parents) if _ADDRESS.fullmatch(folder.name)), None)


def _generation(path: Path) -> int | None:
    # "16.0 GT/s PCIe", "8 GT/s" with older kernels, "Unknown".
    words = (text_of(path) or "").split()
    return _GENERATIONS.get(words[0].removesuffix(".0")) if words else None


def _width(path: Path) -> int | None:
    # 255: the device does not say.
    width = number_of(path)
    return None if width in (None, 0, 255) else width
