"""Facts about format ``silo`` that need no open file."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from dlio_torch.formats.core.facts import FormatFacts


class SiloFacts(FormatFacts):
    """Facts about format ``silo``."""

    name: ClassVar[str] = "silo"
    format: ClassVar[str] = "dlio_torch.formats.silo.format:SiloFormat"
    based_on: ClassVar[str] = "hdf5"
    suffixes: ClassVar[tuple[str, ...]] = (".silo",)
    describe: ClassVar[str] = "dlio_torch.formats.silo.describe:describe"

    def recognises(self, path: Path, head: bytes) -> bool:
        return path.suffix.lower() == ".silo"
