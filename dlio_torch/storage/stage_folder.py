"""Where node-local storage is, for this process."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from dlio_torch.config.schema import Config
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.format import Format

KEPT = ".kept"
"""End of the name of a file beside copies that were kept: JSON, the recipe and the folder that they are of."""


def place(dir: str) -> Path:
    """The folder of ``stage.dir`` for this process, variables of its environment filled in.

    Raises:
        ConfigError: a variable is not set.
    """
    text = os.path.expandvars(dir)
    if "$" in text:
        raise ConfigError(f"stage.dir={dir}: a variable in it is not set here", hint="set it on every node")
    return Path(text).expanduser().absolute()


def check_place(config: Config, fmt: Format, sources: Iterable[Path]) -> Path:
    """The folder of ``stage.dir``, which must be set, for this process.

    Args:
        config: the experiment.
        fmt: its format.
        sources: folders of the data that are copied.

    Raises:
        ConfigError: a variable in it is not set; the data lie in no files; or the copies would lie among the data,
            of which they would then be a part.
    """
    stage = config.stage
    assert stage.dir is not None
    if not fmt.needs_files:
        raise ConfigError(
            f"stage.dir={stage.dir}: dataset.format={config.dataset.format} lies in no files", hint="set stage.dir=null"
        )
    root = place(stage.dir)
    for source in sources:
        if root.resolve().is_relative_to(source.resolve()):
            raise ConfigError(
                f"stage.dir={stage.dir} lies in the folder of the data, {source}", hint="choose a folder outside of it"
            )
    return root
