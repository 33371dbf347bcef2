"""Number and size of the checkpoints that a run saves, for plans and estimates."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlio_torch.checkpoint.registry import layout_of
from dlio_torch.config.schema import CheckpointConfig, Config


def saves(options: CheckpointConfig, steps: int, epochs: int) -> int:
    """Number of checkpoints that a rank saves.

    A step after which one is due by its number and by the end of its epoch counts once.

    Args:
        options: of the checkpoints.
        steps: of an epoch.
        epochs: of the run.
    """
    if options.layout == "none":
        return 0
    total = steps * epochs
    by_step = total // options.every_steps if options.every_steps else 0
    by_epoch = epochs // options.every_epochs if options.every_epochs else 0
    count = by_step + by_epoch
    if by_step and by_epoch:
        count -= by_epoch // (options.every_steps // math.gcd(options.every_steps, options.every_epochs * steps))
    last = options.every_steps and total % options.every_steps == 0
    last = last or (options.every_epochs and epochs % options.every_epochs == 0)
    return count + options.before_first + (options.after_last and not last)


def is_saved(config: Config, steps: int) -> bool:
    """Whether a run with this number of steps an epoch saves or restores a checkpoint at all."""
    options = config.checkpoint
    return options.layout != "none" and (options.restore or saves(options, steps, config.train.epochs) > 0)


def checkpoint_bytes(config: Config, rank: int = 0) -> int:
    """Bytes that one checkpoint of a rank takes on the storage."""
    layout = layout_of(config.checkpoint.layout)
    return 0 if layout is None else layout.saved_bytes(config, rank)


def total_bytes(config: Config, world_size: int) -> int:
    """Bytes that one checkpoint of all ranks takes on the storage.

    Args:
        config: the experiment.
        world_size: number of ranks.
    """
    layout = layout_of(config.checkpoint.layout)
    if layout is None:
        return 0
    count = layout.saving_ranks(config, world_size)
    if not layout.saves_job(config):
        return sum(layout.saved_bytes(config, rank) for rank in range(count))
    groups = layout.rank_groups(config, count)
    return sum(len(ranks) * layout.saved_bytes(config, ranks[0]) for ranks in groups)


def saving_ranks(config: Config, world_size: int) -> int:
    """Number of ranks that save; at least 1, also where nothing is saved."""
    layout = layout_of(config.checkpoint.layout)
    return 1 if layout is None else layout.saving_ranks(config, world_size)


def start_bytes(config: Config) -> int:
    """Bytes written once, before the first checkpoint."""
    layout = layout_of(config.checkpoint.layout)
    return 0 if layout is None else layout.start_bytes(config)


def held_bytes(config: Config, ranks: Sequence[int], world_size: int) -> int:
    """Bytes of memory that ranks of one node hold to save checkpoints; ranks that do not save hold none.

    Args:
        config: the experiment.
        ranks: numbers of the ranks of the node.
        world_size: number of ranks on all nodes.
    """
    layout = layout_of(config.checkpoint.layout)
    if layout is None:
        return 0
    count = layout.saving_ranks(config, world_size)
    return sum(layout.held_bytes(config, rank) for rank in ranks if rank < count)
