"""Facts about ADIOS2 folders that need no open folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from dlio_torch.formats.adios2.options import Adios2Config
from dlio_torch.formats.core.facts import FormatFacts


class Adios2Facts(FormatFacts):
    """Facts about format ``adios2``."""

    name: ClassVar[str] = "adios2"
    format: ClassVar[str] = "dlio_torch.formats.adios2.format:Adios2Format"
    options: ClassVar[type | None] = Adios2Config
    suffixes: ClassVar[tuple[str, ...]] = (".bp",)
    describe: ClassVar[str] = "dlio_torch.formats.adios2.describe:describe"

    def recognises_folder(self, path: Path, names: Sequence[str]) -> bool:
        return {"md.idx", "md.0"} <= set(names)
