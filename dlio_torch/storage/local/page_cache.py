"""Share of a file that lies in the page cache, by ``mincore`` or by sampling."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

PROBES = 256
_WINDOW = 1 << 28  # bytes of a file for one mincore call
_LOWEST_BIT = bytes(number & 1 for number in range(256))  # the others mean nothing
_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
]  # fmt: skip
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]


@dataclass
class _Residency:
    """Cached pages of one open file; the descriptor is closed after the pages that sampling read are evicted.

    Attributes:
        descriptor: of the file.
        count: pages that were examined.
        missed: those of them that were not cached.
        probed: offsets of pages that sampling itself made the system read.
        size: bytes of the file.
    """

    descriptor: int
    count: int
    missed: int
    probed: list[int]
    size: int = 0

    @property
    def share(self) -> float:
        """Share of the pages that were cached."""
        return 1.0 - self.missed / self.count


def cached_share(path: Path | str, offset: int = 0, length: int | None = None, probes: int = PROBES) -> float | None:
    """Estimated share (0 to 1) of a part of a file that lies in the page cache, None if it cannot be measured.

    ``mincore`` is exact and reads nothing, but is true only for those who own the file or may write to it.  For others
    one byte at a random offset of each of ``probes`` equal extents is read with ``preadv2(RWF_NOWAIT)``, which fails
    with EAGAIN if the page is not cached; the standard error is at most ``0.5 / sqrt(probes)``.  A miss makes Linux
    read that page, without readahead; it is evicted at once, so the estimate leaves the cache nearly as it was.

    Args:
        path: an existing file.
        offset: first byte of the part.
        length: bytes of the part; to the end of the file by default.
        probes: offsets that are tried, fewer for a part of fewer pages.
    """
    [residency] = _shares([(path, offset, length)], probes)
    return None if residency is None else residency[0]


def cached_shares(paths: Sequence[Path | str], probes: int = PROBES) -> list[tuple[float, int] | None]:
    """:func:`cached_share` and bytes of each file; every file is opened once and stays open during the call."""
    return _shares([(path, 0, None) for path in paths], probes)


def _shares(parts: Sequence[tuple[Path | str, int, int | None]], probes: int) -> list[tuple[float, int] | None]:
    residencies: list[_Residency | None] = []
    try:
        for path, offset, length in parts:
            residencies.append(_residency(path, offset, length, probes))
        for file in filter(None, residencies):
            for offset in file.probed:
                with contextlib.suppress(OSError):
                    os.pread(file.descriptor, 1, offset)  # a page that is still being read cannot be dropped
                os.posix_fadvise(file.descriptor, offset, mmap.PAGESIZE, os.POSIX_FADV_DONTNEED)
        return [None if file is None else (file.share, file.size) for file in residencies]
    finally:
        for file in filter(None, residencies):
            os.close(file.descriptor)


def _residency(path: Path | str, offset: int, length: int | None, probes: int) -> _Residency | None:
    flag = getattr(os, "RWF_NOWAIT", None)
    if flag is None:
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, descriptor)
        status = os.fstat(descriptor)
        end = status.st_size if length is None else min(status.st_size, offset + length)
        if end <= offset:
            return None
        try:
            # Reads nothing.  A file system that refuses the flag has a cache of its own, which mincore does not see.
            os.preadv(descriptor, [bytearray(1)], status.st_size, flag)
            if status.st_uid == os.geteuid() or os.geteuid() == 0 or os.access(path, os.W_OK):
                residency = _resident(descriptor, offset, end)
            else:
                residency = _probed(descriptor, offset, end, probes, flag)
        except OSError:
            return None
        residency.size = status.st_size
        stack.pop_all()
        return residency


def _resident(descriptor: int, offset: int, end: int) -> _Residency:
    """Measures cached pages by ``mincore`` on a mapping that is never accessed."""
    count = missed = 0
    for first, size in _windows(offset, end):
        pages = -(-size // mmap.PAGESIZE)
        flags = ctypes.create_string_buffer(pages)
        address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, first)
        if address == _FAILED:
            raise OSError(ctypes.get_errno(), "mmap")
        try:
            if _libc.mincore(address, size, flags):
                raise OSError(ctypes.get_errno(), "mincore")
        finally:
            _libc.munmap(address, size)
        count += pages
        missed += pages - flags.raw.translate(_LOWEST_BIT).count(1)
    return _Residency(descriptor, count, missed, [])


def _windows(offset: int, end: int) -> Iterator[tuple[int, int]]:
    """Offset and length of page-aligned extents."""
    for first in range(offset - offset % mmap.PAGESIZE, end, _WINDOW):
        yield first, min(_WINDOW, end - first)


def _probed(descriptor: int, offset: int, end: int, probes: int, flag: int) -> _Residency:
    """Measures cached pages by sampling: non-blocking reads at some offsets."""
    # "Random" turns readahead off, for this open file alone.
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    count = min(probes, -(-(end - offset) // mmap.PAGESIZE))
    byte, missed = bytearray(1), []
    # Other places at each call: a probe of a missing page may have left it cached.
    pick = random.Random()
    for number in range(count):
        first = offset + (end - offset) * number // count
        last = offset + (end - offset) * (number + 1) // count
        position = pick.randrange(first, last)
        try:
            os.preadv(descriptor, [byte], position, flag)
        except BlockingIOError:
            missed.append(position - position % mmap.PAGESIZE)
    return _Residency(descriptor, count, len(missed), missed)
