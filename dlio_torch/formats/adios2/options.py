"""Options of ADIOS2 folders: ``dataset.adios2``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlio_torch.config.opt import opt


@dataclass(frozen=True)
class Adios2Config:
    """How samples lie in the steps of an ADIOS2 folder."""

    engine: Literal["BP4", "BP5"] = opt("BP5", "ADIOS2 engine that writes the folder; readers detect it")
    samples_per_step: int = opt(16, "samples per ADIOS2 step", minimum=1)
