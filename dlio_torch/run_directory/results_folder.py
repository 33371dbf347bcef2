"""Folders for results: their names, and checks that a folder can be made and written."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
from datetime import datetime
from pathlib import Path

from dlio_torch.errors import PreconditionError
from dlio_torch.ownership.names import MARKER
from dlio_torch.syserrors import refused

NODE_FOLDER = "node"
"""Folder of the results of the verb ``node`` below ``output.root``."""


def check_results_folder(path: Path, key: str, source: str, *, empty: bool = True) -> None:
    """Check, without writing, that a folder for results can be made and written.

    Args:
        path: the folder.
        key: option that names it, for messages.
        source: source of that option's value.
        empty: whether the folder must be empty.

    Raises:
        PreconditionError: the path is a file, the folder is not empty or may not be written, or its device is full.
    """
    try:
        problem = _unusable(path.expanduser().absolute(), empty)
    except (OSError, ValueError, RuntimeError) as error:  # a name too long, a NUL, an unknown ~user
        problem = f"the path cannot be used: {error}"
    if problem:
        raise PreconditionError(f"{key}={path} ({source}): {problem}", hint="choose another folder")


def _unusable(path: Path, empty: bool) -> str:
    there = next(place for place in (path, *path.parents) if place.exists())
    if not there.is_dir():
        return (
            "the path is a file, and a folder is needed"
            if there == path
            else f"the folder cannot be made, because {there} is a file"
        )
    if not os.access(there, os.W_OK | os.X_OK):
        return f"the permissions of {there} do not allow writing"
    if not (room := shutil.disk_usage(there)).free:
        return "its file system is full" if room.total else "its file system does not accept files"
    return "the folder is not empty" if empty and there == path and not is_vacant(path) else ""


def is_vacant(folder: Path) -> bool:
    """Whether a folder is empty, apart from the marker file of a folder for results."""
    return all(path.name == MARKER for path in folder.iterdir())


def claim(path: Path, option: str = "output.dir") -> Path:
    """Make the folder of a run or recording that an option names, and return its path.

    Raises:
        PreconditionError: it is not empty, or cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        occupied = not is_vacant(path)
    except OSError as error:
        raise refused(f"{option}={path} cannot be made", error, elsewhere="choose another folder") from error
    if occupied:
        raise PreconditionError(
            f"{option}={path} is not empty", hint=f"set {option} to a new folder, or remove the existing folder"
        )
    return path


def new_folder(parent: Path, now: datetime | None = None) -> Path:
    """Make a new folder ``<parent>/<YYYYmmdd-HHMMSS>[-n]``; two callers at the same time get two folders.

    Args:
        parent: made if needed.
        now: local time in the name; the current time by default.

    Raises:
        OSError: the folder cannot be made.
    """
    return numbered_folder(parent, (now or datetime.now()).strftime("%Y%m%d-%H%M%S"))


def numbered_folder(parent: Path, name: str) -> Path:
    """Make a new folder ``<parent>/<name>[-n]``; two callers at the same time get two folders.

    Args:
        parent: made if needed.
        name: of the folder.

    Raises:
        OSError: the folder cannot be made.
    """
    parent.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        path = parent / (name if number == 1 else f"{name}-{number}")
        # mkdir is a test-and-set that is atomic on every file system.
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            return path
        number += 1


def folder_name(recipe: str) -> str:
    """The folder of a recipe's runs below ``output.root``; ``recipe`` is a name, or the path of a file."""
    name = Path(recipe).stem if recipe.endswith((".yaml", ".yml")) else Path(recipe).name
    return re.sub(r"[^\w.+-]+", "_", name).strip(".") or "run"


def name_run_directory(interrupt: KeyboardInterrupt, folder: Path) -> None:
    """Name the run directory in the message of an interrupt."""
    path = shlex.quote(str(folder))
    interrupt.args = (f"the recording so far is in {path}; show it with: python -m dlio_torch report {path}",)
