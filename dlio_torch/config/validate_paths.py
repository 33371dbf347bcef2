"""Checks of paths: paths that no file system accepts are refused before any access."""

from __future__ import annotations

import os

from dlio_torch.config.check import Fail
from dlio_torch.config.schema import Config

_NAME_BYTES = 255  # NAME_MAX of Linux
_PATH_BYTES = 4095  # PATH_MAX, without the zero at the end


def check_paths(config: Config, fail: Fail) -> None:
    """Refuse paths and names of files that are too long.

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
