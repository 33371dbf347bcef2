"""Memory of a node: total, available, limit of its control groups, and huge pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dlio_torch.environment.memory_limits import meminfo, memory_limit
from dlio_torch.environment.topology.kernel_files import entries, number_of, text_of
from dlio_torch.environment.topology.numa import PROC, SYS


@dataclass(frozen=True)
class HugePages:
    """Huge pages of one size.

    Attributes:
        size_bytes: size of a page.
        count: pages set aside.
        free: those of them that nothing uses.
    """

    size_bytes: int
    count: int
    free: int


@dataclass(frozen=True)
class HostMemory:
    """Memory of the node.

    Attributes:
        total_bytes: its memory; ``None`` if the kernel does not show it.
        available_bytes: memory that programs can get without swapping, ``None`` likewise.
        limit_bytes: least limit of the control groups of this process; ``None``: no limit.
        shared_bytes: memory that shared memory and files in memory take now; ``None`` likewise.
        huge_pages: pools of huge pages.
        transparent_huge_pages: ``always``, ``madvise`` or ``never``; ``None`` likewise.
        why: reason of each ``None``, by attribute.
    """

    total_bytes: int | None
    available_bytes: int | None
    limit_bytes: int | None
    shared_bytes: int | None
    huge_pages: Sequence[HugePages]
    transparent_huge_pages: str | None
    why: Mapping[str, str] = field(default_factory=dict)


def host_memory(sys: Path = SYS, proc: Path = PROC) -> HostMemory:
    """Memory of the node, from ``/proc/meminfo`` and ``/sys/kernel/mm``.

    Args:
        sys: folder of the kernel's devices; control groups are looked up in the folder that contains ``proc``.
        proc: folder of the kernel's processes.
    """
    sizes = meminfo(proc)
    values = {
        "total_bytes": sizes.get("MemTotal"),
        "available_bytes": sizes.get("MemAvailable"),
        "limit_bytes": _limit(proc, sizes.get("MemTotal")),
        "shared_bytes": sizes.get("Shmem"),
    }
    transparent = _transparent(sys)
    why = {name: "/proc/meminfo does not show the value" for name, value in values.items() if value is None}
    if values["limit_bytes"] is None:
        why["limit_bytes"] = "no control group has a limit below the machine's memory"
    if transparent is None:
        why["transparent_huge_pages"] = "the kernel has no transparent huge pages"
    return HostMemory(**values, huge_pages=_huge_pages(sys), transparent_huge_pages=transparent, why=why)


def _limit(proc: Path, total: int | None) -> int | None:
    """Limit of the control groups; version 1 shows a size above that of the memory for no limit."""
    limit = memory_limit(proc.parent)
    return None if limit is None or (total is not None and limit >= total) else limit


def _huge_pages(sys: Path) -> tuple[HugePages, ...]:
    pools = []
    for folder in entries(sys / "kernel/mm/hugepages"):  # hugepages-2048kB
        size = folder.name.removeprefix("hugepages-").removesuffix("kB")
        count, free = number_of(folder / "nr_hugepages"), number_of(folder / "free_hugepages")
        if size.isdecimal() and count is not None:
            pools.append(HugePages(int(size) * 1024, count, free or 0))
    return tuple(pools)


def _transparent(sys: Path) -> str | None:
    # "always [madvise] never"
    words = (text_of(sys / "kernel/mm/transparent_hugepage/enabled") or "").split()
    return next((word.strip("[]") for word in words if word.startswith("[")), None)
