"""Processors of a node: sockets, cores, hardware threads, caches, and the CPUs that this process may use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dlio_torch.environment.cores import quota_cores
from dlio_torch.environment.cpu_lists import format_cpus
from dlio_torch.environment.topology.kernel_files import cpus_of, number_of, numbered, text_of
from dlio_torch.environment.topology.numa import PROC, SYS, allowed_cpus, online_cpus

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_FIELDS = ("model name", "Model", "cpu")
"""Fields of ``/proc/cpuinfo`` that hold the model, by architecture; ARM's kernels show none."""


@dataclass(frozen=True)
class CpuCache:
    """Cache of a level and kind.

    Attributes:
        level: 1 is next to the core.
        kind: ``Data``, ``Instruction`` or ``Unified``.
        size_bytes: size of one of them; ``None`` if the kernel does not show it.
        count: number of them in the machine.
    """

    level: int
    kind: str
    size_bytes: int | None
    count: int


@dataclass(frozen=True)
class Processors:
    """Processors of the node.

    Attributes:
        model: name of the model; ``None`` if the kernel shows none.
        sockets: processor packages; ``None`` likewise.
        cores: physical cores; ``None`` likewise.
        threads: hardware threads, the kernel's CPUs, that are switched on; ``None`` likewise.
        caches: caches by level.
        allowed: CPUs in the affinity mask of this process; ``None`` if the kernel does not show it.
        quota: CPU time per time that its control groups grant; ``None``: no limit.
        usable: CPUs that the process can keep busy at once; a fraction under a quota.
        why: reason of each ``None``, by attribute.
    """

    model: str | None
    sockets: int | None
    cores: int | None
    threads: int | None
    caches: Sequence[CpuCache]
    allowed: str | None
    quota: float | None
    usable: float | None
    why: Mapping[str, str] = field(default_factory=dict)


def processors(sys: Path = SYS, proc: Path = PROC) -> Processors:
    """Processors of the node, from ``/sys/devices/system/cpu`` and ``/proc``.

    Args:
        sys: folder of the kernel's devices; control groups are looked up in the folder that contains ``proc``.
        proc: folder of the kernel's processes.
    """
    online, allowed, quota = online_cpus(sys), allowed_cpus(proc), quota_cores(proc.parent)
    sockets, cores = _packages(online, sys)
    usable = None if not allowed else min(len(allowed), quota or len(allowed))
    values = {
        "model": cpu_model(proc),
        "sockets": sockets,
        "cores": cores,
        "threads": len(online) or None,
        "allowed": format_cpus(allowed) or None,
        "quota": quota,
        "usable": usable,
    }
    return Processors(**values, caches=_caches(online, sys), why=_reasons(values))  # type: ignore[arg-type]


def _reasons(values: Mapping[str, object]) -> dict[str, str]:
    reasons = {
        "model": "/proc/cpuinfo names no model",
        "sockets": "the kernel does not show the packages of CPUs",
        "cores": "the kernel does not show which CPUs share a core",
        "threads": "/sys/devices/system/cpu/online cannot be read",
        "allowed": "/proc/self/status does not show the affinity mask",
        "quota": "no control group limits the CPU time",
        "usable": "/proc/self/status does not show the affinity mask",
    }
    return {name: reason for name, reason in reasons.items() if values[name] is None}


def cpu_model(proc: Path = PROC) -> str | None:
    """Name of the model in ``/proc/cpuinfo``; ``None`` if it names none."""
    lines = (line.partition(":") for line in (text_of(proc / "cpuinfo") or "").splitlines())
    return next((value.strip() for name, _, value in lines if name.strip() in _FIELDS and value.strip()), None)


def last_level_cache(sys: Path = SYS, proc: Path = PROC) -> int | None:
    """Bytes of the last cache before memory that a CPU of this process has; ``None`` if the kernel shows none."""
    caches = [cache for cache in _caches(allowed_cpus(proc)[:1], sys) if cache.kind != "Instruction"]
    return caches[-1].size_bytes if caches else None


def _packages(online: Sequence[int], sys: Path) -> tuple[int | None, int | None]:
    """Number of sockets and of cores that are switched on; ``None`` if the kernel does not show them."""
    folders = [sys / f"devices/system/cpu/cpu{cpu}/topology" for cpu in online]
    packages = {number_of(folder / "physical_package_id") for folder in folders}
    cores = {cpus_of(folder / "thread_siblings_list") for folder in folders}
    # Some virtual machines and ARM boards have -1 for all packages.
    known = bool(packages) and not packages & {None, -1}
    return len(packages) if known else None, len(cores) if cores and () not in cores else None


def _caches(online: Sequence[int], sys: Path) -> tuple[CpuCache, ...]:
    shared: dict[tuple[int, str, int | None], set[tuple[int, ...]]] = {}
    for cpu in online:
        for _, folder in numbered(sys / f"devices/system/cpu/cpu{cpu}/cache", "index"):
            level, kind = number_of(folder / "level"), text_of(folder / "type")
            if level is not None and kind is not None:
                cpus = cpus_of(folder / "shared_cpu_list") or (cpu,)
                shared.setdefault((level, kind, _size(folder / "size")), set()).add(cpus)
    ordered = sorted(shared.items(), key=lambda item: (item[0][0], item[0][1], item[0][2] or 0))
    return tuple(CpuCache(*key, len(cpus)) for key, cpus in ordered)


def _size(path: Path) -> int | None:
    # "32K", "1024K"
    text = text_of(path) or ""
    digits = text.rstrip("KMG")
    return int(digits) * _UNITS.get(text[len(digits) :], 1) if digits.isdecimal() else None
