"""Preflight check: the file system of the results has space for the checkpoints of a run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from dlio_torch.checkpoint.registry import layout_of
from dlio_torch.checkpoint.saves import saves, total_bytes
from dlio_torch.config.schema import Config
from dlio_torch.errors import PreconditionError
from dlio_torch.run_directory.results_folder import folder_name
from dlio_torch.units import format_size


def peak_bytes(config: Config, steps: int, world_size: int) -> int:
    """Largest number of bytes that the checkpoints of all ranks take at one time.

    An old checkpoint is removed when the next one is complete.  A file whose name has no ``{step}`` is replaced when
    the new one is complete.  Temporary copies of one checkpoint count, too.

    Args:
        config: the experiment.
        steps: steps of an epoch.
        world_size: number of ranks.
    """
    options, layout = config.checkpoint, layout_of(config.checkpoint.layout)
    if layout is None:
        return 0
    times = saves(options, steps, config.train.epochs)
    if options.restore and config.train.resume is None:
        times += 1  # the checkpoint to restore is written first
    if not times:
        return 0
    fixed, ranks = layout.replaced_bytes(config), layout.saving_ranks(config, world_size)
    kept = min(times, options.keep + 1) if options.keep else times
    size = (sum(fixed) * (1 - kept) + (max(fixed, default=0) if times > 1 else 0) + layout.start_bytes(config)) * ranks
    return size + kept * total_bytes(config, world_size) + layout.temporary_bytes(config, ranks)


def results_folder(config: Config) -> Path:
    """Folder of a run's results, which include its checkpoints."""
    return Path(config.output.dir or Path(config.output.root, folder_name(config.recipe))).expanduser()


def checkpoint_space_problem(config: Config, steps: int, world_size: int) -> PreconditionError | None:
    """Returns the error if the checkpoints do not fit on the file system of the results; ``None`` if they fit.

    Args:
        config: the experiment.
        steps: steps of an epoch.
        world_size: number of ranks; all save to one file system.
    """
    needed = peak_bytes(config, steps, world_size)
    folder = results_folder(config)
    try:
        free = shutil.disk_usage(
            next(path for path in (folder, *folder.absolute().parents) if os.path.isdir(path))
        ).free
    except (OSError, ValueError, StopIteration):  # making the folder fails later, with a better message
        return None
    if needed <= free:
        return None
    options = config.checkpoint
    saved = (
        f"{saves(options, steps, config.train.epochs)} checkpoints of {format_size(total_bytes(config, world_size))}"
    )
    return PreconditionError(
        f"checkpoint.keep={options.keep}: {saved} take up to {format_size(needed)} at a time in {folder}, but "
        f"its file system has only {format_size(free)} left",
        hint=(
            "set output.root to another file system, lower checkpoint.keep (0 keeps all checkpoints), or choose a "
            "smaller scale"
        ),
    )
