"""Files of a data set on disk, and folders that some libraries write as one file: size, kind, rename, removal."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from pathlib import Path

from dlio_torch.files.atomic_file import fsync_path
from dlio_torch.syserrors import errno_of


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        return sum(inner.stat().st_size for inner in path.rglob("*") if inner.is_file())
    return status.st_size


def kind_of(path: Path) -> str | None:
    """Kind of file at a path, in words; ``None`` if nothing is there, or it cannot be seen."""
    mode = 0
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            mode = path.stat().st_mode
    except OSError:
        return "a broken symbolic link" if mode else None
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFREG: "a file", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def remove(path: Path) -> None:
    """Remove a file, or a folder with its content; a missing path is no error."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def rename_over(part: Path, path: Path, *, fsync: bool) -> None:
    """Rename a complete file or folder to ``path``, so that the name never belongs to an incomplete file or folder.

    Args:
        part: a file or folder in the folder of ``path``, complete.
        path: the new name.  A file replaces a file or folder of this name; a folder replaces only a folder.
        fsync: flush the content to the device first.  The name is durable after
            :func:`~dlio_torch.files.atomic_file.fsync_path` of the folder: one flush for many names.

    Raises:
        OSError: the system refuses the rename; NotADirectoryError for a folder over a plain file.
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


def system_error(error: BaseException, folder: Path, size: float) -> BaseException:
    """The system's error for writing ``size`` bytes in ``folder``, which a library has hidden.

    netCDF and Silo only report that something failed, and netCDF reports each file that it cannot create as a lack of
    rights.  A temporary file of that size fails with the error that they met.

    Returns:
        The error of the temporary file; ``error`` itself if that file succeeds, or if ``error`` tells the cause.
    """
    if errno_of(error) not in (None, errno.EACCES):
        return error
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, max(1, int(size)))
    except OSError as refusal:
        return error if refusal.errno in (errno.EOPNOTSUPP, errno.EINVAL) else refusal
    return error
