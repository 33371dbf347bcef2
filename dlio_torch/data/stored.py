"""What bears a name of the data set on disk: a file, or the folder that some libraries write for one."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
from pathlib import Path


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    if path.is_dir():
        return sum(inner.stat().st_size for inner in path.rglob("*") if inner.is_file())
    return path.stat().st_size


def in_the_way(path: Path) -> str | None:
    """What bears a name, in words; ``None`` if nothing does, or nobody can look."""
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            mode = path.stat().st_mode
    except OSError:
        return "a link to nothing" if os.path.islink(path) else None
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
        fsync: have everything on the device before.  The name itself is there when :func:`flush` has flushed the
            folder: many names at the cost of one.
    """
    if fsync:
        for inner in part.rglob("*") if part.is_dir() else ():
            flush(inner)
        flush(part)
    if path.is_dir():  # which nothing can be renamed to
        old = part.with_name(f"{part.name}.old")
        path.rename(old)
        part.rename(path)
        remove(old)
    else:
        part.replace(path)


def flush(path: Path) -> None:
    """Have a file, or the names in a folder, on the device."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def reason(error: OSError | RuntimeError) -> str:
    """Why something could not be written, in the system's words where it is known what the system said."""
    # h5py adds a line of a library's own figures to it.
    number = _errno(error)
    return os.strerror(number) if number else str(error) or type(error).__name__


def way_out(error: OSError | RuntimeError) -> str:
    """What to do about it."""
    full = _errno(error) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return "free space, or choose another dataset.root; finished files are kept" if full else "see dataset.root"


def _errno(error: OSError | RuntimeError) -> int | None:
    if isinstance(error, OSError):
        return error.errno
    told = re.search(r"errno = (\d+)", str(error))  # by HDF5, which has it from the system
    return int(told.group(1)) if told else None
