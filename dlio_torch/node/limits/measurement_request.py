"""Request for the limits of a node, which the process that measures them receives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dlio_torch.config.schema import Config


@dataclass(frozen=True)
class MeasurementRequest:
    """Request for the limits of a node.

    Attributes:
        config: the resolved experiment.
        folder: an existing folder on the storage of the data.
        seconds: length of each measurement.
        accelerators: emulated accelerators; ``None``: the visible GPUs, or one.
        joint: measure the data path at the same time; else each limit alone.
    """

    config: Config
    folder: Path
    seconds: float
    accelerators: int | None
    joint: bool
