"""Memory limits: space for the page cache, limits of control groups, total memory and swap space."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from dlio_torch.environment.cgroups import own_groups
from dlio_torch.environment.topology.kernel_files import text_of

_ROOT = Path("/")
# File of the limit, and the entry of memory.stat for memory of processes besides the cache, subgroups included.
_FILES: Mapping[int, tuple[str, str]] = {1: ("memory.limit_in_bytes", "total_rss"), 2: ("memory.max", "anon")}


def cache_room(root: Path = _ROOT) -> int | None:
    """Bytes that files may take in the page cache before eviction; None if the kernel does not show the value.

    ``MemAvailable`` (free memory, and memory that the cache and others can give back), at most the limit of each
    control group of this process less the memory that its processes hold besides the cache.

    Args:
        root: folder of ``proc`` and ``sys``.
    """
    room = [max(0, limit - held) for limit, held in _limits(root)]
    available = meminfo(root / "proc").get("MemAvailable")
    return min([*room, *([] if available is None else [available])], default=None)


def meminfo(proc: Path) -> dict[str, int]:
    """Sizes of ``/proc/meminfo`` in bytes, by name; empty if it cannot be read.

    Args:
        proc: folder of the kernel's processes.
    """
    sizes = {}
    for line in (text_of(proc / "meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if len(words) == 2 and words[0].isdecimal() and words[1] == "kB":
            sizes[name] = int(words[0]) * 1024
    return sizes


def memory_limit(root: Path = _ROOT) -> int | None:
    """The least memory limit of this process's control groups, bytes; None if there is no limit.

    Without a limit, version 1 shows a number near 2**63, more than any machine has.

    Args:
        root: folder of ``proc`` and ``sys``.
    """
    return min((limit for limit, _ in _limits(root)), default=None)


def memory_in_all(root: Path = _ROOT) -> int:
    """Total bytes of memory and swap space that the control groups of this process allow.

    Args:
        root: folder of ``proc`` and ``sys`` for the control groups.
    """
    total = psutil.virtual_memory().total + psutil.swap_memory().total
    limit = memory_limit(root)
    return int(total if limit is None else min(total, limit))


def _limits(root: Path) -> Iterator[tuple[int, int]]:
    """Limit of each control group and memory of its processes, bytes; version 2 shows "max" for no limit."""
    for version, folder in own_groups("memory", root):
        limit, used = _FILES[version]
        with contextlib.suppress(OSError, ValueError):
            most = int((folder / limit).read_text(encoding="ascii"))
            held = 0
            for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines():
                name, _, value = line.partition(" ")
                held = int(value) if name == used else held
            yield most, held
