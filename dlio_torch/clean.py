"""``clean``: removes what this tool made for a recipe, and what killed commands have left, and nothing else.

A folder is touched where its marker (:mod:`dlio_torch.ownership.marker`) shows that the tool made it, and in it what
the marker lists.  All else stays and is named: files that users have put there, links, mount points, what belongs to
other users, what a process writes just now, folders of earlier versions, which have no list, and ``dataset.path``.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dlio_torch import leftovers, runstate
from dlio_torch.config.schema import Config
from dlio_torch.data.dataset.description import LOCK
from dlio_torch.errors import RunFailed, harmless
from dlio_torch.ownership import removal
from dlio_torch.ownership.job import files_of_job
from dlio_torch.ownership.marker import Marker, NotOwned, Unlisted, read_marker_beside
from dlio_torch.rundir import RunDir, folder_name
from dlio_torch.storage.local import locked_folder
from dlio_torch.storage.stage_folder import KEPT
from dlio_torch.units import format_size

_OLD = ("dlio_torch.json", "environment.json", "elastic.json", "study.yaml")
"""Files of which earlier versions left one in each folder."""


@dataclass(frozen=True)
class Removal:
    """One file or folder to remove.

    Attributes:
        path: what is removed; of a folder what is on its list, and the folder itself where nothing else is in it.
        what: ``data``, ``run``, ``study``, ``copies`` or ``leftover``.
        size_bytes: that are freed.
        files: number of files.
        linked: of them those whose content has another name elsewhere, and stays.
        marker: that counts for a folder; None: the one in it.
        private: whether it is a temporary folder, in which everything is ours.
    """

    path: Path
    what: str
    size_bytes: int
    files: int = 1
    linked: int = 0
    marker: Marker | None = None
    private: bool = False

    def __str__(self) -> str:
        linked = f"; {self.linked} have another name elsewhere, which stays" if self.linked else ""
        return f"{self.what:<9} {self.path}: {self.files} files, {format_size(self.size_bytes)}{linked}"


@dataclass(frozen=True)
class Plan:
    """What ``clean`` would do.

    Attributes:
        removals: what can be removed.
        refused: what has a fitting name or lies in a folder of this tool, and stays; with the reason.
    """

    removals: list[Removal] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        """Bytes that are freed."""
        return sum(removal.size_bytes for removal in self.removals)


def plan(config: Config, cwd: Path | None = None) -> Plan:
    """Find the generated data, runs, studies, copies and half-written files of ``config.recipe``.

    Data are ``<dataset.root>/<recipe>-*``, runs ``<output.root>/<recipe>/*`` with the scripts of ``launch`` beside
    them, studies ``<output.root>/sweeps/*/*``; copies lie in ``stage.dir``, of ``config`` and of the recipe's runs, as
    far as it is on this machine.

    Args:
        config: a complete configuration; its amounts do not matter.
        cwd: folder that relative paths start from; None: the current one.
    """
    return _Search(config, cwd or Path.cwd()).plan()


class _Search:
    def __init__(self, config: Config, here: Path) -> None:
        self._config, self._here = config, here
        self._output = here / config.output.root
        path = config.dataset.path
        self._data = None if path is None else (here / path).resolve()
        self._plan = Plan()

    def plan(self) -> Plan:
        recipe = self._config.recipe
        for path in leftovers.entries(self._here / self._config.dataset.root, f"{recipe}-"):
            self._folder(path, "data", "data")
        runs = self._output / folder_name(recipe)
        self._jobs(runs)
        for path in self._below(runs):
            if path.is_symlink() or path.suffix not in (".sh", ".log"):
                self._folder(path, "run", "run")
        for name in self._below(self._output / "sweeps"):
            for path in self._below(name):
                if path.is_symlink() or (path.is_dir() and leftovers.is_study_of(path, recipe)):
                    self._folder(path, "study", "study")
                    for file in files_of_job(path.with_name(f"{path.name}.sh")):
                        self._file(file, "study")
        stages = leftovers.stages(self._config, self._here)
        for path in leftovers.kept(stages, recipe):
            self._copies(path)
        self._leftovers(stages)
        return self._plan

    def _below(self, folder: Path) -> Iterator[Path]:
        """What lies in a folder that is no link."""
        if folder.is_symlink():
            self._keep(folder, "a link")
        else:
            yield from leftovers.entries(folder)

    def _folder(self, path: Path, what: str, kind: str) -> None:
        """A folder with a marker of its own."""
        try:
            _check_folder(path)
            marker = removal.marker_of(path)
            if marker.kind != kind:
                raise NotOwned(f"it is the folder of a {marker.kind}")
            if kind == "study" or marker.recipe == self._config.recipe:  # data of 'a-b' also start with 'a-'
                self._check_unused(path)
                self._add(path, what, None)
        except NotOwned as error:
            if not isinstance(error, Unlisted) or error.recipe in (None, self._config.recipe):
                self._keep(path, f"{error}{_by_hand(error, path)}")
        except OSError as error:
            self._keep(path, f"cannot be read: {error.strerror}")

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
            self._keep(path, f"cannot be read: {error.strerror}")

    def _check_unused(self, path: Path) -> None:
        real = path.resolve()
        if self._data is not None and (self._data == real or self._data.is_relative_to(real)):
            raise NotOwned("it holds dataset.path")
        if leftovers.is_held(path / LOCK):
            raise NotOwned("a process is writing it")
        state = runstate.read(RunDir(path).state)
        if state is not None and state.state == "running" and state.why_early() is None:
            raise NotOwned(f"the run goes on (process {state.pid})")

    def _jobs(self, folder: Path) -> None:
        """Scripts of ``launch``, and the logs that they name."""
        files = [] if folder.is_symlink() else sorted((*folder.glob("*.sh"), *folder.glob("*.log")))
        listed = {made for file in files for made in files_of_job(file)}
        for path in files:
            if path in listed:
                self._file(path, "run")
            elif not path.is_dir():
                self._keep(path, "not the script or log of a job of dlio_torch's launch")

    def _leftovers(self, stages: list[Path]) -> None:
        for path in (*leftovers.unfinished_results(self._output, listed=True), *leftovers.old_temporary()):
            if not any(removal.path in path.parents for removal in self._plan.removals):
                self._file(path, "leftover")
        for folder in (*stages, Path(tempfile.gettempdir())):
            for path in locked_folder.orphans(folder):
                if path.is_dir():
                    found = removal.survey_private(path)
                    self._plan.removals.append(
                        Removal(path, "leftover", found.size_bytes, found.files, found.linked, private=True)
                    )
                    self._plan.refused.extend(found.kept)
                self._file(locked_folder.lock_of(path), "leftover")

    def _add(self, path: Path, what: str, marker: Marker | None) -> None:
        found = removal.survey(path, marker)
        self._plan.removals.append(Removal(path, what, found.size_bytes, found.files, found.linked, marker))
        self._plan.refused.extend(found.kept)

    def _file(self, path: Path, what: str) -> None:
        reason = removal.why_kept(path)
        if reason is not None:
            self._keep(path, reason)
            return
        info = path.lstat()
        linked = info.st_nlink > 1
        self._plan.removals.append(Removal(path, what, 0 if linked else info.st_size, linked=int(linked)))

    def _keep(self, path: Path, reason: str) -> None:
        self._plan.refused.append(f"{path}: {reason}")


def clean(
    config: Config,
    *,
    yes: bool,
    say: Callable[[str], None],
    confirm: Callable[[str], bool] | None,
    cwd: Path | None = None,
) -> int:
    """Remove what :func:`plan` finds.

    Args:
        config: a complete configuration.
        yes: remove without asking.
        say: prints one line.
        confirm: asks a question on the terminal; None where there is none.
        cwd: folder that relative paths start from; None: the current one.

    Returns:
        Bytes that were freed.

    Raises:
        RunFailed: nobody could be asked, or something could not be removed.
    """
    found = plan(config, cwd)
    for reason in found.refused:
        say(harmless(f"kept      {reason}"))
    for one in found.removals:
        say(harmless(str(one)))
    if not found.removals:
        say(f"nothing to remove for recipe {config.recipe}")
        return 0
    total = format_size(found.size_bytes)
    if not yes:
        if confirm is None:
            raise RunFailed(
                f"clean recipe={config.recipe}: {total} would be removed and there is no terminal to ask on",
                hint="add --yes",
            )
        if not confirm(f"remove {total}? [y/N] "):
            say("nothing was removed")
            return 0
    for one in found.removals:
        try:
            _remove_one(one)
        except OSError as error:
            raise RunFailed(
                f"clean: cannot remove {error.filename or one.path}: {error.strerror}", hint="check its permissions"
            ) from None
        except NotOwned as error:
            say(harmless(f"kept      {one.path}: {error}"))  # it was changed meanwhile
    say(f"removed   {total}")
    return found.size_bytes


def _remove_one(one: Removal) -> None:
    if one.private:
        removal.survey_private(one.path, delete=True)
    elif one.path.is_symlink() or not one.path.is_dir():
        one.path.unlink(missing_ok=True)
    else:
        removal.remove(one.path, one.marker)


def _check_folder(path: Path) -> None:
    if path.is_symlink():
        raise NotOwned("a link")
    if not path.is_dir():
        raise NotOwned("not a folder")


def _by_hand(error: NotOwned, *paths: Path) -> str:
    """What to do with a folder of an earlier version, and what lies beside it."""
    is_old = any(path.suffix == KEPT or any((path / name).is_file() for name in _OLD) for path in paths)
    if not isinstance(error, Unlisted) or not is_old:
        return ""
    return f"; it may be an earlier version's: if nothing in it is yours, rm -r {shlex.join(map(str, paths))}"
