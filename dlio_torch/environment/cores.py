"""Cores that a run can keep busy."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from dlio_torch.environment.cgroups import own_groups

_ROOT = Path("/")

IDLE_LEAST_S = 10 / os.sysconf("SC_CLK_TCK")
"""The kernel tells idle time in ticks: in less than ten of them it says nothing."""


def usable_cores(root: Path = _ROOT) -> int | float:
    """Cores that this process and its children can keep busy at once; a fraction where a quota grants one.

    The cores that it may run on (``sched_getaffinity``, which ``taskset``, batch systems and cpusets set), and no
    more than the CPU time that its control groups grant (``docker run --cpus``, Kubernetes' limits).

    Args:
        root: where ``proc`` and ``sys`` lie.
    """
    cores, quota = len(os.sched_getaffinity(0)), quota_cores(root)
    if quota is None or quota >= cores:
        return cores
    return int(quota) if quota == int(quota) else quota


def whole_cores() -> int:
    """The same as a whole number, at least 1: how many processes or threads can run at full speed."""
    return max(1, int(usable_cores()))


def physical_cores(root: Path = _ROOT) -> int | None:
    """Cores that this process may run on, those counted once that run several threads at a time (hyperthreads).

    Args:
        root: where ``sys`` lies.

    Returns:
        ``None`` where the kernel does not tell, which it does not in most virtual machines whose host shares cores.
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


def idle_core_s(root: Path = _ROOT) -> float | None:
    """Seconds that the cores which this process may run on were idle since the machine started, added up.

    Args:
        root: where ``proc`` lies.

    Returns:
        ``None`` where the kernel does not tell.
    """
    names = {f"cpu{number}" for number in os.sched_getaffinity(0)}
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
    """CPU seconds per second that the control groups grant: the least of this process's group and those above it.

    ``cpu.max`` of version 2 (``"150000 100000"``, or ``"max 100000"`` for no limit), ``cpu.cfs_quota_us`` and
    ``cpu.cfs_period_us`` of version 1 (-1 for no limit).

    Args:
        root: where ``proc`` and ``sys`` lie.

    Returns:
        ``None``: no limit.
    """
    found = []
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
                found.append(granted)
    return min(found, default=None)
