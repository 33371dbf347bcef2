"""Memory that the page cache of this machine can take, and what control groups allow of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from dlio_torch.environment.cgroups import own_groups

_ROOT = Path("/")
# Of each version: the limit, and in memory.stat what processes hold beside the cache, those of groups below included.
_FILES: Mapping[int, tuple[str, str]] = {1: ("memory.limit_in_bytes", "total_rss"), 2: ("memory.max", "anon")}


def cache_room(root: Path = _ROOT) -> int | None:
    """Bytes that files may take in the page cache before something must go, None where it cannot be told.

    ``MemAvailable`` (what is free, and what the cache and others can give back), and no more than the limit of
    each control group of this process, less what its processes hold beside the cache.

    Args:
        root: where ``proc`` and ``sys`` lie.
    """
    room = [max(0, limit - held) for limit, held in _limits(root)]
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (root / "proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                room.append(int(line.split()[1]) * 1024)
    return min(room, default=None)


def memory_limit(root: Path = _ROOT) -> int | None:
    """The least limit of this process's control groups, bytes; None where there is none.

    Version 1 says a number near 2**63 for none, which is more than any machine has.

    Args:
        root: where ``proc`` and ``sys`` lie.
    """
    return min((limit for limit, _ in _limits(root)), default=None)


def memory_in_all(root: Path = _ROOT) -> int:
    """Bytes of memory and swap space, as far as the control groups of this process allow.

    Args:
        root: where ``proc`` and ``sys`` of the control groups lie.
    """
    total = psutil.virtual_memory().total + psutil.swap_memory().total
    limit = memory_limit(root)
    return int(total if limit is None else min(total, limit))


def _limits(root: Path) -> Iterator[tuple[int, int]]:
    """Limit of each control group, and what its processes hold; version 2 says "max" for no limit."""
    for version, folder in own_groups("memory", root):
        limit, used = _FILES[version]
        with contextlib.suppress(OSError, ValueError):
            most = int((folder / limit).read_text(encoding="ascii"))
            held = 0
            for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines():
                name, _, value = line.partition(" ")
                held = int(value) if name == used else held
            yield most, held
