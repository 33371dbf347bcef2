"""How much of a file lies in the page cache."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PROBES = 256
_SETTLE_S = 0.01


@dataclass
class _Look:
    """What was found in one file; its descriptor stays open until the pages that were missed are given back."""

    descriptor: int
    count: int
    missed: list[int]


def cached_share(path: Path | str, offset: int = 0, length: int | None = None, probes: int = PROBES) -> float | None:
    """Estimated share (0 to 1) of a part of a file that lies in the page cache, None where it cannot be told.

    Reads one byte at a random place of each of ``probes`` equal stretches with ``preadv2(RWF_NOWAIT)``, which
    gives EAGAIN where a page is not cached.  (For files of others, ``mincore`` and ``cachestat`` do not tell
    an ordinary user the truth.)  The standard error is at most ``0.5 / sqrt(probes)``.

    A miss makes Linux read that page; without readahead, and it is given back to the system at once, so the
    estimate leaves the cache nearly as it was.

    Args:
        path: an existing file.
        offset: first byte of the part.
        length: bytes of the part; to the end of the file by default.
        probes: places that are tried, fewer for a part of fewer pages.
    """
    return _shares([(path, offset, length)], probes)[0]


def cached_shares(paths: Sequence[Path | str], probes: int = PROBES) -> list[float | None]:
    """:func:`cached_share` of each of some files, as one look: they stay open for the length of the call."""
    return _shares([(path, 0, None) for path in paths], probes)


def _shares(parts: Sequence[tuple[Path | str, int, int | None]], probes: int) -> list[float | None]:
    page = os.sysconf("SC_PAGE_SIZE")
    looks: list[_Look | None] = []
    try:
        for path, offset, length in parts:
            looks.append(_look(path, offset, length, probes, page))
        missed = [look for look in looks if look is not None and look.missed]
        for _ in range(2 if missed else 0):
            time.sleep(_SETTLE_S)  # pages under way cannot be dropped
            for look in missed:
                for place in look.missed:
                    os.posix_fadvise(look.descriptor, place, page, os.POSIX_FADV_DONTNEED)
        return [None if look is None else 1.0 - len(look.missed) / look.count for look in looks]
    finally:
        for done in looks:
            if done is not None:
                os.close(done.descriptor)


def _look(path: Path | str, offset: int, length: int | None, probes: int, page: int) -> _Look | None:
    flag = getattr(os, "RWF_NOWAIT", None)
    if flag is None:
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, descriptor)
        size = os.fstat(descriptor).st_size
        end = size if length is None else min(size, offset + length)
        count = min(probes, -(-(end - offset) // page))
        if count <= 0:
            return None
        try:
            # "Random" turns readahead off, for this open file alone.
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
            byte, missed = bytearray(1), []
            # Other places at each call: one that found a page missing may have left it cached.
            pick = random.Random()
            for number in range(count):
                first = offset + (end - offset) * number // count
                last = offset + (end - offset) * (number + 1) // count
                place = pick.randrange(first, last)
                try:
                    os.preadv(descriptor, [byte], place, flag)
                except BlockingIOError:
                    missed.append(place - place % page)
        except OSError:  # the file system does not support the flag
            return None
        stack.pop_all()
        return _Look(descriptor, count, missed)
