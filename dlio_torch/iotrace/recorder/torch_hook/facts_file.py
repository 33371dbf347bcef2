"""The file of facts of a process: JSON lines in a shared mapping, which survive any end of the process."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import threading
from pathlib import Path
from typing import Any

from dlio_torch.iotrace.recorder.process_identity import call_after_fork

_SMALLEST, _LARGEST = 1 << 14, 1 << 22


class FactsFile:
    """JSON lines of this process, in ``rank<r>-<pid>[-n].torch``; the first line creates the file.

    A forked child gets a file of its own.

    Args:
        directory: the events folder.
        rank: rank of this process.
        limit_bytes: size that the file does not exceed.
    """

    def __init__(self, directory: Path, rank: int, limit_bytes: int) -> None:
        self._stem = os.fspath(directory / f"rank{rank}")
        self._limit_bytes = limit_bytes
        self._forget()
        call_after_fork(self._forget)

    def write(self, fact: dict[str, Any]) -> None:
        """Writes one line.

        Raises:
            OSError: the file system has no space, or the limit is reached.
        """
        self.write_line(json.dumps(fact, separators=(",", ":")))

    def write_line(self, line: str) -> None:
        """Writes one line that is JSON; see :meth:`write`."""
        data = line.encode("ascii", "backslashreplace") + b"\n"
        with self._lock:
            if self._position + len(data) > self._end:
                data = self._write_in_parts(data)
            self._map[self._position : self._position + len(data)] = data
            self._position += len(data)

    def _forget(self) -> None:
        self._lock = threading.RLock()
        self._map: Any = bytearray()
        self._position, self._end, self._size = 0, 0, 0
        self._path: str | None = None

    def _write_in_parts(self, data: bytes) -> bytes:
        """Writes what fits, maps more of the file, and returns the rest."""
        descriptor = self._open()
        try:
            size = max(_SMALLEST, min(_LARGEST, self._size))
            size = max(size, -(-len(data) // _SMALLEST) * _SMALLEST)
            if self._size + size > self._limit_bytes:
                raise OSError("the recording limit is reached")
            os.posix_fallocate(descriptor, self._size, size)
            fresh = mmap.mmap(descriptor, size, offset=self._size)
        finally:
            os.close(descriptor)
        fitting = self._end - self._position
        self._map[self._position : self._end] = data[:fitting]
        self._map, self._position, self._end = fresh, 0, size
        self._size += size
        return data[fitting:]

    def _open(self) -> int:
        number = 1
        while self._path is None:
            path = f"{self._stem}-{os.getpid()}{'' if number == 1 else f'-{number}'}.torch"
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
                self._path = path
            number += 1
        return os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
