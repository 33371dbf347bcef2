"""Files that an option of the command line names: an existing one is replaced only if the user says so."""

from __future__ import annotations

import os
from pathlib import Path

from dlio_torch.errors import ConfigError


def refuse_existing(path: Path, option: str, *, force: bool) -> None:
    """Raise if a file exists that a command would replace.

    Args:
        path: the file to write.
        option: the argument that names it, for the message.
        force: whether the user allowed to replace it (``--force``).

    Raises:
        ConfigError: it exists, and ``force`` is false.
    """
    if not force and os.path.lexists(path):
        raise ConfigError(
            f"{option} (command line): the file exists", hint="add --force to replace it, or name another file"
        )


def yaml_output(name: str | None, noun: str, *, force: bool) -> Path | None:
    """The YAML file that ``--output`` names, or ``None``.

    Args:
        name: value of the flag; ``None``: not given.
        noun: what the file describes, for the message.
        force: whether an existing file may be replaced (``--force``).

    Raises:
        ConfigError: its name does not end in .yaml, or it exists and ``force`` is false.
    """
    if name is None:
        return None
    path = Path(name).expanduser()
    if path.suffix not in (".yaml", ".yml"):
        raise ConfigError(
            f"--output {name} (command line): the name of a {noun} must end in .yaml", hint=f"write {name}.yaml"
        )
    refuse_existing(path, f"--output {name}", force=force)
    return path
