"""The verb ``clean``: removes the files that this tool wrote for a recipe, or the folders that are named.

With a recipe, orphaned files of killed commands are removed, too.

In a folder, it removes the files that the marker lists (:mod:`dlio_torch.ownership.marker`).  Everything else stays and
is named with the reason: files of users, links, mount points, files of other users, folders that a process is writing,
folders of earlier versions, which have no list, and ``dataset.path``.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dlio_torch.config.schema import Config
from dlio_torch.errors import DataError, RunFailed, harmless
from dlio_torch.files import locked_folder
from dlio_torch.ownership import removal
from dlio_torch.ownership.job import files_of_job
from dlio_torch.ownership.marker import Marker, NotOwned, Unlisted, read_marker_beside
from dlio_torch.ownership.names import LOCK, MARKER
from dlio_torch.run_directory import run_state
from dlio_torch.run_directory.results_folder import folder_name
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.storage.stage_folder import KEPT
from dlio_torch.supervision import orphan_files
from dlio_torch.units import format_size

_OLD = ("dlio_torch.json", "environment.json", "elastic.json", "study.yaml")
"""Names of files by which folders of earlier versions are recognised."""
_COLUMN = len(orphan_files.KIND)


@dataclass(frozen=True)
class Removal:
    """One file or folder to remove.

    Attributes:
        path: the file, or a folder: its listed files are removed, and the folder if it is empty then.
        kind: ``data``, ``run``, ``study``, ``copies`` or ``orphaned files``.
        size_bytes: bytes that are freed.
        files: number of files.
        linked: number of files that have another hard link elsewhere, so that their content stays.
        marker: marker of a folder; None: the marker in the folder.
        private: whether it is a temporary folder, in which all files belong to this tool.
    """

    path: Path
    kind: str
    size_bytes: int
    files: int = 1
    linked: int = 0
    marker: Marker | None = None
    private: bool = False

    def __str__(self) -> str:
        linked = f"; {self.linked} of the files have another hard link, which stays" if self.linked else ""
        return f"{self.kind:<{_COLUMN}} {self.path}: {self.files} files, {format_size(self.size_bytes)}{linked}"


@dataclass(frozen=True)
class RemovalPlan:
    """The removals of ``clean``.

    Attributes:
        removals: files and folders that can be removed.
        refused: paths that stay although their name or folder fits, each with the reason.
    """

    removals: list[Removal] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        """Number of bytes that the removals free."""
        return sum(removal.size_bytes for removal in self.removals)


def plan(config: Config, cwd: Path | None = None) -> RemovalPlan:
    """Find the generated data, runs, studies, copies and unfinished files of ``config.recipe``.

    Data are ``<dataset.root>/<recipe>-*``.  Runs are ``<output.root>/<recipe>/*``, with the scripts of ``launch`` next
    to them.  Studies are ``<output.root>/sweeps/*/*``.  Copies lie in ``stage.dir`` of ``config`` and of the recipe's
    runs, if that is on this machine.

    Args:
        config: a complete configuration; its amounts do not matter.
        cwd: start of relative paths; None: the current folder.
    """
    return _Search(config, cwd or Path.cwd()).plan()


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
            DataError: it does not exist.
        """
        if any(path.absolute() == item.path.absolute() for item in self.plan.removals):
            return
        if not os.path.lexists(path):
            raise DataError(f"clean {path}: no such file or folder", hint="name a run, a study or a kept copy")
        try:
            if scripts := files_of_job(path):
                for file in scripts:
                    self._add(file, "run", survey_file(file))
                return
            _check_folder(path)
            self._folder(path.absolute(), path)
        except NotOwned as error:
            self._keep(path, f"{error}{_runs_within(path)}")
        except OSError as error:
            self._keep(path, f"the folder cannot be read: {error.strerror}")

    def _keep(self, path: Path, reason: str) -> None:
        self.kept.append(path)
        self.plan.refused.append(f"{path}: {reason}")

    def _folder(self, folder: Path, shown: Path) -> None:
        mark = folder.with_name(folder.name + KEPT)
        is_copy = mark.is_file()  # staged copies have their marker next to them
        marker = read_marker_beside(mark, folder.name) if is_copy else removal.marker_of(folder)
        check_unused(folder)
        contents = removal.survey(folder, marker if is_copy else None)
        self._add(shown, marker.kind, contents, marker if is_copy else None)
        self.plan.refused.extend(contents.kept)
        if is_copy:
            self._add(mark, marker.kind, survey_file(mark))

    def _add(self, path: Path, kind: str, contents: removal.Contents, marker: Marker | None = None) -> None:
        size, files, linked = contents.size_bytes, contents.files, contents.linked
        self.plan.removals.append(Removal(path, kind, size, files, linked, marker))


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
            self._keep(folder, "a link")
        else:
            yield from orphan_files.entries(folder)

    def _folder(self, path: Path, kind: str) -> None:
        """Plans the removal of a folder that contains its own marker file."""
        try:
            _check_folder(path)
            marker = removal.marker_of(path)
            if marker.kind != kind:
                raise NotOwned(f"the folder belongs to a {marker.kind}")
            if kind == "study" or marker.recipe == self._config.recipe:  # data of 'a-b' also start with 'a-'
                self._check_unused(path)
                self._add(path, kind, None)
        except NotOwned as error:
            if not isinstance(error, Unlisted) or error.recipe in (None, self._config.recipe):
                self._keep(path, f"{error}{_by_hand(error, path)}")
        except OSError as error:
            self._keep(path, f"the folder cannot be read: {error.strerror}")

    def _copies(self, path: Path) -> None:
        mark = path.with_name(path.name + KEPT)
        try:
            if path.is_symlink() or path.exists():
                _check_folder(path)
                self._check_unused(path)
                self._add(path, "copies", read_marker_beside(mark, path.name))
            self._file(mark, "copies")
        except NotOwned as error:
            self._keep(path, f"{error}{_by_hand(error, path, mark)}")
        except OSError as error:
            self._keep(path, f"the folder cannot be read: {error.strerror}")

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
                self._keep(path, "the file is not the script or log of a job of dlio_torch launch")

    def _orphans(self, stages: list[Path]) -> None:
        for path in (*orphan_files.unfinished_results(self._output, listed=True), *orphan_files.old_temporary()):
            if not any(removal.path in path.parents for removal in self._plan.removals):
                self._file(path, orphan_files.KIND)
        for folder in (*stages, Path(tempfile.gettempdir())):
            for path in locked_folder.orphans(folder):
                if path.is_dir():
                    contents = removal.survey_private(path)
                    self._plan.removals.append(
                        Removal(
                            path, orphan_files.KIND, contents.size_bytes, contents.files, contents.linked, private=True
                        )
                    )
                    self._plan.refused.extend(contents.kept)
                self._file(locked_folder.lock_of(path), orphan_files.KIND)

    def _add(self, path: Path, kind: str, marker: Marker | None) -> None:
        contents = removal.survey(path, marker)
        self._plan.removals.append(Removal(path, kind, contents.size_bytes, contents.files, contents.linked, marker))
        self._plan.refused.extend(contents.kept)

    def _file(self, path: Path, kind: str) -> None:
        try:
            contents = survey_file(path)
        except NotOwned as error:
            self._keep(path, str(error))
            return
        self._plan.removals.append(Removal(path, kind, contents.size_bytes, linked=contents.linked))

    def _keep(self, path: Path, reason: str) -> None:
        self._plan.refused.append(f"{path}: {reason}")


def check_unused(path: Path) -> None:
    """Raise if a process writes to a folder.

    Raises:
        NotOwned: it does.
    """
    if orphan_files.is_held(path / LOCK):
        raise NotOwned("a process is writing to the folder")
    state = run_state.read(RunDir(path).state)
    if state is not None and state.state == "running" and state.why_early() is None:
        raise NotOwned(f"the run is still running (process {state.pid})")


def survey_file(path: Path) -> removal.Contents:
    """Size of a single file that would be removed.

    Raises:
        NotOwned: it must stay; the message gives the reason.
    """
    reason = removal.why_kept(path)
    if reason is not None:
        raise NotOwned(reason)
    info = path.lstat()
    is_linked = info.st_nlink > 1
    return removal.Contents(1, 0 if is_linked else info.st_size, int(is_linked))


def clean_named(
    paths: Sequence[Path], *, yes: bool, say: Callable[[str], None], confirm: Callable[[str], bool] | None
) -> bool:
    """Remove named folders of this tool: their listed files; everything else stays and is named.

    Args:
        paths: runs, recordings, studies, data sets, kept copies, and scripts of ``launch``.
        yes: see :func:`clean`.
        say: see :func:`clean`.
        confirm: see :func:`clean`.

    Returns:
        Whether none of the named paths stays as a whole.

    Raises:
        DataError: a path does not exist; nothing is removed.
        RunFailed: see :func:`clean`.
    """
    search = _NamedSearch()
    for path in paths:
        search.add(path)
    names = shlex.join(map(str, paths))
    _carry_out(search.plan, f"clean {names}", f"nothing to remove in {names}", yes, say, confirm)
    return not search.kept


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
        RunFailed: there is no terminal to ask on, or a file could not be removed.
    """
    recipe = config.recipe
    absent = f"nothing to remove for recipe {recipe}"
    return _carry_out(plan(config, cwd), f"clean recipe={recipe}", absent, yes, say, confirm)


def _carry_out(
    planned: RemovalPlan,
    command: str,
    absent: str,
    yes: bool,
    say: Callable[[str], None],
    confirm: Callable[[str], bool] | None,
) -> int:
    """Names what stays and what goes, asks, and removes; ``absent`` is the line if nothing goes."""
    for reason in planned.refused:
        say(harmless(f"{'kept':<{_COLUMN}} {reason}"))
    for item in planned.removals:
        say(harmless(str(item)))
    if not planned.removals:
        say(harmless(absent))
        return 0
    total = format_size(planned.size_bytes)
    if not yes:
        if confirm is None:
            raise RunFailed(
                f"{command}: {total} would be removed, and there is no terminal to ask for confirmation",
                hint="add --yes to remove the files without a question",
            )
        if not confirm(f"remove {total}? [y/N] "):
            say("nothing was removed")
            return 0
    for item in planned.removals:
        try:
            _remove(item)
        except OSError as error:
            raise RunFailed(
                f"clean: cannot remove {error.filename or item.path}: {error.strerror}",
                hint=f"check the permissions of {error.filename or item.path}",
            ) from None
        except NotOwned as error:
            say(harmless(f"{'kept':<{_COLUMN}} {item.path}: {error}"))  # it was changed meanwhile
    say(f"{'removed':<{_COLUMN}} {total}")
    return planned.size_bytes


def _remove(item: Removal) -> None:
    if item.private:
        removal.survey_private(item.path, delete=True)
    elif item.path.is_symlink() or not item.path.is_dir():
        item.path.unlink(missing_ok=True)
    else:
        removal.remove(item.path, item.marker)


def _check_folder(path: Path) -> None:
    if path.is_symlink():
        raise NotOwned("a link")
    if not path.is_dir():
        raise NotOwned("the path is not a folder")


def _runs_within(path: Path) -> str:
    """Advice on a folder that holds runs and is none; empty for any other."""
    markers = [] if path.is_symlink() else sorted([*path.glob(f"*/{MARKER}"), *path.glob(f"*/*/{MARKER}")])
    return f"; name the folders in it, for example {markers[0].parent}" if markers else ""


def _by_hand(error: NotOwned, *paths: Path) -> str:
    """Returns advice on a folder of an earlier version; empty for other folders."""
    is_old = any(path.suffix == KEPT or any((path / name).is_file() for name in _OLD) for path in paths)
    if not isinstance(error, Unlisted) or not is_old:
        return ""
    return (
        "; an earlier version of dlio_torch may have written these files: if none of them is yours, remove them with "
        f"rm -r {shlex.join(map(str, paths))}"
    )
