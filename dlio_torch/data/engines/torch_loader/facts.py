"""Facts about torch's DataLoader and torchdata's StatefulDataLoader."""

from __future__ import annotations

from typing import ClassVar

from dlio_torch.data.engines.facts import EngineFacts


class DataLoaderFacts(EngineFacts):
    """Facts about engine ``dataloader``."""

    name: ClassVar[str] = "dataloader"
    library_class: ClassVar[str] = "DataLoader"
    builder: ClassVar[str] = "dlio_torch.data.engines.torch_loader.engine:build"


class StatefulFacts(DataLoaderFacts):
    """Facts about engine ``stateful``."""

    name: ClassVar[str] = "stateful"
    library_class: ClassVar[str] = "StatefulDataLoader"
