"""What bears a name of the data set on disk: a file, or the folder that some libraries write for one."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from pathlib import Path

from dlio_torch.storage.local.atomic_file import fsync_path
from dlio_torch.syserrors import errno_of


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        return sum(inner.stat().st_size for inner in path.rglob("*") if inner.is_file())
    return status.st_size


def in_the_way(path: Path) -> str | None:
    """What bears a name, in words; ``None`` if nothing does, or nobody can look."""
    mode = 0
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            mode = path.stat().st_mode
    except OSError:
        return "a link to nothing" if mode else None
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFREG: "a file", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def remove(path: Path) -> None:
    """Remove a file, or a folder and what is in it; one that is not there is no error."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def give_name(part: Path, path: Path, *, fsync: bool) -> None:
    """Let what was written as ``part`` take the place of ``path``; nothing incomplete ever bears that name.

    Args:
        part: beside ``path``, complete.
        path: the name; what has it goes.
        fsync: have everything on the device before.  The name itself is there when
            :func:`~dlio_torch.storage.local.atomic_file.fsync_path` has flushed the folder: many names at the cost
            of one.
    """
    if fsync:
        for inner in part.rglob("*") if part.is_dir() else ():
            fsync_path(inner)
        fsync_path(part)
    try:
        part.replace(path)
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST) or not path.is_dir():
            raise
        old = part.with_name(f"{part.name}.old")  # nothing can be renamed to a folder that holds something
        path.rename(old)
        part.rename(path)
        remove(old)


def true_error(error: BaseException, folder: Path, size: float) -> BaseException:
    """What the system says to a file of ``size`` bytes in ``folder``, where the library that failed keeps it to itself.

    netCDF and Silo tell that something went wrong, and netCDF takes all that it cannot make for a lack of rights.
    """
    if errno_of(error) not in (None, errno.EACCES):
        return error
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, max(1, int(size)))
    except OSError as refusal:
        return error if refusal.errno in (errno.EOPNOTSUPP, errno.EINVAL) else refusal
    return error
