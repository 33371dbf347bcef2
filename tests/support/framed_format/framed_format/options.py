"""Options of framed records: ``dataset.framed``."""

from __future__ import annotations

from dataclasses import dataclass

from dlio_torch.config.opt import opt


@dataclass(frozen=True)
class FramedConfig:
    """How records lie in a file and how they are read."""

    alignment: int = opt(8, "each record begins at a multiple of that", unit="B", minimum=1)
    read_bytes: int = opt(65536, "size of one read call", unit="B", minimum=1)
