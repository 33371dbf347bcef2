"""Facts about format ``silo`` that need no open file."""

from __future__ import annotations

from typing import ClassVar

from dlio_torch.formats.core.facts import FormatFacts


class SiloFacts(FormatFacts):
    """Facts about format ``silo``."""

    name: ClassVar[str] = "silo"
    format: ClassVar[str] = "dlio_torch.formats.silo.format:SiloFormat"
