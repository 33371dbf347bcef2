"""Where node-local storage is, for this process."""

from __future__ import annotations

import os
from pathlib import Path

from dlio_torch.errors import ConfigError


def place(dir: str) -> Path:
    """The folder of ``stage.dir`` for this process, variables of its environment filled in.

    Raises:
        ConfigError: a variable is not set.
    """
    text = os.path.expandvars(dir)
    if "$" in text:
        raise ConfigError(f"stage.dir={dir}: a variable in it is not set here", hint="set it on every node")
    return Path(text).expanduser().absolute()
