"""Atomic files: a file is written under a temporary name and renamed when it is complete.

The temporary name lies in the same folder, so that the rename moves no data, and tells who writes the file:

- ``.NAME.RANDOM.tmp`` (:func:`replaced`): any process; locked while it is written, so that an orphan can be told.
- ``.NAME.PID.part`` (:func:`part_name`): a file of data or a staged copy, one writer a process.
- ``.NAME.tmp`` (:func:`temporary_name`): a file that one process of the run writes.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

from dlio_torch.syserrors import refused

PART = ".part"
"""Suffix of the temporary name of a data file."""


def part_name(path: Path) -> Path:
    """Temporary name of a data file, different for each writing process."""
    return path.with_name(f".{path.name}.{os.getpid()}{PART}")


def temporary_name(path: Path) -> Path:
    """Temporary name of a file that only one process writes."""
    return path.with_name(f".{path.name}.tmp")


@contextlib.contextmanager
def renamed(temporary: Path, path: Path) -> Iterator[Path]:
    """Context manager that renames ``temporary``, which the body writes, to ``path``, or removes it after an exception.

    Args:
        temporary: in the folder of ``path``.
        path: the final name; a file that bears it is replaced.

    Raises:
        OSError: the file cannot be renamed.
    """
    try:
        yield temporary
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def target(path: Path, *, rename: bool) -> AbstractContextManager[Path]:
    """Context manager that gives the name under which a file is written.

    Args:
        path: the final name.
        rename: whether the file gets it only when it is complete, see :func:`renamed`.
    """
    return renamed(temporary_name(path), path) if rename else contextlib.nullcontext(path)


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[IO[bytes]]:
    """Opens a new data file that gets its name when it is complete and on the device.

    Raises:
        OSError: the file cannot be written.
    """
    with renamed(part_name(path), path) as part, part.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def write_private(path: Path, text: str) -> None:
    """Write a file in the user's cache folder, which is created if needed; only this user can read it; not flushed.

    Args:
        path: ``<kind>-<digest>.json``.
        text: the content.

    Raises:
        OSError: the file cannot be written.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    prefix = f".{path.name.partition('-')[0]}-"
    descriptor, name = tempfile.mkstemp(prefix=prefix, suffix=".tmp", dir=path.parent)
    with renamed(Path(name), path), os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def fsync_path(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the device.

    Raises:
        OSError: the system refuses it.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[IO[bytes]]:
    """Opens a new file that is flushed and replaces ``path`` after the body; an exception leaves ``path`` unchanged.

    Orphans of killed writers of ``path`` are removed first.

    Raises:
        DlioError: the file cannot be written (see :mod:`dlio_torch.syserrors`).
    """
    temporary: str | None = None
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            remove_unfinished(path)
            descriptor, temporary = _temporary(path)
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(file.fileno(), 0o666 & ~_umask())
                yield file
                file.flush()
                os.fsync(file.fileno())
                os.replace(temporary, path)  # while it is locked
                temporary = None
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def replace_text(path: Path, text: str) -> None:
    """Writes a whole file of UTF-8 text, as :func:`replaced` does."""
    with replaced(path) as file:
        file.write(text.encode("utf-8"))


def remove_unfinished(path: Path) -> None:
    """Remove temporary files that killed writers of ``path`` left; files of living writers are locked and stay."""
    for orphan in unfinished(path.parent, path.name):
        with contextlib.suppress(OSError):
            orphan.unlink()


def unfinished(folder: Path, name: str = "*") -> list[Path]:
    """Temporary files of :func:`replaced` in a folder whose writers were killed.

    Args:
        folder: the folder.
        name: name of the file that was written; "*": any.
    """
    orphans = []
    pattern = name if name == "*" else glob.escape(name)
    for path in sorted(folder.glob(f".{pattern}.????????.tmp")):
        with contextlib.suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            orphans.append(path)
    return orphans


def _temporary(path: Path) -> tuple[int, str]:
    """Creates a temporary file next to ``path``, locked while it is open; returns its descriptor and name."""
    while True:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        with contextlib.suppress(OSError):  # a file system without locks: no other process gets one either
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        if os.fstat(descriptor).st_nlink:
            return descriptor, name
        os.close(descriptor)  # another process took it for an orphan before it was locked


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns an OSError into the one-line error that the user sees.

    Raises:
        DlioError: ``path`` cannot be written (see :mod:`dlio_torch.syserrors`).
    """
    try:
        yield
    except OSError as error:
        raise refused(f"{path} cannot be written", error, elsewhere="set output.root") from error


def _umask() -> int:
    # The mask can only be read by setting it, which other threads would see; /proc tells it too.
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("Umask:"):
                    return int(line.split()[1], 8)
    except OSError:
        pass
    return 0o022
