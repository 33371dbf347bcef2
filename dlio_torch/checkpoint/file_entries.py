"""Entries for files of checkpoints, by which ``clean`` and ``--force`` recognise them."""

from __future__ import annotations

from collections.abc import Iterable

from dlio_torch.config.schema import Config
from dlio_torch.ownership.names import literal, numbers


def entry(name: str) -> str:
    """The entry for a file of each step; ``{step}`` in the name stands for the step."""
    return numbers().join(map(literal, name.split("{step}")))


def of_rank(config: Config, entries: Iterable[str]) -> list[str]:
    """These entries, below a folder for each rank if all ranks save."""
    return [f"rank-{numbers()}/{name}" for name in entries] if config.checkpoint.ranks == "all" else list(entries)
