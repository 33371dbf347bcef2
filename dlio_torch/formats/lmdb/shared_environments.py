"""Open LMDB environments of this process, each open once.

The library permits an environment to be open only once in a process, and no use of it in a process that was forked
afterwards: the child must open it again.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlio_torch.errors import DataError, MissingPackageError
from dlio_torch.formats.core.file_errors import open_error, os_errors
from dlio_torch.formats.lmdb.facts import DATA
from dlio_torch.formats.lmdb.options import LmdbConfig
from dlio_torch.supervision.crashes import report_truncated_maps

_DAMAGED = "the file is damaged or incomplete; generate or fetch it again"


def library() -> Any:
    """Imports the module ``lmdb``.

    Raises:
        MissingPackageError: it is not installed.
    """
    try:
        import lmdb
    except ImportError as error:
        raise MissingPackageError(
            f"dataset.format=lmdb needs lmdb, which is not installed ({error})", hint="pip install 'dlio-torch[lmdb]'"
        ) from error
    return lmdb


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
    users: int = 1


@dataclass
class _EnvironmentTable:
    """Environments by the identity of their file."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    opened: dict[tuple[int, int], _OpenEnvironment] = field(default_factory=dict)


_TABLE = _EnvironmentTable()
os.register_at_fork(after_in_child=lambda: setattr(_TABLE, "lock", threading.Lock()))


class SharedEnvironment:
    """Environment that is open for one reader, and for others of the process at the same time.

    Args:
        path: folder or file.
        options: how it is opened.

    Raises:
        DataError: it is no environment, or is incomplete.
    """

    def __init__(self, path: Path, options: LmdbConfig) -> None:
        self.path = path
        self._options = options
        with os_errors(path):
            status = os.stat(data_file(path))
        self._key = status.st_dev, status.st_ino
        self._opened: _OpenEnvironment | None = self._acquired(status.st_size)

    def _acquired(self, size: int) -> _OpenEnvironment:
        with _TABLE.lock:
            present = _TABLE.opened.get(self._key)
            if present is not None and present.pid == os.getpid():
                present.users += 1
                return present
            if present is not None:
                present.environment.close()  # the parent's
            opened = _OpenEnvironment(_open(self.path, self._options, size), os.getpid())
            _TABLE.opened[self._key] = opened
            return opened

    def get(self) -> Any:
        """The library's environment; opens it again in a process that was forked since.

        Raises:
            DataError: it is not there any more.
        """
        opened = self._opened
        if opened is None:
            raise ValueError(f"{self.path} is closed")
        if opened.pid != os.getpid():
            with os_errors(self.path):
                size = os.stat(data_file(self.path)).st_size
            opened = self._opened = self._acquired(size)
        return opened.environment

    def close(self) -> None:
        """Closes the environment if this was its last reader."""
        opened, self._opened = self._opened, None
        if opened is None or opened.pid != os.getpid():
            return
        with _TABLE.lock:
            opened.users -= 1
            if not opened.users:
                opened.environment.close()
                if _TABLE.opened.get(self._key) is opened:
                    del _TABLE.opened[self._key]


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
