"""Loader of the package's C libraries, which are compiled at first use if needed.

A library comes from the installed package where its build had a compiler, else from the user's
cache folder, where the first process that needs it compiles it.  Calls through
:class:`ctypes.CDLL` release the interpreter lock.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dlio_torch.native.build import (
    SOURCE_DIR,
    compile_library,
    is_sealed,
    library_file_name,
)

__all__ = [
    "BUILT",
    "COMPILED",
    "NativeLibrary",
    "NativeUnavailable",
    "cache_dir",
    "find",
    "load",
    "load_once",
    "open_library",
    "preloaded",
]

BUILT = "built with the package"
COMPILED = "compiled at first use"


class NativeUnavailable(OSError):
    """Error for a machine without a usable library; the message gives the reason in a few words."""


@dataclass(frozen=True)
class NativeLibrary:
    """Shared library on disk.

    Attributes:
        name: stem of its C file.
        path: the file, for ctypes or ``LD_PRELOAD``.
        origin: where it came from, for reports: :data:`BUILT` or :data:`COMPILED`.
    """

    name: str
    path: Path
    origin: str


def cache_dir() -> Path:
    """The user's cache folder of this package: ``$XDG_CACHE_HOME/dlio_torch`` or ``~/.cache/dlio_torch``.

    The folder need not exist.  Without a home folder it is :func:`scratch_dir`.
    """
    configured = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(configured):
        return Path(configured) / "dlio_torch"
    try:
        return Path.home() / ".cache" / "dlio_torch"
    except RuntimeError:
        return scratch_dir()


def scratch_dir() -> Path:
    """The user's folder below the system's temporary folder, used if the cache folder cannot be written."""
    return Path(tempfile.gettempdir()) / f"dlio_torch-{os.getuid()}"


def load(name: str) -> ctypes.CDLL:
    """Load library ``name``; its functions release the interpreter lock.

    Raises:
        NativeUnavailable: there is no such library and none could be compiled.
    """
    return open_library(name)[0]


@functools.cache
def load_once(name: str) -> ctypes.CDLL | None:
    """Same as :func:`load`, but cached in this process and its forked children; ``None`` without a library."""
    try:
        return load(name)
    except NativeUnavailable:
        return None


def open_library(
    name: str, *, packaged: Path = SOURCE_DIR, caches: Sequence[Path] | None = None
) -> tuple[ctypes.CDLL, NativeLibrary]:
    """Same as :func:`load`, and also returns the file that was loaded.

    A file that the system refuses to load (made for another C library, for example) is passed over;
    in a cache it is compiled again.
    """
    problem = f"native library {name} was not found"
    for library in _candidates(name, packaged, caches):
        try:
            return ctypes.CDLL(str(library.path)), library
        except OSError as error:
            problem = str(error)
    raise NativeUnavailable(problem)


def find(name: str, *, packaged: Path = SOURCE_DIR, caches: Sequence[Path] | None = None) -> NativeLibrary:
    """The file of library ``name``, compiled if needed but not loaded into this process.

    Args:
        name: stem of the C file.
        packaged: folder where a build of the package puts libraries.
        caches: folders for what is compiled, in the order of preference; None: the user's.

    Raises:
        NativeUnavailable: there is no such library and none could be compiled.
    """
    return next(_candidates(name, packaged, caches))


def preloaded(name: str) -> str:
    """Value of ``LD_PRELOAD`` with library ``name`` before the libraries that this process preloads.

    Raises:
        NativeUnavailable: there is no such library, or none in a folder whose path the loader can be told: spaces
            and colons part the names in that variable.
    """
    path = str(find(name).path)
    if _parted(path):
        path = str(find(name, packaged=Path(os.devnull), caches=[scratch_dir() / "native"]).path)
    if _parted(path):
        raise NativeUnavailable(
            f"{path} cannot be preloaded because the path contains a space or colon; set TMPDIR to a path without them"
        )
    before = os.environ.get("LD_PRELOAD", "").replace(":", " ").split()
    return ":".join([path, *(library for library in before if library != path)])


def _parted(path: str) -> bool:
    return any(mark in path for mark in " :\t\n")


def _candidates(name: str, packaged: Path, caches: Sequence[Path] | None) -> Iterator[NativeLibrary]:
    """Yields files to try, best first; a cached file that does not load is compiled again and tried once more."""
    try:
        file_name = library_file_name(name)
    except OSError as error:
        raise NativeUnavailable(f"no native library {name!r}: {error}") from error
    if (packaged / file_name).is_file():
        yield NativeLibrary(name, packaged / file_name, BUILT)
    problem = f"no cache folder can be used for native library {name}"
    for folder in caches if caches is not None else (cache_dir() / "native", scratch_dir() / "native"):
        target = folder / file_name
        try:
            _make_private(folder)
            if _is_own_file(target) and is_sealed(target):
                yield NativeLibrary(name, target, COMPILED)
            compile_library(name, target, sealed=True)
        except OSError as error:  # no compiler, or the folder is read-only or full: the next may do
            problem = str(error)
            continue
        yield NativeLibrary(name, target, COMPILED)
    raise NativeUnavailable(problem)


def _make_private(folder: Path) -> None:
    """Create a cache folder and its parent; raise if another user could have planted or can change it.

    Folders further up may be symbolic links: they are the user's own (``$XDG_CACHE_HOME``, ``$TMPDIR``).

    Raises:
        PermissionError: one of the two is a symbolic link, or belongs to another user, or can be written by one.
        OSError: it cannot be made.
    """
    folder.parent.parent.mkdir(parents=True, exist_ok=True)
    for place in (folder.parent, folder):
        with contextlib.suppress(FileExistsError):
            place.mkdir(mode=0o700)
        status = place.lstat()
        if stat.S_ISLNK(status.st_mode):
            raise PermissionError(f"{place} is a symbolic link, which another user may have planted; remove the link")
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(f"{place} is not a folder; remove the file")
        if not _is_own(status):
            raise PermissionError(f"{place} belongs to another user, or other users can write to it; remove the folder")


def _is_own_file(path: Path) -> bool:
    """Whether the path is a regular file (not a symbolic link) of this user that no other user can write."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISREG(status.st_mode) and _is_own(status)


def _is_own(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022
