"""Removal of exactly the files that a marker lists.

Each folder is opened inside its parent without following links, so that the files that are checked are those that are
removed, even if folders are renamed meanwhile.  Unlisted files, links, mount points and files of other users stay, and
so do the folders that hold them.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dlio_torch.environment.mounts import mounts
from dlio_torch.ownership.marker import Marker, NotOwned, read_marker
from dlio_torch.ownership.names import MARKER, AllNames, FileNames, Parts

_MAX_NAMED = 20  # kept files of one folder that are named
_UNKNOWN = "not on the list of files that dlio_torch wrote here"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass
class Contents:
    """Listed files of a folder, and its other contents.

    Attributes:
        files: number of listed files.
        size_bytes: bytes that their removal frees.
        linked: number of listed files that have another hard link elsewhere, so that their content stays.
        kept: paths that stay, each with the reason.
    """

    files: int = 0
    size_bytes: int = 0
    linked: int = 0
    kept: list[str] = field(default_factory=list)


def survey(folder: Path, marker: Marker | None = None) -> Contents:
    """Counts the files that :func:`remove` would remove.

    Args:
        folder: an existing folder.
        marker: its marker; None: the marker in the folder.

    Raises:
        NotOwned: nothing shows that this tool created the folder.
        OSError: it cannot be read.
    """
    return _walk(folder, marker, delete=False)


def remove(folder: Path, marker: Marker | None = None) -> Contents:
    """Remove the listed files and the folders that are empty then; returns the removed and the remaining contents.

    Args:
        folder: as for :func:`survey`.
        marker: as for :func:`survey`.

    Raises:
        NotOwned: as for :func:`survey`.
        OSError: a file cannot be removed; names it.
    """
    return _walk(folder, marker, delete=True)


def survey_private(folder: Path, *, delete: bool = False) -> Contents:
    """Same as :func:`survey` or :func:`remove`, but for all files of a folder to which only this user writes."""
    return _walk(folder, Marker("temporary", None, AllNames()), delete=delete)


def marker_of(folder: Path) -> Marker:
    """Read the marker in a folder.

    Raises:
        NotOwned: it has no valid marker.
    """
    with _opened(folder) as descriptor:
        return read_marker(descriptor, folder.name)


def why_kept(path: Path) -> str | None:
    """Reason that a file must stay even if it is listed; ``None`` if it may be removed."""
    info = path.lstat()
    kind = _kind(info) or _foreign(info)
    return kind or ("a mount point" if str(Path(os.path.realpath(path.parent), path.name)) in _mount_points() else None)


def _walk(folder: Path, marker: Marker | None, *, delete: bool) -> Contents:
    parent = Path(os.path.realpath(folder.parent))
    above = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        walk = _Walk(delete, str(folder))
        walk.folder(above, parent / folder.name, marker)
    finally:
        os.close(above)
    return walk.contents


class _Walk:
    def __init__(self, delete: bool, shown: str) -> None:
        self.contents = Contents()
        self._delete = delete
        self._shown = shown
        self._mounts = _mount_points()
        self._root: Path | None = None

    def folder(self, above: int, path: Path, marker: Marker | None) -> None:
        """Process a folder with a marker; ``above`` is its open parent folder."""
        self._root = self._root or path
        info = os.stat(path.name, dir_fd=above, follow_symlinks=False)
        reason = self._why_kept(info, path, above)
        if reason is not None:
            raise NotOwned(reason)
        if not stat.S_ISDIR(info.st_mode):
            raise NotOwned("not a folder")
        with _opened(path, above) as descriptor:
            names = (marker or read_marker(descriptor, path.name)).names
            self._entries(descriptor, path, (), names)
            with contextlib.suppress(FileNotFoundError):
                self._file(descriptor, path / MARKER, (MARKER,), names)  # last: until then the removal can be repeated
        self._remove_folder(above, path)

    def _entries(self, folder: int, path: Path, parts: Parts, names: FileNames) -> None:
        kept = 0
        for name in sorted(os.listdir(folder)):
            entry = (*parts, name)
            if entry == (MARKER,):
                continue
            try:
                reason = self._entry(folder, path / name, entry, names)
            except FileNotFoundError:
                continue  # it was removed meanwhile
            if reason is not None:
                kept += 1
                if kept <= _MAX_NAMED:
                    self._keep(path / name, reason)
        if kept > _MAX_NAMED:
            self._keep(path, f"{kept - _MAX_NAMED} more files that are {_UNKNOWN}")

    def _entry(self, folder: int, path: Path, parts: Parts, names: FileNames) -> str | None:
        """Process an entry of a folder; returns the reason if it stays."""
        info = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
        is_folder = stat.S_ISDIR(info.st_mode)
        if is_folder and names.has_marked(parts):
            try:
                self.folder(folder, path, None)
            except NotOwned as error:
                return str(error)
            return None
        if not (names.has_folder(parts) if is_folder else names.has_file(parts)):
            return self._why_kept(info, path, folder) or _UNKNOWN
        if not is_folder:
            return self._file(folder, path, parts, names)
        if (reason := self._why_kept(info, path, folder)) is not None:
            return reason
        with _opened(path, folder) as descriptor:
            self._entries(descriptor, path, parts, names)
        self._remove_folder(folder, path)
        return None

    def _file(self, folder: int, path: Path, parts: Parts, names: FileNames) -> str | None:
        info = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
        reason = self._why_kept(info, path, folder)
        if reason is not None and not (names.any_kind and reason == _kind(info)):
            return reason
        if self._delete:
            with _naming(path):
                os.unlink(path.name, dir_fd=folder)
        self.contents.files += 1
        linked = info.st_nlink > 1
        self.contents.linked += linked
        self.contents.size_bytes += 0 if linked else info.st_size
        return None

    def _remove_folder(self, above: int, path: Path) -> None:
        if self._delete:
            try:
                with _naming(path):
                    os.rmdir(path.name, dir_fd=above)
            except OSError as error:
                if not self._has_entries(path, above):
                    raise error

    def _has_entries(self, path: Path, above: int) -> bool:
        with _opened(path, above) as descriptor:
            return bool(os.listdir(descriptor))

    def _why_kept(self, info: os.stat_result, path: Path, above: int) -> str | None:
        # In an overlay, files may have the device number of a lower layer; folders have that of the overlay.
        other = stat.S_ISDIR(info.st_mode) and info.st_dev != os.fstat(above).st_dev
        if other or str(path) in self._mounts:
            return "a mount point"
        return (None if stat.S_ISDIR(info.st_mode) else _kind(info)) or _foreign(info)

    def _keep(self, path: Path, reason: str) -> None:
        assert self._root is not None
        shown = Path(self._shown, path.relative_to(self._root))
        self.contents.kept.append(f"{shown}: {reason}")


def _kind(info: os.stat_result) -> str | None:
    """Kind of an entry that is not a regular file; None for a regular file."""
    if stat.S_ISLNK(info.st_mode):
        return "a link"
    return None if stat.S_ISREG(info.st_mode) else "not a file"


def _foreign(info: os.stat_result) -> str | None:
    return None if info.st_uid == os.geteuid() else "belongs to another user"


def _mount_points() -> set[str]:
    """All mount points; empty if they cannot be read: device numbers show most of them."""
    try:
        return {mount.point for mount in mounts()}
    except OSError:
        return set()


@contextlib.contextmanager
def _opened(path: Path, above: int | None = None) -> Iterator[int]:
    """Open a folder that is not a symbolic link, relative to its open parent folder if given."""
    with _naming(path):
        descriptor = os.open(path if above is None else path.name, _FOLDER, dir_fd=above)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Complete the path in an OSError of the body."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise
