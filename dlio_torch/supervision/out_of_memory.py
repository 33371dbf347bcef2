"""Kills by the kernel's out-of-memory killer, from its counters before and after a process was lost.

The counters are ``oom_kill`` of the control group's ``memory.events`` (version 2) or ``memory.oom_control`` (version
1), and of the whole machine in ``/proc/vmstat`` (Documentation/admin-guide/cgroup-v2.rst).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dlio_torch.environment.cgroups import own_groups
from dlio_torch.units import counted


@dataclass(frozen=True)
class OomKills:
    """Numbers of processes that the out-of-memory killer has killed so far.

    Attributes:
        group: in the control group of this process; ``None`` if the kernel shows no counter.
        machine: on the whole machine; ``None`` if the kernel shows no counter.
    """

    group: int | None
    machine: int | None

    @classmethod
    def now(cls, root: Path = Path("/")) -> OomKills:
        """Reads the counters."""
        counts = (
            _count(group.folder / ("memory.events" if group.version == 2 else "memory.oom_control"))
            for group in own_groups("memory", root)
        )
        return cls(next((count for count in counts if count is not None), None), _count(root / "proc/vmstat"))

    def since(self, root: Path = Path("/")) -> str:
        """Describes the kills since these counters were read; a clause without a full stop."""
        now = OomKills.now(root)
        if self.group is not None and now.group is not None and now.group > self.group:
            return (
                "the kernel's out-of-memory killer has killed "
                f"{counted(now.group - self.group, 'process', 'processes')} of this "
                "control group during the run: the group's memory limit was reached"
            )
        if self.machine is not None and now.machine is not None:
            if now.machine > self.machine:
                return (
                    "the kernel's out-of-memory killer has killed "
                    f"{counted(now.machine - self.machine, 'process', 'processes')} of "
                    "this machine during the run"
                )
            return (
                "the kernel's out-of-memory killer has killed no process during the run: another process sent the "
                "signal"
            )
        return "the kernel does not show whether its out-of-memory killer killed the process"


def _count(path: Path) -> int | None:
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.strip().isdigit():
            return int(value)
    return None
