"""``clean``: removes what this tool made for a recipe, and what killed commands have left, and nothing else.

Only folders that carry the tool's own marker files are touched: a data folder holds
``dlio_torch.json``, a run directory ``config.yaml`` and ``environment.json`` (one that a killed run had just begun: its
first files and nothing else), a study ``study.yaml``; copies of ``stage.keep`` have a mark beside them, copies and
temporary folders of killed processes a lock that nobody holds.  Symbolic links are removed as links and never followed;
``dataset.path`` is never removed.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dlio_torch import leftovers
from dlio_torch.config.schema import Config
from dlio_torch.errors import RunFailed
from dlio_torch.rundir import unfinished
from dlio_torch.storage.local import locked_folder as held
from dlio_torch.storage.stage_folder import KEPT
from dlio_torch.units import format_size

DATA_MARKER = "dlio_torch.json"
RUN_MARKERS = ("config.yaml", "environment.json")
LEFTOVER = ".part"


@dataclass(frozen=True)
class Removal:
    """One file or folder to remove.

    Attributes:
        path: what is removed, with everything in it.
        what: ``data``, ``run``, ``study``, ``copies`` or ``leftover``.
        size_bytes: bytes of the files in it, links not followed.
        files: number of files in it.
    """

    path: Path
    what: str
    size_bytes: int
    files: int


@dataclass(frozen=True)
class Plan:
    """What ``clean`` would do.

    Attributes:
        removals: what can be removed.
        refused: folders with a fitting name that this tool did not make, with the reason.
    """

    removals: tuple[Removal, ...]
    refused: tuple[str, ...]

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
    here = cwd or Path.cwd()
    keep = None if config.dataset.path is None else (here / config.dataset.path).resolve()
    removals: list[Removal] = []
    refused: list[str] = []

    def consider(path: Path, what: str, made_here: bool, marker: str) -> None:
        if path.is_symlink():
            refused.append(f"{path}: a link")
        elif keep is not None and (keep == path.resolve() or keep.is_relative_to(path.resolve())):
            refused.append(f"{path}: holds dataset.path")
        elif not made_here:
            refused.append(f"{path}: has no {marker}, so it is not known to be generated")
        else:
            removals.append(_removal(path, what))

    for path in _entries(here / config.dataset.root, lambda name: name.startswith(f"{config.recipe}-")):
        if path.name.endswith(LEFTOVER) and not path.is_symlink() and path.is_file():
            removals.append(_removal(path, "leftover"))
        elif (path.is_symlink() or path.is_dir()) and _made_for(path, config.recipe):
            consider(path, "data", (path / DATA_MARKER).is_file(), DATA_MARKER)
    runs = here / config.output.root / config.recipe
    if not runs.is_symlink():
        for path in _entries(runs, lambda name: True):
            if path.is_symlink() or path.is_dir():
                consider(path, "run", leftovers.is_run(path), " and ".join(RUN_MARKERS))
            elif path.suffix in (".sh", ".log") and leftovers.STAMP.fullmatch(path.stem):
                removals.append(_removal(path, "run"))
    output = here / config.output.root
    for path in leftovers.studies(output, config.recipe):
        consider(path, "study", True, "")
    stages = leftovers.stages(config, here)
    for path in leftovers.kept(stages, config.recipe):
        if path.is_dir():
            consider(path, "copies", True, "")
        removals += [_removal(mark, "copies") for mark in (path.with_name(path.name + KEPT),) if mark.is_file()]
    finished = [path for path in leftovers.run_folders(output) if path.parent != runs]
    left = [file for path in finished for file in unfinished(path)] + leftovers.old_temporary()
    for folder in (*stages, Path(tempfile.gettempdir())):
        left += [one for path in held.left(folder) for one in (path, held.lock_of(path)) if one.exists()]
    removals += [_removal(path, "leftover") for path in left]
    return Plan(tuple(removals), tuple(refused))


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
        say(f"kept      {reason}")
    for removal in found.removals:
        say(f"{removal.what:<9} {removal.path}: {removal.files} files, {format_size(removal.size_bytes)}")
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
    for removal in found.removals:
        try:
            _remove(removal.path)
        except OSError as error:
            raise RunFailed(
                f"clean: cannot remove {error.filename or removal.path}: {error.strerror}", hint="check its permissions"
            ) from None
    say(f"removed   {total}")
    return found.size_bytes


def _entries(folder: Path, fits: Callable[[str], bool]) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if fits(path.name))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _removal(path: Path, what: str) -> Removal:
    size = count = 0
    if path.is_dir():
        for folder, _, names in os.walk(path, followlinks=False):
            for name in names:
                info = os.lstat(Path(folder, name))
                if stat.S_ISREG(info.st_mode):
                    size += info.st_size
                    count += 1
    else:
        size, count = os.lstat(path).st_size, 1
    return Removal(path, what, size, count)


def _remove(path: Path) -> None:
    """Remove a file or a tree; rmtree unlinks links inside it and does not follow them."""
    if path.is_symlink() or not path.is_dir():
        path.unlink()
    else:
        shutil.rmtree(path)


def _made_for(folder: Path, recipe: str) -> bool:
    """Whether ``folder`` is a generated data set of ``recipe``: the data of 'a-b' also start with 'a-'."""
    try:
        found = json.loads((folder / DATA_MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return True  # damaged or absent: the marker's presence decides
    return not isinstance(found, dict) or found.get("recipe", recipe) == recipe
