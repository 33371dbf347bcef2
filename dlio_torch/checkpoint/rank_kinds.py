"""Kinds of ranks of a described job: ranks whose checkpoints have files of equal sizes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from dlio_torch.checkpoint.base import Layout
from dlio_torch.config.schema import Config


@dataclass(frozen=True)
class RankKind:
    """Ranks whose checkpoints have files of equal sizes.

    Attributes:
        ranks: numbers of the ranks, ascending.
        sizes: of the files of each of them, bytes, largest first.
    """

    ranks: tuple[int, ...]
    sizes: tuple[int, ...]


def rank_kinds(layout: Layout, config: Config, world_size: int) -> list[RankKind]:
    """Kinds of the first ranks of the job, largest first.

    Args:
        layout: of the checkpoints; it saves a described model.
        config: the experiment.
        world_size: number of ranks; at most those of the job.
    """
    groups = layout.rank_groups(config, layout.saving_ranks(config, world_size))
    files = [(ranks, layout.file_sizes(config, ranks[0])) for ranks in groups]
    return grouped((rank, sizes) for ranks, sizes in files for rank in ranks)


def grouped(files: Iterable[tuple[int, list[int]]]) -> list[RankKind]:
    """Groups ranks by the sizes of their files, largest sum first.

    Args:
        files: each rank and the sizes of its files, bytes.
    """
    kinds: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for rank, sizes in files:
        kinds[tuple(sorted(sizes, reverse=True))].append(rank)
    ordered = sorted(kinds.items(), key=lambda kind: (-sum(kind[0]), kind[1]))
    return [RankKind(tuple(sorted(ranks)), sizes) for sizes, ranks in ordered]
