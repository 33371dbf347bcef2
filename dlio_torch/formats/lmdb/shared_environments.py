"""Open LMDB environments of this process, each open once.

The library permits an environment to be open only once in a process, and no use of it in a process that was forked
afterwards: the child must open it again.
"""

from __future__ import annotations

import os
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlio_torch.errors import DataError
from dlio_torch.formats.core.file_errors import open_error, os_errors
from dlio_torch.formats.core.libraries import import_library
from dlio_torch.formats.core.library_lock import library_lock
from dlio_torch.formats.lmdb.facts import DATA
from dlio_torch.formats.lmdb.options import LmdbConfig
from dlio_torch.supervision.crashes import report_truncated_maps

_DAMAGED = "the file is damaged or incomplete; generate or fetch it again"


def library() -> Any:
    """Imports the module ``lmdb``.

    Raises:
        MissingPackageError: it is not installed.
    """
    return import_library("lmdb", "dataset.format=lmdb needs lmdb", "lmdb")


def data_file(path: Path) -> Path:
    """The file with the data of an environment, which is a folder or that file itself."""
    return path / DATA if path.is_dir() else path


@dataclass
class _OpenEnvironment:
    """An open environment.

    Attributes:
        environment: the library's object.
        pid: of the process that opened it.
        users: number of readers.
    """

    environment: Any
    pid: int
    users: int = 0


_LOCK = library_lock()  # of the table and of its environments
_OPENED: dict[tuple[int, int], _OpenEnvironment] = {}  # by the identity of their file


class SharedEnvironment:
    """Environment that is open for one reader, and for others of the process at the same time.

    It is closed with its last reader, at the latest when nobody refers to that one.

    Args:
        path: folder or file.
        options: how it is opened.

    Raises:
        DataError: it is no environment, or is incomplete.
    """

    def __init__(self, path: Path, options: LmdbConfig) -> None:
        self.path = path
        self._options = options
        status = self._status()
        self._key = status.st_dev, status.st_ino
        self._opened: _OpenEnvironment
        self._lease: weakref.finalize[..., SharedEnvironment] | None = None
        self._acquire(status.st_size)

    def _status(self) -> os.stat_result:
        with os_errors(self.path):
            return os.stat(data_file(self.path))

    def _acquire(self, size: int) -> None:
        """Takes part in the open environment of this process, which is opened if there is none."""
        with _LOCK:
            lease = self._lease
            if lease is not None and _is_ours(self._opened):
                return  # another thread was first
            while True:
                opened = self._present(size)
                opened.users += 1
                if _OPENED.get(self._key) is opened:  # else its last reader was collected just before
                    break
            self._opened = opened
            self._lease = weakref.finalize(self, _release, self._key, opened)
            self._lease.atexit = False  # a thread may still read
            if lease is not None:
                lease.detach()  # that of the process before the fork

    def _present(self, size: int) -> _OpenEnvironment:
        """The entry of the table, which is made if there is none of this process."""
        opened = _OPENED.get(self._key)
        if opened is not None and _is_ours(opened):
            return opened
        if opened is not None:
            opened.environment.close()  # the parent's
        opened = _OPENED[self._key] = _OpenEnvironment(_open(self.path, self._options, size), os.getpid())
        return opened

    def get(self) -> Any:
        """The library's environment; opens it again in a process that was forked since.

        Raises:
            DataError: it is not there any more.
        """
        if self._lease is None or not self._lease.alive:
            raise ValueError(f"{self.path} is closed")
        if not _is_ours(self._opened):
            self._acquire(self._status().st_size)
        return self._opened.environment

    def close(self) -> None:
        """Closes the environment if this was its last reader."""
        if self._lease is not None:
            self._lease()


def _is_ours(opened: _OpenEnvironment) -> bool:
    """Whether this process opened an environment, and not the one that it was forked from."""
    return opened.pid == os.getpid()


def _release(key: tuple[int, int], opened: _OpenEnvironment) -> None:
    """Closes an environment whose last reader goes."""
    if not _is_ours(opened):
        return
    with _LOCK:
        opened.users -= 1
        if not opened.users:
            opened.environment.close()
            if _OPENED.get(key) is opened:
                del _OPENED[key]


def _open(path: Path, options: LmdbConfig, size: int) -> Any:
    """Opens an environment as its users do, and checks that the file has all pages of its header."""
    lmdb = library()
    report_truncated_maps()
    if not size:
        raise DataError(f"{data_file(path)} is empty", hint=_DAMAGED)
    try:
        environment = lmdb.open(
            str(path),
            subdir=path.is_dir(),
            readonly=True,
            lock=options.lock,
            readahead=options.readahead,
            meminit=False,
            max_readers=options.max_readers,
        )
        try:
            needed = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
        except BaseException:
            environment.close()
            raise
    except (lmdb.Error, OSError, ValueError) as error:
        raise open_error(path, error) from error
    if size < needed:
        environment.close()
        raise DataError(f"{path} is incomplete: it has {size} bytes, but its header describes {needed}", hint=_DAMAGED)
    return environment
