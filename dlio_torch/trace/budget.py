"""How much the processes of a rank may record together: one small file that all of them map.

``rank<r>.budget`` lies in the events folder, made by the trainer before anything is recorded.  Workers that live for an
epoch only are new processes with new files, epoch after epoch, so what one process may write bounds nothing: every
process takes its bytes and files from here, :mod:`dlio_torch.trace.spans` and the preloaded library
(``native/posix_trace_budget.h``) alike.  The first that gets nothing writes down when that was; from then on nobody
records, and what still comes in from records that were under way is left out by the reader.  So the detail of a rank
ends at one moment, for all its processes.

Where there is no such file, nothing is bounded.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dlio_torch.storage.local.atomic_file import renamed, temporary_name
from dlio_torch.syserrors import refused

MAGIC = b"DLIOBUDG"
# magic, most bytes, most files, time when it was used up (monotonic ns, 0: not); taken by spans: bytes, files; taken by
# recorded calls: bytes, files.  Spans add under a lock, calls by atomic instructions: so each has its own.
_LAYOUT = struct.Struct("<8sqqqqqqq")
_NUMBER = struct.Struct("<q")
_FULL, _BYTES, _FILES, _OTHER_BYTES, _OTHER_FILES = 24, 32, 40, 48, 56
_SUFFIX = ".budget"


@dataclass(frozen=True)
class Spent:
    """What a budget says.

    Attributes:
        rank: whose it is.
        limit_bytes: most bytes.
        limit_files: most files.
        full_ns: when it was used up, by the monotonic clock of that rank's host; 0 where it was not.
        bytes: taken.
        files: taken.
    """

    rank: int
    limit_bytes: int
    limit_files: int
    full_ns: int
    bytes: int
    files: int


def make(directory: Path, rank: int, limit_bytes: int, limit_files: int) -> None:
    """Bound what the processes of a rank record; do this before any of them does.

    Raises:
        DlioError: the file cannot be made (see :mod:`dlio_torch.syserrors`).
    """
    path = _path(directory, rank)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with renamed(temporary_name(path), path) as temporary:
            temporary.write_bytes(_LAYOUT.pack(MAGIC, limit_bytes, limit_files, 0, 0, 0, 0, 0))
    except OSError as error:
        raise refused(f"{path} cannot be made", error, elsewhere="set output.root") from error


def read(path: Path) -> Spent | None:
    """What a budget file says; ``None`` where it is damaged or of another kind.

    Raises:
        OSError: it cannot be read.
    """
    content = path.read_bytes()
    number = path.name[len("rank") : -len(_SUFFIX)]
    if len(content) < _LAYOUT.size or content[:8] != MAGIC or not number.isdecimal():
        return None
    _, limit_bytes, limit_files, full_ns, spans, span_files, calls, call_files = _LAYOUT.unpack_from(content)
    return Spent(int(number), limit_bytes, limit_files, full_ns, spans + calls, span_files + call_files)


def files(directory: Path, rank: int | None = None) -> list[Path]:
    """The budget files of an events folder."""
    return sorted(directory.glob("rank*.budget" if rank is None else f"rank{rank}.budget"))


class Budget:
    """The budget of a rank, as one process uses it; threads of it under a lock of their own.

    Args:
        directory: the events folder.
        rank: whose budget; without its file nothing is bounded.
    """

    def __init__(self, directory: Path, rank: int) -> None:
        self._map: mmap.mmap | None = None
        self._descriptor = -1
        with contextlib.suppress(OSError, ValueError):
            self._descriptor = os.open(_path(directory, rank), os.O_RDWR | os.O_CLOEXEC)
            self._map = mmap.mmap(self._descriptor, _LAYOUT.size)
        if self._map is not None and self._map[:8] != MAGIC:
            self._map = None

    @property
    def full_ns(self) -> int:
        """When it was used up; 0 where it was not."""
        return 0 if self._map is None else self._get(_FULL)

    def take(self, size: int, files: int = 0) -> bool:
        """Take bytes and files; False, and everybody's recording is over, where there are not so many left."""
        if self._map is None:
            return True
        with self._locked():
            if self._get(_FULL):
                return False
            taken, number = self._get(_BYTES) + size, self._get(_FILES) + files
            over = taken + self._get(_OTHER_BYTES) > self._get(8)
            if over or number + self._get(_OTHER_FILES) > self._get(16):
                self._put(_FULL, time.perf_counter_ns())
                return False
            self._put(_BYTES, taken)
            self._put(_FILES, number)
            return True

    def close(self) -> None:
        """Let go of the file."""
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

    def _get(self, at: int) -> int:
        assert self._map is not None
        found: int = _NUMBER.unpack_from(self._map, at)[0]
        return found

    def _put(self, at: int, value: int) -> None:
        assert self._map is not None
        _NUMBER.pack_into(self._map, at, value)


def _path(directory: Path, rank: int) -> Path:
    return directory / f"rank{rank}{_SUFFIX}"
