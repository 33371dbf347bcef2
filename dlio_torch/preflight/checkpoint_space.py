"""Preflight check: the folder of the checkpoints can be made, and its file system has space for them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from dlio_torch.checkpoint.registry import layout_of
from dlio_torch.checkpoint.saves import saves, total_bytes
from dlio_torch.config.schema import Config
from dlio_torch.errors import PreconditionError
from dlio_torch.run_directory.results_folder import check_results_folder, folder_name
from dlio_torch.units import counted, format_size


def peak_bytes(config: Config, steps: int, world_size: int) -> int:
    """Largest number of bytes that the checkpoints of all ranks take at one time.

    An old checkpoint is removed when the next one is complete.  A file whose name has no ``{step}`` is replaced when
    the new one is complete.

    Args:
        config: the experiment.
        steps: steps of an epoch.
        world_size: number of ranks.
    """
    options = config.checkpoint
    times = saves(options, steps, config.train.epochs)
    if options.restore and config.train.resume is None:
        times += 1  # the checkpoint to restore is written first
    return peak_bytes_of(config, times, world_size)


def peak_bytes_of(config: Config, times: int, world_size: int) -> int:
    """Largest number of bytes that a number of checkpoints of all ranks takes at one time; see :func:`peak_bytes`."""
    options, layout = config.checkpoint, layout_of(config.checkpoint.layout)
    if layout is None or not times:
        return 0
    fixed, ranks = layout.replaced_bytes(config), layout.saving_ranks(config, world_size)
    kept = min(times, options.keep + 1) if options.keep else times
    size = (sum(fixed) * (1 - kept) + (max(fixed, default=0) if times > 1 else 0) + layout.start_bytes(config)) * ranks
    return size + kept * total_bytes(config, world_size)


def checkpoint_location(config: Config) -> Path:
    """Folder in which the folder of a run's checkpoints is made: of all runs of the recipe, or of the run."""
    if config.checkpoint.root is not None:
        return Path(config.checkpoint.root, folder_name(config.recipe)).expanduser()
    return Path(config.output.dir or Path(config.output.root, folder_name(config.recipe))).expanduser()


def checkpoint_root_problem(config: Config, sources: Mapping[str, str]) -> PreconditionError | None:
    """Returns the error if ``checkpoint.root`` cannot be made or written, without writing; ``None`` if it can.

    Args:
        config: the experiment.
        sources: where each value was set, for the message.
    """
    root = config.checkpoint.root
    if root is None or config.checkpoint.layout == "none":
        return None
    try:
        check_results_folder(Path(root), "checkpoint.root", sources["checkpoint.root"], empty=False)
    except PreconditionError as error:
        return error
    return None


def checkpoint_space_problem(config: Config, steps: int, world_size: int) -> PreconditionError | None:
    """Returns the error if the checkpoints do not fit on their file system; ``None`` if they fit.

    Args:
        config: the experiment.
        steps: steps of an epoch.
        world_size: number of ranks; all save to one file system.
    """
    needed = peak_bytes(config, steps, world_size)
    options = config.checkpoint
    count, size = saves(options, steps, config.train.epochs), total_bytes(config, world_size)
    return space_problem(config, f"{counted(count, 'checkpoint')} of {format_size(size)}", options.keep, needed)


def space_problem(config: Config, saved: str, keep: int, needed: int) -> PreconditionError | None:
    """Returns the error if a number of bytes does not fit on the file system of the checkpoints; ``None`` if it fits.

    Args:
        config: the experiment.
        saved: number and size of the checkpoints, in words.
        keep: number of checkpoints that are kept; 0: all.
        needed: bytes that they take at one time.
    """
    folder = checkpoint_location(config)
    try:
        free = shutil.disk_usage(
            next(path for path in (folder, *folder.absolute().parents) if os.path.isdir(path))
        ).free
    except (OSError, ValueError, StopIteration):  # making the folder fails later, with a better message
        return None
    if needed <= free:
        return None
    return PreconditionError(
        f"checkpoint.keep={keep}: {saved} take up to {format_size(needed)} at a time in {folder}, but its file system "
        f"has only {format_size(free)} left",
        hint=(
            "set checkpoint.root to another file system, lower checkpoint.keep (0 keeps all checkpoints), or choose a "
            "smaller scale"
        ),
    )
