"""Planned removals, the checks before them, and the question that is asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from dlio_torch.errors import ConfigError, RunFailed, harmless
from dlio_torch.ownership import removal
from dlio_torch.ownership.marker import Marker, NotOwned
from dlio_torch.ownership.names import LOCK
from dlio_torch.run_directory.checkpoint_folder import run_of
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.run_directory.running_process import running_process
from dlio_torch.supervision import orphan_files
from dlio_torch.units import format_size

_COLUMN = len(orphan_files.KIND)


@dataclass(frozen=True)
class Removal:
    """One file or folder to remove.

    Attributes:
        path: the file, or a folder: its listed files are removed, and the folder if it is empty then.
        kind: ``data``, ``run``, ``study``, ``copies``, ``checkpoints`` or ``orphaned files``.
        size_bytes: bytes that are freed.
        files: number of files.
        linked: number of files that have another hard link elsewhere, so that their content stays.
        marker: marker of a folder; None: the marker in the folder.
        private: whether it is a temporary folder, in which all files belong to this tool.
    """

    path: Path
    kind: str
    size_bytes: int
    files: int
    linked: int
    marker: Marker | None
    private: bool

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
        return sum(item.size_bytes for item in self.removals)

    def add(
        self, path: Path, kind: str, contents: removal.Contents, marker: Marker | None = None, *, private: bool = False
    ) -> None:
        """Add the removal of a file or folder with these contents; arguments as of :class:`Removal`."""
        self.removals.append(Removal(path, kind, contents.size_bytes, contents.files, contents.linked, marker, private))
        self.refused.extend(contents.kept)

    def keep(self, path: Path, reason: str) -> None:
        """Note that a path stays."""
        self.refused.append(f"{path}: {reason}")


def check_folder(path: Path) -> None:
    """Raise if a path is a link or no folder.

    Raises:
        NotOwned: it is.
    """
    if path.is_symlink():
        raise NotOwned("a link")
    if not path.is_dir():
        raise NotOwned("the path is not a folder")


def check_unused(path: Path) -> None:
    """Raise if a process writes to a folder.

    Raises:
        NotOwned: it does.
    """
    if orphan_files.is_held(path / LOCK):
        raise NotOwned("a process is writing to the folder")
    if (process := running_process(run_of(path) or RunDir(path))) is not None:
        raise NotOwned(f"the {process.kind} is still running (process {process.pid})")


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


def carry_out(
    planned: RemovalPlan,
    command: str,
    absent: str,
    yes: bool,
    say: Callable[[str], None],
    confirm: Callable[[str], bool] | None,
) -> int:
    """Names what stays and what goes, asks, and removes; returns the bytes that were freed.

    Args:
        planned: the removals.
        command: the command, for messages.
        absent: the line if nothing goes.
        yes: remove without a question.
        say: prints one line.
        confirm: asks a question on the terminal; None: there is no terminal.

    Raises:
        ConfigError: there is no terminal to ask on, and ``yes`` is false.
        RunFailed: a file could not be removed.
    """
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
            raise ConfigError(
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
