"""Replay of recorded requests on the files of a folder, by the recorded system calls in the recorded order.

An open that the same sample closes again is always repeated.  Any other open leaves the file open, as a cache of open
files does, and is left out where this process has the file open already; a close of a file that is not open is left
out as well.  A request on a file that is not open opens it first, by its recorded opening requests where there are
any.  A read at the position of the descriptor is preceded by a seek where the descriptor is elsewhere, because samples
come in another order than recorded.
"""

from __future__ import annotations

import mmap
import os
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.core.buffered_file import refusing
from dlio_torch.formats.core.file_errors import open_error
from dlio_torch.formats.extents.folder_plan import file_path
from dlio_torch.formats.extents.requests import READING, Ints, RequestCall, Requests
from dlio_torch.supervision.crashes import report_truncated_maps

_Handler = Callable[[int, int, int, memoryview], None]
_READING = frozenset(map(int, READING))
_OPEN, _CLOSE = int(RequestCall.OPEN), int(RequestCall.CLOSE)  # comparing plain numbers is faster
_NO_BYTES = memoryview(bytearray())


@dataclass
class _Descriptor:
    """Open descriptor of a file, and its position in bytes."""

    number: int
    position: int = 0


@dataclass(frozen=True)
class _Mapping:
    """Mapped bytes of a file, from ``first`` on."""

    first: int
    memory: mmap.mmap


class CallReplay:
    """Replay of requests by one thread; keeps descriptors and maps of the files between samples.

    Args:
        folder: holds the files.
        requests: of the folder.
    """

    def __init__(self, folder: Path, requests: Requests) -> None:
        self._folder = folder
        columns = requests.request_call, requests.request_file, requests.request_offset, requests.request_bytes
        self._rows: Ints = np.stack(columns, axis=1, dtype=np.int64)
        self._file_first = requests.file_first
        self._sizes = requests.file_bytes
        self._open: dict[int, list[_Descriptor]] = defaultdict(list)
        self._maps: dict[int, list[_Mapping]] = defaultdict(list)
        self._opening: set[int] = set()  # files whose opening requests are under way
        self._handlers: dict[int, _Handler] = {
            RequestCall.CLOSE: self._close_file, RequestCall.SEEK: self._seek, RequestCall.READ: self._read,
            RequestCall.PREAD: self._pread, RequestCall.READV: self._readv, RequestCall.PREADV: self._preadv,
            RequestCall.FSTAT: self._fstat, RequestCall.STAT: self._stat, RequestCall.MMAP: self._map,
            RequestCall.TOUCH: self._touch, RequestCall.MUNMAP: self._unmap,
        }  # fmt: skip

    def run(self, low: int, high: int, into: memoryview | None = None) -> None:
        """Makes the requests ``low`` to ``high - 1``.

        Args:
            low: first request.
            high: the one behind the last.
            into: receives the bytes that they read, one request after another; ``None``: nobody needs them.

        Raises:
            DataError: a file is missing, damaged or shorter than recorded.
        """
        rows = self._rows[low:high].tolist()
        kept_open = _never_closed(rows)
        done, file = 0, 0
        try:
            for number, (call, file, offset, size) in enumerate(rows):
                if call == _OPEN:
                    if number not in kept_open or not self._open[file]:
                        self._open_file(file)
                    continue
                if call not in _READING:
                    self._handlers[call](file, offset, size, _NO_BYTES)
                    continue
                memory = memoryview(bytearray(size)) if into is None else into[done : done + size]
                self._handlers[call](file, offset, size, memory)
                done += size
        except OSError as error:
            raise open_error(self._path(file), error) from error

    def close(self) -> None:
        """Closes all files."""
        for mappings in self._maps.values():
            while mappings:
                mappings.pop().memory.close()
        for descriptors in self._open.values():
            while descriptors:
                os.close(descriptors.pop().number)

    def _path(self, file: int) -> Path:
        return self._folder / file_path(file)

    # --- descriptors ---

    def _open_file(self, file: int) -> _Descriptor:
        descriptor = _Descriptor(os.open(self._path(file), os.O_RDONLY | os.O_CLOEXEC))
        self._open[file].append(descriptor)
        return descriptor

    def _descriptor(self, file: int) -> _Descriptor:
        """The descriptor of a file that was opened last; opens a file that is not open."""
        if self._open[file]:
            return self._open[file][-1]
        low, high = self._file_first[file : file + 2].tolist()
        if low < high and file not in self._opening:
            self._opening.add(file)
            try:
                self.run(low, high)
            finally:
                self._opening.discard(file)
        return self._open[file][-1] if self._open[file] else self._open_file(file)

    def _close_file(self, file: int, offset: int, size: int, memory: memoryview) -> None:
        if self._open[file]:
            os.close(self._open[file].pop().number)

    def _seek(self, file: int, offset: int, size: int, memory: memoryview) -> None:
        descriptor = self._descriptor(file)
        descriptor.position = os.lseek(descriptor.number, offset, os.SEEK_SET)

    def _fstat(self, file: int, offset: int, size: int, memory: memoryview) -> None:
        os.fstat(self._descriptor(file).number)

    def _stat(self, file: int, offset: int, size: int, memory: memoryview) -> None:
        os.stat(self._path(file))

    # --- reads ---

    def _read(self, file: int, offset: int, size: int, memory: memoryview) -> None:
        descriptor = self._positioned(file, offset)
        content = os.read(descriptor.number, self._wanted(file, offset, size))
        descriptor.position += len(content)
        if len(content) < size:
            raise self._short(file, offset, size, len(content))
        memory[:] = content[:size]

    def _pread(self, file: int, offset: int, size: int, memory: memoryview) -> None:
        content = os.pread(self._descriptor(file).number, self._wanted(file, offset, size), offset)
        if len(content) < size:
            raise self._short(file, offset, size, len(content))
        memory[:] = content[:size]

    def _readv(self, file: int, offset: int, size: int, memory: memoryview) -> None:
        descriptor = self._positioned(file, offset)
        count = os.readv(descriptor.number, [memory])
        descriptor.position += count
        if count < size:
            raise self._short(file, offset, size, count)

    def _preadv(self, file: int, offset: int, size: int, memory: memoryview) -> None:
        count = os.preadv(self._descriptor(file).number, [memory], offset)
        if count < size:
            raise self._short(file, offset, size, count)

    def _positioned(self, file: int, offset: int) -> _Descriptor:
        descriptor = self._descriptor(file)
        if descriptor.position != offset:
            descriptor.position = os.lseek(descriptor.number, offset, os.SEEK_SET)
        return descriptor

    def _wanted(self, file: int, offset: int, size: int) -> int:
        """Bytes that a read asks for: at the end of a file, where it gets none, one."""
        return size or int(offset == self._sizes[file])

    def _short(self, file: int, offset: int, size: int, count: int) -> DataError:
        return DataError(
            f"{self._path(file)} ends at byte {offset + count}, but {size} bytes from byte {offset} on are read",
            hint="the file was replaced or truncated; generate or fetch the data again",
        )

    # --- maps ---

    def _map(self, file: int, offset: int, size: int, memory: memoryview) -> None:
        report_truncated_maps()
        descriptor = self._descriptor(file).number
        with refusing(self._path(file)):  # ValueError: the file is shorter
            mapped = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ, offset=offset)
        self._maps[file].append(_Mapping(offset, mapped))

    def _unmap(self, file: int, offset: int, size: int, memory: memoryview) -> None:
        if self._maps[file]:
            self._maps[file].pop().memory.close()

    def _touch(self, file: int, offset: int, size: int, memory: memoryview) -> None:
        mapping = self._mapping(file, offset, size)
        if mapping is None:
            self._map(file, 0, int(self._sizes[file]), memory)
            mapping = self._maps[file][-1]
        low = offset - mapping.first
        with memoryview(mapping.memory) as mapped:
            memory[:] = mapped[low : low + size]

    def _mapping(self, file: int, offset: int, size: int) -> _Mapping | None:
        """The last mapping of a file that has these bytes."""
        for mapping in reversed(self._maps[file]):
            if mapping.first <= offset and offset + size <= mapping.first + len(mapping.memory):
                return mapping
        return None


def _never_closed(rows: list[list[int]]) -> set[int]:
    """Positions of the opens that no later close among these requests closes."""
    waiting: dict[int, list[int]] = {}
    for number, (call, file, _, _) in enumerate(rows):
        if call == _OPEN:
            waiting.setdefault(file, []).append(number)
        elif call == _CLOSE and waiting.get(file):
            waiting[file].pop()
    return {number for numbers in waiting.values() for number in numbers}
