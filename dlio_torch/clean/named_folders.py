"""Removal of folders that the user names: runs, recordings, studies, data sets and copies; and of job scripts."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from dlio_torch.clean.removals import RemovalPlan, carry_out, check_folder, check_unused, survey_file
from dlio_torch.errors import DataError
from dlio_torch.ownership import removal
from dlio_torch.ownership.job import files_of_job
from dlio_torch.ownership.marker import NotOwned, read_marker_beside
from dlio_torch.ownership.names import MARKER
from dlio_torch.run_directory.checkpoint_folder import outside_folders
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.storage.stage_folder import KEPT


def clean_named(
    paths: Sequence[Path], *, yes: bool, say: Callable[[str], None], confirm: Callable[[str], bool] | None
) -> bool:
    """Remove named folders of this tool: their listed files; everything else stays and is named.

    Args:
        paths: runs, recordings, studies, data sets, kept copies, and scripts of ``launch``.
        yes: see :func:`~dlio_torch.clean.removals.carry_out`.
        say: see :func:`~dlio_torch.clean.removals.carry_out`.
        confirm: see :func:`~dlio_torch.clean.removals.carry_out`.

    Returns:
        Whether none of the named paths stays as a whole.

    Raises:
        DataError: a path does not exist; nothing is removed.
        RunFailed: see :func:`~dlio_torch.clean.removals.carry_out`.
    """
    search = _NamedSearch()
    for path in paths:
        search.add(path)
    names = shlex.join(map(str, paths))
    carry_out(search.plan, f"clean {names}", f"nothing to remove in {names}", yes, say, confirm)
    return not search.kept


class _NamedSearch:
    """Plans the removal of named folders: runs, recordings, studies, data sets and copies; and of job scripts.

    Attributes:
        plan: the removals, and what stays in these folders.
        kept: named paths that stay as a whole, because nothing shows that this tool wrote them, or they are in use.
    """

    def __init__(self) -> None:
        self.plan = RemovalPlan()
        self.kept: list[Path] = []

    def add(self, path: Path) -> None:
        """Add a folder or a job script to the plan, or the reason why it stays.

        Raises:
            DataError: it does not exist, or it is the root of the file system.
        """
        if not os.path.lexists(path):
            raise DataError(f"clean {path}: no such file or folder", hint="name a run, a study or a kept copy")
        folder = _location(path)
        if not folder.name:
            raise DataError(
                f"clean {path}: this is the root of the file system", hint="name a run, a study or a kept copy"
            )
        if any(folder == _location(item.path) for item in self.plan.removals):
            return
        try:
            if scripts := files_of_job(path):
                for file in scripts:
                    self.plan.add(file, "run", survey_file(file))
                return
            check_folder(path)
            self._folder(folder, path)
        except NotOwned as error:
            self._keep(path, f"{error}{_runs_within(path)}")
        except OSError as error:
            self._keep(path, f"the folder cannot be read: {error.strerror}")

    def _keep(self, path: Path, reason: str) -> None:
        self.kept.append(path)
        self.plan.keep(path, reason)

    def _folder(self, folder: Path, shown: Path) -> None:
        mark = folder.with_name(folder.name + KEPT)
        is_copy = mark.is_file()  # staged copies have their marker next to them
        marker = read_marker_beside(mark, folder.name) if is_copy else removal.marker_of(folder)
        check_unused(folder)
        outside = marker if is_copy else None
        self.plan.add(shown, marker.kind, removal.survey(folder, outside), outside)
        for checkpoints in outside_folders(RunDir(folder)):
            self._folder(checkpoints, checkpoints)
        if is_copy:
            self.plan.add(mark, marker.kind, survey_file(mark))


def _location(path: Path) -> Path:
    """The path without links above its last part, ``..`` and ``.``; a link at its end stays a link."""
    if path.name in ("", ".."):  # Path("."), whose name is that of the folder
        return path.resolve()
    return path.parent.resolve() / path.name


def _runs_within(path: Path) -> str:
    """Advice on a folder that holds runs and is none; empty for any other."""
    markers = [] if path.is_symlink() else sorted([*path.glob(f"*/{MARKER}"), *path.glob(f"*/*/{MARKER}")])
    return f"; name the folders in it, for example {markers[0].parent}" if markers else ""
