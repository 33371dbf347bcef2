"""Preflight check: the file system of the results has space for the checkpoints of a run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from dlio_torch.config.checkpoint_amount import checkpoint_bytes, saves, start_bytes
from dlio_torch.config.schema import Config
from dlio_torch.errors import PreconditionError
from dlio_torch.run_directory.results_folder import folder_name
from dlio_torch.units import format_size


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
    if options.layout != "none" and options.restore and config.train.resume is None:
        times += 1  # the checkpoint to restore is written first
    fixed = [file.bytes for file in options.files if "{step}" not in file.name] if options.layout == "files" else []
    kept = min(times, options.keep + 1) if options.keep else times
    size = (checkpoint_bytes(options) - sum(fixed)) * kept
    if times:
        size += sum(fixed) + (max(fixed, default=0) if times > 1 else 0)
    size += start_bytes(options) if times else 0
    return size * (world_size if options.ranks == "all" else 1)


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
    saved = f"{saves(options, steps, config.train.epochs)} checkpoints of {format_size(checkpoint_bytes(options))}"
    return PreconditionError(
        f"checkpoint.keep={options.keep}: {saved} take up to {format_size(needed)} at a time in {folder}, but "
        f"its file system has only {format_size(free)} left",
        hint=(
            "set output.root to another file system, lower checkpoint.keep (0 keeps all checkpoints), or choose a "
            "smaller scale"
        ),
    )
