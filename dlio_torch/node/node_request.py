"""Request of the command line for the measurement of a node."""

from __future__ import annotations

from dataclasses import dataclass

SECONDS = 3.0
"""Length of each measurement in seconds if none is given."""


@dataclass(frozen=True)
class NodeRequest:
    """Request of the command line.

    Attributes:
        settings: ``key=value`` arguments.
        accelerators: number of accelerators; ``None``: the visible GPUs, or 1.
        seconds: length of each measurement.
    """

    settings: tuple[str, ...]
    accelerators: int | None = None
    seconds: float = SECONDS
