"""Disk space of a run's checkpoints, worked out from the configuration before anything is written."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from dlio_torch.config.checkpoint_amount import checkpoint_bytes, saves, start_bytes
from dlio_torch.config.schema import Config
from dlio_torch.errors import PreconditionError
from dlio_torch.rundir import folder_name
from dlio_torch.units import format_size


def peak_bytes(config: Config, steps: int, world_size: int) -> int:
    """Most bytes of checkpoints that all ranks of a run have on the device at a time.

    A checkpoint that is not kept any more is removed when the next one is complete.  A file whose name has no
    ``{step}`` is replaced, once the new one is complete.

    Args:
        config: the experiment.
        steps: of each epoch.
        world_size: all ranks.
    """
    options = config.checkpoint
    times = saves(options, steps, config.train.epochs)
    if options.kind != "none" and options.restore and config.train.resume is None:
        times += 1  # the one that is restored is written first
    fixed = [file.bytes for file in options.files if "{step}" not in file.name] if options.kind == "files" else []
    kept = min(times, options.keep + 1) if options.keep else times
    size = (checkpoint_bytes(options) - sum(fixed)) * kept
    if times:
        size += sum(fixed) + (max(fixed, default=0) if times > 1 else 0)
    size += start_bytes(options) if times else 0
    return size * (world_size if options.ranks == "all" else 1)


def results_folder(config: Config) -> Path:
    """Folder below which the results of a run lie, its checkpoints included."""
    return Path(config.output.dir or Path(config.output.root, folder_name(config.recipe))).expanduser()


def no_checkpoint_room(config: Config, steps: int, world_size: int) -> PreconditionError | None:
    """The error of a run whose checkpoints have no room in the file system of its results; ``None``: they have.

    Args:
        config: the experiment.
        steps: of each epoch.
        world_size: all ranks, which save to one file system.
    """
    needed = peak_bytes(config, steps, world_size)
    folder = results_folder(config)
    try:
        free = shutil.disk_usage(
            next(path for path in (folder, *folder.absolute().parents) if os.path.isdir(path))
        ).free
    except (OSError, ValueError, StopIteration):  # the error of making the folder says more
        return None
    if needed <= free:
        return None
    options = config.checkpoint
    what = f"{saves(options, steps, config.train.epochs)} checkpoints of {format_size(checkpoint_bytes(options))}"
    return PreconditionError(
        f"checkpoint.keep={options.keep}: {what} take up to {format_size(needed)} at a time in {folder}, and its file "
        f"system has {format_size(free)} left",
        hint="set output.root to another file system, lower checkpoint.keep (0: all), or take a smaller scale",
    )
