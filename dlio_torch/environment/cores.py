"""CPU cores that this process may use: affinity, quota of its control groups, physical cores, idle time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path

from dlio_torch.environment.cgroups import own_groups

_ROOT = Path("/")

IDLE_LEAST_S = 10 / os.sysconf("SC_CLK_TCK")
"""Shortest period in seconds over which idle time is measured: ten ticks of the kernel's clock."""


def usable_cores(root: Path = _ROOT) -> int | float:
    """Number of cores that this process and its children can keep busy at once; may be fractional under a quota.

    The number of cores in its affinity mask (``sched_getaffinity``, set by ``taskset``, batch systems and cpusets), at
    most the CPU time that its control groups grant (``docker run --cpus``, Kubernetes' limits).

    Args:
        root: folder of ``proc`` and ``sys``.
    """
    cores, quota = len(os.sched_getaffinity(0)), quota_cores(root)
    if quota is None or quota >= cores:
        return cores
    return int(quota) if quota == int(quota) else quota


def whole_cores() -> int:
    """Usable cores as a whole number, at least 1: number of processes or threads that can run at full speed."""
    return max(1, int(usable_cores()))


def physical_cores(root: Path = _ROOT) -> int | None:
    """Number of physical cores that this process may run on; hyperthreads of one core count once.

    Args:
        root: folder of ``sys``.

    Returns:
        ``None`` if the kernel does not show it, as in most virtual machines whose host shares cores.
    """
    folder = root / "sys/devices/system/cpu"
    try:
        return len(
            {
                (folder / f"cpu{number}/topology/thread_siblings_list").read_text(encoding="ascii")
                for number in os.sched_getaffinity(0)
            }
        )
    except OSError:
        return None


def idle_core_s(root: Path = _ROOT, cpus: Collection[int] = ()) -> float | None:
    """Idle time in seconds since the start of the machine, summed over cores.

    Args:
        root: folder of ``proc``.
        cpus: numbers of the cores; empty: those that the calling thread may run on.

    Returns:
        ``None`` if the kernel does not show it.
    """
    names = {f"cpu{number}" for number in cpus or os.sched_getaffinity(0)}
    ticks = 0
    try:
        for line in (root / "proc/stat").read_text(encoding="ascii").splitlines():
            name, *counts = line.split()
            if name in names:
                ticks += int(counts[3]) + int(counts[4])  # idle, and idle while a read or write is under way
                names.remove(name)
    except (OSError, ValueError, IndexError):
        return None
    return None if names else ticks / os.sysconf("SC_CLK_TCK")


def quota_cores(root: Path = _ROOT) -> float | None:
    """CPU quota in CPU seconds per second: the least of this process's control group and its parent groups.

    ``cpu.max`` of version 2 (``"150000 100000"``, or ``"max 100000"`` for no limit), ``cpu.cfs_quota_us`` and
    ``cpu.cfs_period_us`` of version 1 (-1 for no limit).

    Args:
        root: folder of ``proc`` and ``sys``.

    Returns:
        ``None``: no limit.
    """
    quotas = []
    for version, folder in own_groups("cpu", root):
        # A group without these files has no limit of its own.
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
            if version == 2:
                quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
            else:
                quota, period = (
                    (folder / f"cpu.cfs_{name}_us").read_text(encoding="ascii") for name in ("quota", "period")
                )
            granted = int(quota) / int(period)
            if granted > 0:
                quotas.append(granted)
    return min(quotas, default=None)
