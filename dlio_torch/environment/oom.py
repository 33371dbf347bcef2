"""Whether the kernel's out-of-memory killer has killed something: its own counts, before and after.

Counts are ``oom_kill`` of the control group's ``memory.events`` (version 2) or ``memory.oom_control`` (version 1), and
of the whole machine in ``/proc/vmstat`` (Documentation/admin-guide/cgroup-v2.rst).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dlio_torch.environment.cgroups import own_groups


@dataclass(frozen=True)
class OomKills:
    """How many processes were killed so far.

    Attributes:
        group: in the control group of this process; ``None``: the kernel does not tell.
        machine: in all.
    """

    group: int | None
    machine: int | None

    @classmethod
    def now(cls, root: Path = Path("/")) -> OomKills:
        """The counts at this moment."""
        group = None
        for one in own_groups("memory", root):
            group = _count(one.folder / ("memory.events" if one.version == 2 else "memory.oom_control"))
            if group is not None:
                break
        return cls(group, _count(root / "proc/vmstat"))

    def since(self, root: Path = Path("/")) -> str:
        """What is known of the time since these counts were taken, as a part of a sentence."""
        now = OomKills.now(root)
        if self.group is not None and now.group is not None and now.group > self.group:
            return (
                f"the kernel's out-of-memory killer has killed {now.group - self.group} process(es) of this control "
                "group meanwhile: its memory limit was reached"
            )
        if self.machine is not None and now.machine is not None:
            if now.machine > self.machine:
                return (
                    f"the kernel's out-of-memory killer has killed {now.machine - self.machine} process(es) of this "
                    "machine meanwhile"
                )
            return "the kernel's out-of-memory killer has killed nothing meanwhile: somebody sent it"
        return "whether it was the kernel's out-of-memory killer cannot be found out here"


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
