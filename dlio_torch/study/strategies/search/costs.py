"""Cost of a loader setting on the machine: readers and memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlio_torch.config.schema import Config
from dlio_torch.data.engines.registry import facts
from dlio_torch.formats.core import registry
from dlio_torch.study.resolve import Resolved
from dlio_torch.units import format_size


@dataclass(frozen=True)
class Cost:
    """Cost of a loader setting on a host, for all ranks.

    Attributes:
        readers: worker processes and reader threads.
        memory_bytes: of batches that are read ahead, with the one that is trained on.
        memory_share: the same as a share of the machine's memory, below 1.
    """

    readers: int
    memory_bytes: float
    memory_share: float

    @property
    def value(self) -> float:
        """The cost as one number: readers, with memory as the fraction after the decimal point."""
        return self.readers + self.memory_share

    def __str__(self) -> str:
        kind = f"{self.readers} worker or reader thread{'' if self.readers == 1 else 's'}"
        return f"{kind}, {format_size(round(self.memory_bytes))} of batches ahead"


@dataclass(frozen=True)
class Host:
    """Resources of the machine for the loader.

    Attributes:
        cores: that this process may use.
        gpus: whether there is one.
        memory_bytes: of the machine, or of its part that this process may use.
    """

    cores: int
    gpus: bool
    memory_bytes: float


def costs_of(points: Sequence[Resolved], host: Host) -> list[Cost]:
    """Cost of each of ``points`` on ``host``."""
    sizes: dict[str, float] = {}
    costs = []
    for point in points:
        config, ranks = point.composed.config, point.point.ranks
        key = repr(config.dataset)
        if key not in sizes:
            sizes[key] = registry.create(config.dataset, config.seed).sample_bytes()
        costs.append(_cost(config, ranks, sizes[key], host))
    return costs


def _cost(config: Config, ranks: int, sample_bytes: float, host: Host) -> Cost:
    loader, train = config.loader, config.train
    demand = facts(loader.engine).demand(loader)
    batch = train.batch_size // (ranks if train.batch_scope == "global" else 1)
    held = ranks * demand.held_bytes(batch * sample_bytes)
    if loader.in_memory:
        share = 1 if config.access.partition == "none" else ranks
        held += ranks * config.dataset.num_files * config.dataset.samples_per_file * sample_bytes / share
    return Cost(ranks * demand.readers, held, min(held / host.memory_bytes, 0.999))
