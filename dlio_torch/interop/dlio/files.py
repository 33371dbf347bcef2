"""Reads a workload file and writes a recipe."""

from __future__ import annotations

import os
from pathlib import Path

from dlio_torch.config.resources import read_document
from dlio_torch.config.yamlfile import Document
from dlio_torch.errors import ConfigError, PreconditionError
from dlio_torch.files.atomic_file import renamed
from dlio_torch.files.output_file import refuse_existing


def read_workload(name: str) -> Document:
    """Reads the workload file at the path ``name``.

    Raises:
        ConfigError: there is none, it cannot be read, or it is malformed.
    """
    asker = f"import-dlio {name} (command line)"
    hint = "give the path of a workload file of DLIO or MLPerf Storage"
    try:
        path = Path(name).expanduser()
        is_folder, is_there = path.is_dir(), path.exists()
    except (OSError, ValueError, RuntimeError) as error:  # a name too long, a NUL, an unknown ~user
        raise ConfigError(f"{asker}: the path is not usable: {error}", hint=hint) from None
    if is_folder:
        raise ConfigError(f"{asker}: the path is a folder", hint=hint)
    if not is_there:
        raise ConfigError(f"{asker}: there is no such file", hint=hint)
    return read_document(path, asker, label=name)


def write_recipe(text: str, name: str, source: str, *, force: bool = False) -> None:
    """Writes ``text`` to the path ``name``, completely or not at all.

    Args:
        text: the recipe.
        name: path of the file.
        source: path of the workload file, which is never replaced.
        force: whether an existing file is replaced.

    Raises:
        ConfigError: ``name`` is a folder, not usable, the workload file itself, or exists.
        PreconditionError: it cannot be written.
    """
    asker = f"--output {name} (command line)"
    try:
        path = Path(name).expanduser()
        if path.is_dir():
            raise ConfigError(
                (f"{asker}: the path is a folder"),
                hint=(f"give the path of a file in this folder: {name.rstrip('/')}/recipe.yaml"),
            )
        same = path.exists() and path.samefile(Path(source).expanduser())
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{asker}: the path is not usable: {error}", hint="give the path of a file") from None
    if same:
        raise ConfigError(f"{asker}: the path is the workload file itself", hint="give the path of another file")
    if path.suffix not in (".yaml", ".yml"):
        raise ConfigError(f"{asker}: the name of a recipe must end in .yaml", hint=f"write --output {name}.yaml")
    refuse_existing(path, f"--output {name}", force=force)
    try:
        with renamed(path.with_name(f".{path.name}.{os.getpid()}.tmp"), path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError as error:
        raise PreconditionError(
            f"{asker}: the file cannot be written: {error.strerror}", hint="choose a folder to which you can write"
        ) from None
