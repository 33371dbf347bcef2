"""The folder of staged copies on node-local storage."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from dlio_torch.errors import ConfigError
from dlio_torch.storage.registry import no_local_path

KEPT = ".kept"
"""Suffix of the JSON file next to kept copies, which records the recipe and the folder of their sources."""


def node_folder(dir: str) -> Path:
    """The folder that ``stage.dir`` names for this process, environment variables filled in.

    Raises:
        ConfigError: a variable is not set, or the value is a URL.
    """
    text = os.path.expandvars(dir)
    if "$" in text:
        raise ConfigError(
            f"stage.dir={dir} contains an environment variable that is not set on this node",
            hint="set the environment variable on every node",
        )
    if (refusal := no_local_path(text)) is not None:  # a variable of the environment may hold a URL
        raise ConfigError(f"stage.dir={dir}: {refusal[0]}", hint=refusal[1])
    return Path(text).expanduser().absolute()


def check_node_folder(dir: str, sources: Iterable[Path]) -> Path:
    """The folder that ``stage.dir`` names for this process, which must lie outside the data.

    Args:
        dir: value of ``stage.dir``.
        sources: folders of the data that are copied.

    Raises:
        ConfigError: a variable is not set, or the copies would lie among the data and become part of them.
    """
    root = node_folder(dir)
    for source in sources:
        if root.resolve().is_relative_to(source.resolve()):
            raise ConfigError(
                f"stage.dir={dir} must not lie in the folder of the data, {source}",
                hint="choose a folder outside of the data",
            )
    return root
