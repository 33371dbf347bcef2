"""Facts about format ``synthetic``, whose samples are in memory."""

from __future__ import annotations

from typing import ClassVar

from dlio_torch.formats.core.facts import FormatFacts


class SyntheticFacts(FormatFacts):
    """Facts about format ``synthetic``."""

    name: ClassVar[str] = "synthetic"
    format: ClassVar[str] = "dlio_torch.formats.synthetic.format:SyntheticFormat"
    in_memory: ClassVar[bool] = True
