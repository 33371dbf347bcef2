"""Measurement of all limits of this machine for a recipe: each alone, and those of the data path at the same time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dlio_torch.config.schema import Config
from dlio_torch.node.limits.node_limit import NodeLimit

Note = Callable[[str], None]
"""Takes one line of progress."""


def measure_limits(
    config: Config, *, folder: Path, seconds: float, note: Note, accelerators: int | None = None
) -> list[NodeLimit]:
    """Measure each limit alone.

    Args:
        config: the resolved experiment; its data set exists.
        folder: an existing folder on the storage of the data, which can be written.
        seconds: length of each measurement.
        note: takes one line before each measurement.
        accelerators: emulated accelerators of this node; ``None``: the visible GPUs, or one where there is none.
    """
    return []


def measure_together(
    config: Config, *, folder: Path, seconds: float, note: Note, accelerators: int | None = None
) -> list[NodeLimit]:
    """Measure the limits of the data path while all of its resources are in use; see :func:`measure_limits`."""
    return []
