"""Checks of paths: paths that no file system accepts, or that mix files, are refused before any access."""

from __future__ import annotations

import os

from dlio_torch.config.check import Fail
from dlio_torch.config.schema import Config

_NAME_BYTES = 255  # NAME_MAX of Linux
_PATH_BYTES = 4095  # PATH_MAX, without the zero at the end


def check_paths(config: Config, fail: Fail) -> None:
    """Refuse paths and names of files that are too long, and checkpoints among run directories.

    Args:
        config: a complete configuration.
        fail: raises the error; called with keys, problem and remedy.

    Raises:
        ConfigError: naming the key, its value and what to change.
    """
    locations = {
        "dataset.path": config.dataset.path,
        "dataset.root": config.dataset.root,
        "output.dir": config.output.dir,
        "output.root": config.output.root,
        "stage.dir": config.stage.dir,
        "train.resume": config.train.resume,
        "checkpoint.root": config.checkpoint.root,
    }
    paths = {key: location for key, location in locations.items() if location is not None}
    paths |= {f"checkpoint.files.{number}.name": file.name for number, file in enumerate(config.checkpoint.files)}
    for key, path in paths.items():
        longest = max(len(os.fsencode(name)) for name in path.split("/"))
        if longest > _NAME_BYTES:
            fail(
                [key], f"contains a name of {longest} bytes; file systems allow {_NAME_BYTES}", "choose a shorter name"
            )
        if len(os.fsencode(path)) > _PATH_BYTES:
            fail(
                [key], f"{len(os.fsencode(path))} bytes long; the system allows {_PATH_BYTES}", "choose a shorter path"
            )
    _check_checkpoint_root(config, fail)


def _check_checkpoint_root(config: Config, fail: Fail) -> None:
    root = config.checkpoint.root
    if root is None:
        return
    if not root.strip():
        fail(
            ["checkpoint.root"],
            "the name of the folder is empty",
            "name a folder, for example checkpoint.root=/scratch/checkpoints, or set checkpoint.root=null",
        )
    if _absolute(root) == _absolute(config.output.root):
        fail(
            ["checkpoint.root", "output.root"],
            "the folders of checkpoints would lie among the run directories",
            "name another folder, for example checkpoint.root=checkpoints, or set checkpoint.root=null, which keeps "
            "checkpoints in their run directory",
        )


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))
