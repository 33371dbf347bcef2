"""Folder of a rank's checkpoints."""

from __future__ import annotations

from dlio_torch.config.schema import Config


def rank_folder(config: Config, rank: int) -> str:
    """Name of the folder below that of all checkpoints; empty if the first rank alone saves."""
    return f"rank-{rank}" if config.checkpoint.ranks == "all" else ""
