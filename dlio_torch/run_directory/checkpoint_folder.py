"""Folder of a run's checkpoints: in the run directory, or a marked folder of its own below ``checkpoint.root``.

A folder below ``checkpoint.root`` and its run name each other, in two small files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from dlio_torch.errors import DataError
from dlio_torch.files.atomic_file import writing
from dlio_torch.ownership.marker import write_marker
from dlio_torch.run_directory.results_folder import folder_name, numbered_folder
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.syserrors import refused

RUN_LINK = "run.json"
"""Name of the file in a folder of checkpoints that names their run."""


def make_checkpoint_folder(directory: RunDir, root: str | None, recipe: str, names: Iterable[str]) -> Path:
    """Make the folder of a run's checkpoints, and return its path.

    Args:
        directory: the run directory.
        root: ``checkpoint.root``; ``None``: the folder lies in the run directory, and savers make it.
        recipe: name of the recipe, or the path of a recipe file.
        names: entries of the marker's list for the checkpoints.

    Raises:
        DlioError: it cannot be made or written.
    """
    if root is None:
        return directory.checkpoints
    parent = Path(root).expanduser().absolute() / folder_name(recipe)
    try:
        folder = numbered_folder(parent, directory.path.name)
    except OSError as error:
        raise refused(
            f"checkpoint.root={root}: no folder can be made in {parent}", error, elsewhere="choose another folder"
        ) from error
    with writing(folder):
        write_marker("checkpoints", folder, recipe, [RUN_LINK, *names])
    link = RunDir(folder)
    link.write_json(folder / RUN_LINK, {"run": str(directory.path)})
    directory.write_json(directory.checkpoint_link, {"folder": str(folder)})
    return folder


def checkpoint_folder(directory: RunDir) -> Path:
    """The folder of a run's checkpoints, which may be missing."""
    return _linked(directory.checkpoint_link, "folder") or directory.checkpoints


def outside_folders(directory: RunDir) -> list[Path]:
    """Existing folders of checkpoints outside of a run directory, those of the turns of an elastic run included."""
    turns = [RunDir(path) for path in sorted(directory.path.glob("turn-*"))] if directory.elastic.exists() else []
    folders = [_linked(run.checkpoint_link, "folder") for run in (directory, *turns)]
    return [folder for folder in folders if folder is not None and folder.is_dir()]


def run_of(folder: Path) -> RunDir | None:
    """The run whose checkpoints a folder below ``checkpoint.root`` holds; ``None`` for any other folder."""
    path = _linked(folder / RUN_LINK, "run")
    return None if path is None else RunDir(path)


def _linked(file: Path, key: str) -> Path | None:
    """The absolute path that a link names; ``None`` if the file is missing or damaged."""
    with contextlib.suppress(DataError, LookupError, TypeError, ValueError):
        path = Path(RunDir(file.parent).read_json(file)[key])
        return path if path.is_absolute() else None
    return None
