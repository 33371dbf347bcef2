"""Removal of the files that this tool wrote for a recipe, and of orphaned files of killed commands.

In a folder, it removes the files that the marker lists (:mod:`dlio_torch.ownership.marker`).  Everything else stays and
is named with the reason: files of users, links, mount points, files of other users, folders that a process is writing,
folders of earlier versions, which have no list, and ``dataset.path``.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from dlio_torch.clean.removals import RemovalPlan, carry_out, check_folder, check_unused, survey_file
from dlio_torch.config.schema import Config
from dlio_torch.files import locked_folder
from dlio_torch.ownership import removal
from dlio_torch.ownership.job import files_of_job
from dlio_torch.ownership.marker import Marker, NotOwned, Unlisted, read_marker_beside
from dlio_torch.run_directory.checkpoint_folder import outside_folders
from dlio_torch.run_directory.results_folder import NODE_FOLDER, folder_name
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.storage.stage_folder import KEPT
from dlio_torch.supervision import orphan_files

_OLD = ("dlio_torch.json", "environment.json", "elastic.json", "study.yaml")
"""Names of files by which folders of earlier versions are recognised."""


def plan(config: Config, cwd: Path | None = None) -> RemovalPlan:
    """Find the generated data, runs, studies, copies and unfinished files of ``config.recipe``.

    Data are ``<dataset.root>/<recipe>-*``.  Runs are ``<output.root>/<recipe>/*``, with the scripts of ``launch`` next
    to them.  Studies are ``<output.root>/sweeps/*/*``, results of ``node`` are ``<output.root>/node/*``.  Copies lie in
    ``stage.dir`` of ``config`` and of the recipe's runs, if that is on this machine; checkpoints in folders that these
    runs name, and in ``<checkpoint.root>/<recipe>/*``.

    Args:
        config: a complete configuration; its amounts do not matter.
        cwd: start of relative paths; None: the current folder.
    """
    return _Search(config, cwd or Path.cwd()).plan()


class _Search:
    def __init__(self, config: Config, here: Path) -> None:
        self._config, self._here = config, here
        self._output = here / config.output.root
        path = config.dataset.path
        self._data = None if path is None else (here / path).resolve()
        self._plan = RemovalPlan()

    def plan(self) -> RemovalPlan:
        recipe = self._config.recipe
        for path in orphan_files.entries(self._here / self._config.dataset.root, f"{recipe}-"):
            self._folder(path, "data")
        runs = self._output / folder_name(recipe)
        self._jobs(runs)
        for path in self._below(runs):
            if path.is_symlink() or path.suffix not in (".sh", ".log"):
                self._folder(path, "run")
                self._checkpoints(outside_folders(RunDir(path)))
        if (root := self._config.checkpoint.root) is not None:
            self._checkpoints(self._below(self._here / Path(root).expanduser() / folder_name(recipe)))
        for path in self._below(self._output / NODE_FOLDER):
            self._folder(path, "node")
        for name in self._below(self._output / "sweeps"):
            for path in self._below(name):
                if path.is_symlink() or (path.is_dir() and orphan_files.is_study_of(path, recipe)):
                    self._folder(path, "study")
                    for file in files_of_job(path.with_name(f"{path.name}.sh")):
                        self._file(file, "study")
        stages = orphan_files.stages(self._config, self._here)
        for path in orphan_files.kept(stages, recipe):
            self._copies(path)
        self._orphans(stages)
        return self._plan

    def _below(self, folder: Path) -> Iterator[Path]:
        """Yields the entries of a folder that is not the path is a link."""
        if folder.is_symlink():
            self._plan.keep(folder, "a link")
        else:
            yield from orphan_files.entries(folder)

    def _folder(self, path: Path, kind: str) -> None:
        """Plans the removal of a folder that contains its own marker file."""
        try:
            check_folder(path)
            marker = removal.marker_of(path)
            if marker.kind != kind:
                raise NotOwned(f"the folder belongs to a {marker.kind}")
            if kind == "study" or marker.recipe == self._config.recipe:  # data of 'a-b' also start with 'a-'
                self._check_unused(path)
                self._add(path, kind, None)
        except NotOwned as error:
            if not isinstance(error, Unlisted) or error.recipe in (None, self._config.recipe):
                self._plan.keep(path, f"{error}{_by_hand(error, path)}")
        except OSError as error:
            self._plan.keep(path, f"the folder cannot be read: {error.strerror}")

    def _checkpoints(self, folders: Iterable[Path]) -> None:
        """Plans the removal of folders below ``checkpoint.root``, of which several sources may tell."""
        for path in folders:
            if not any(item.path.resolve() == path.resolve() for item in self._plan.removals):
                self._folder(path, "checkpoints")

    def _copies(self, path: Path) -> None:
        mark = path.with_name(path.name + KEPT)
        try:
            if path.is_symlink() or path.exists():
                check_folder(path)
                self._check_unused(path)
                self._add(path, "copies", read_marker_beside(mark, path.name))
            self._file(mark, "copies")
        except NotOwned as error:
            self._plan.keep(path, f"{error}{_by_hand(error, path, mark)}")
        except OSError as error:
            self._plan.keep(path, f"the folder cannot be read: {error.strerror}")

    def _check_unused(self, path: Path) -> None:
        real = path.resolve()
        if self._data is not None and (self._data == real or self._data.is_relative_to(real)):
            raise NotOwned("the folder contains dataset.path")
        check_unused(path)

    def _jobs(self, folder: Path) -> None:
        """Scripts of ``launch``, and the logs that they name."""
        files = [] if folder.is_symlink() else sorted((*folder.glob("*.sh"), *folder.glob("*.log")))
        listed = {path for file in files for path in files_of_job(file)}
        for path in files:
            if path in listed:
                self._file(path, "run")
            elif not path.is_dir():
                self._plan.keep(path, "the file is not the script or log of a job of dlio_torch launch")

    def _orphans(self, stages: list[Path]) -> None:
        for path in (*orphan_files.unfinished_results(self._output, listed=True), *orphan_files.old_temporary()):
            if not any(removal.path in path.parents for removal in self._plan.removals):
                self._file(path, orphan_files.KIND)
        for folder in (*stages, Path(tempfile.gettempdir())):
            for path in locked_folder.orphans(folder):
                if path.is_dir():
                    self._plan.add(path, orphan_files.KIND, removal.survey_private(path), private=True)
                self._file(locked_folder.lock_of(path), orphan_files.KIND)

    def _add(self, path: Path, kind: str, marker: Marker | None) -> None:
        self._plan.add(path, kind, removal.survey(path, marker), marker)

    def _file(self, path: Path, kind: str) -> None:
        try:
            self._plan.add(path, kind, survey_file(path))
        except NotOwned as error:
            self._plan.keep(path, str(error))


def clean(
    config: Config,
    *,
    yes: bool,
    say: Callable[[str], None],
    confirm: Callable[[str], bool] | None,
    cwd: Path | None = None,
) -> int:
    """Remove the files and folders of :func:`plan`.

    Args:
        config: a complete configuration.
        yes: remove without a question.
        say: prints one line.
        confirm: asks a question on the terminal; None: there is no terminal.
        cwd: start of relative paths; None: the current folder.

    Returns:
        Bytes that were freed.

    Raises:
        ConfigError: there is no terminal to ask on, and ``yes`` is false.
        RunFailed: a file could not be removed.
    """
    recipe = config.recipe
    absent = f"nothing to remove for recipe {recipe}"
    return carry_out(plan(config, cwd), f"clean recipe={recipe}", absent, yes, say, confirm)


def _by_hand(error: NotOwned, *paths: Path) -> str:
    """Returns advice on a folder of an earlier version; empty for other folders."""
    is_old = any(path.suffix == KEPT or any((path / name).is_file() for name in _OLD) for path in paths)
    if not isinstance(error, Unlisted) or not is_old:
        return ""
    return (
        "; an earlier version of dlio_torch may have written these files: if none of them is yours, remove them with "
        f"rm -r {shlex.join(map(str, paths))}"
    )
