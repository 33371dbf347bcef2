"""The recording budget of a rank: a small file, mapped by all its processes, that limits their recordings.

The trainer makes ``rank<r>.budget`` in the events folder before anything is recorded.  A limit for each process would
bound nothing: workers that live for one epoch are new processes with new files, epoch after epoch.  Therefore every
process takes its bytes and files from the budget, both :mod:`dlio_torch.iotrace.recorder.spans` and the preloaded
library (``native/posix_trace_budget.h``).  The first process whose request exceeds the budget stores the time.  From
then on no process records, and the reader leaves out later records.  The detail of a rank ends at one moment, for all
its processes.

Without this file nothing is bounded.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from dlio_torch.files.atomic_file import renamed, temporary_name
from dlio_torch.iotrace.events.budget_file import LAYOUT, MAGIC, budget_path
from dlio_torch.syserrors import refused

_NUMBER = struct.Struct("<q")
_LIMIT_BYTES, _LIMIT_FILES, _FULL, _BYTES, _FILES, _OTHER_BYTES, _OTHER_FILES = range(8, 64, 8)


def make_budget(directory: Path, rank: int, limit_bytes: int, limit_files: int) -> None:
    """Writes the budget file of a rank; must be called before any of its processes records.

    Raises:
        DlioError: the file cannot be written (see :mod:`dlio_torch.syserrors`).
    """
    path = budget_path(directory, rank)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with renamed(temporary_name(path), path) as temporary:
            temporary.write_bytes(LAYOUT.pack(MAGIC, limit_bytes, limit_files, 0, 0, 0, 0, 0))
    except OSError as error:
        raise refused(
            f"the budget file {path} cannot be created", error, elsewhere="set output.root to another folder"
        ) from error


class Budget:
    """Access of one process to its rank's budget; its threads call it under a lock.

    Args:
        directory: the events folder.
        rank: the rank; without its file nothing is bounded.
    """

    def __init__(self, directory: Path, rank: int) -> None:
        self._map: mmap.mmap | None = None
        self._descriptor = -1
        with contextlib.suppress(OSError, ValueError):
            self._descriptor = os.open(budget_path(directory, rank), os.O_RDWR | os.O_CLOEXEC)
            self._map = mmap.mmap(self._descriptor, LAYOUT.size)
        if self._map is not None and self._map[:8] != MAGIC:
            self._map = None

    @property
    def full_ns(self) -> int:
        """Time at which the budget was exhausted, monotonic ns; 0 if it is not exhausted."""
        return 0 if self._map is None else self._get(_FULL)

    def take(self, size: int, files: int = 0) -> bool:
        """Takes bytes and files from the budget; if they exceed it, returns False and ends the rank's recording."""
        if self._map is None:
            return True
        with self._locked():
            if self._get(_FULL):
                return False
            taken, number = self._get(_BYTES) + size, self._get(_FILES) + files
            over = taken + self._get(_OTHER_BYTES) > self._get(_LIMIT_BYTES)
            if over or number + self._get(_OTHER_FILES) > self._get(_LIMIT_FILES):
                self._put(_FULL, time.perf_counter_ns())
                return False
            self._put(_BYTES, taken)
            self._put(_FILES, number)
            return True

    def close(self) -> None:
        """Closes the budget file."""
        self._map = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        # Where the file system has no locks, a race may let two processes take the same bytes: no harm.
        locked = False
        with contextlib.suppress(OSError):
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
            locked = True
        try:
            yield
        finally:
            if locked:
                fcntl.lockf(self._descriptor, fcntl.LOCK_UN)

    def _get(self, position: int) -> int:
        assert self._map is not None
        value: int = _NUMBER.unpack_from(self._map, position)[0]
        return value

    def _put(self, position: int, value: int) -> None:
        assert self._map is not None
        _NUMBER.pack_into(self._map, position, value)
