"""Folders that belong to one process: locked while it lives, removed by a later process if it was killed.

Staged copies of a data set (``stage.dir``) and temporary folders are such folders.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "dlio_torch-"
SHARED_MEMORY = Path("/dev/shm")
"""Folder of named shared memory."""
_LOCK = ".lock"
_MARK = b"dlio_torch: copies of a run\n"
# <data set>-<hash of its place>.<token of the run>, or the token of a temporary folder: short, as sockets lie in it
_OWN = re.compile(rf"{PREFIX}(.+-[0-9a-f]{{8}}\.[0-9a-f]{{16}}|[0-9a-f]{{12}}){re.escape(_LOCK)}")
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # a file system without


def lock_of(folder: Path) -> Path:
    """Path of a folder's lock file, beside the folder."""
    return folder.with_name(folder.name + _LOCK)


def lock(folder: Path) -> int:
    """Lock a folder, before it is created, until this process ends; returns the descriptor of the lock file.

    Raises:
        OSError: the lock file cannot be written.
    """
    while True:
        descriptor = os.open(lock_of(folder), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        os.write(descriptor, _MARK)  # the mark says that the folder is ours
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)  # another process took it for an orphan before it was locked


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """An empty folder below the system's temporary folder, readable by this user alone, removed after the body.

    Orphans of killed processes are removed first.
    """
    root = Path(tempfile.gettempdir())
    remove_orphans(root)
    folder = root / f"{PREFIX}{secrets.token_hex(6)}"
    descriptor = lock(folder)
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        remove(folder)
        os.close(descriptor)


def remove(folder: Path) -> None:
    """Remove a folder and its lock file; whatever cannot be removed stays."""
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        lock_of(folder).unlink()


def remove_orphans(root: Path) -> None:
    """Remove the orphaned folders in ``root``."""
    for folder in orphans(root):
        with contextlib.suppress(OSError), lock_of(folder).open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_ours(file.read(len(_MARK) + 1), folder):
                remove(folder)


def orphans(root: Path) -> list[Path]:
    """Orphaned folders in ``root``: they carry this tool's mark, and no living process locks them.

    A lock file without its folder counts as well.
    """
    folders = []
    for path in sorted(root.glob(f"{PREFIX}*{_LOCK}")):
        if not _OWN.fullmatch(path.name) or path.is_symlink() or not _is_mine(path):
            continue
        folder = path.with_name(path.name.removesuffix(_LOCK))
        if os.path.lexists(folder) and (folder.is_symlink() or not _is_mine(folder)):
            continue
        with contextlib.suppress(OSError), path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_ours(file.read(len(_MARK) + 1), folder):
                folders.append(folder)
    return folders


def _is_mine(path: Path) -> bool:
    with contextlib.suppress(OSError):
        info = path.lstat()
        return info.st_uid == os.geteuid() and (stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode))
    return False


def _is_ours(content: bytes, folder: Path) -> bool:
    # The mark is written before the folder is made.
    return content == _MARK or (not content and not folder.exists())
