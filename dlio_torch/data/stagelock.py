"""Folders of copies of one run: held by a lock while it lives, removed by the next run where it was killed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
from pathlib import Path

PREFIX = "dlio_torch-"
_LOCK = ".lock"
_MARK = b"dlio_torch: copies of a run\n"
# <data set>-<hash of its place>.<token of the run>
_OWN = re.compile(rf"{PREFIX}.+-[0-9a-f]{{8}}\.[0-9a-f]{{16}}{re.escape(_LOCK)}")
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # a file system without


def lock_of(folder: Path) -> Path:
    """The lock of a folder of copies, beside it."""
    return folder.with_name(folder.name + _LOCK)


def lock(folder: Path) -> int:
    """Hold the lock of a folder, which is not there yet, until this process ends; returns its descriptor.

    Raises:
        OSError: it cannot be written.
    """
    descriptor = os.open(lock_of(folder), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    os.write(descriptor, _MARK)  # from now on it says that the folder is ours
    return descriptor


def remove_left(root: Path) -> None:
    """Remove what killed runs have left: the folders of runs, marked as such, whose lock nobody holds."""
    for found in root.glob(f"{PREFIX}*{_LOCK}"):
        if not _OWN.fullmatch(found.name):
            continue
        with contextlib.suppress(OSError), found.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if file.read(len(_MARK) + 1) == _MARK:
                shutil.rmtree(found.with_name(found.name.removesuffix(_LOCK)), ignore_errors=True)
                found.unlink()
