"""Control group that limits the rate at which its processes read a block device.

The group is a child of one of this process's groups, whose user may make children there: ``io.max`` of version 2 of the
kernel's interface, or ``blkio.throttle.read_bps_device`` of version 1.  Nothing outside of the child is changed, and it
is removed in the end, with the processes in it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.rounds import Unavailable
from dlio_torch.environment.cgroups import Group, own_groups
from dlio_torch.environment.mounts import mount_of

BURST_S = 0.1  # the kernel grants a limit in slices of at most so many seconds; within one, bytes come at once
LIMITS = {1: ("blkio.throttle.read_bps_device", "{} {}\n"), 2: ("io.max", "{} rbps={}\n")}
"""By version: the file that limits reads, and its line with a device and bytes per second."""
_JOIN = 'echo $$ > "$0" && exec "$@"'
_LONGEST_END_S = 10.0


@dataclass(frozen=True)
class LimitedGroup:
    """Control group and the device that it limits.

    Attributes:
        group: the child group.
        device: ``major:minor`` of the block device.
    """

    group: Group
    device: str

    @property
    def prefix(self) -> tuple[str, ...]:
        """Words in front of a command that run it in the group."""
        return "sh", "-c", _JOIN, str(self.group.folder / "cgroup.procs")

    def limit(self, bytes_per_s: int) -> None:
        """Limits reads of the device.

        Raises:
            OSError: the kernel does not allow it.
        """
        name, line = LIMITS[self.group.version]
        descriptor = os.open(self.group.folder / name, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, line.format(self.device, bytes_per_s).encode())
        finally:
            os.close(descriptor)


def block_device(place: Path) -> str:
    """``major:minor`` of the disk on which a folder lies.

    Raises:
        Unavailable: the file system has no single block device.
    """
    number = os.stat(place).st_dev
    if not os.major(number):
        mount = mount_of(Path(os.path.realpath(place)))
        kind = "an unknown file system" if mount is None else mount.file_system
        raise Unavailable(f"{place} lies on {kind}, which has no single block device; name another --directory")
    return whole_disk(f"{os.major(number)}:{os.minor(number)}")


def whole_disk(number: str, root: Path = Path("/")) -> str:
    """``major:minor`` of the disk of a partition, or of the disk itself: only disks have limits.

    Args:
        number: ``major:minor`` of a block device.
        root: folder of ``sys``.

    Raises:
        Unavailable: the kernel does not show the device.
    """
    try:
        folder = (root / "sys/dev/block" / number).resolve(strict=True)
        disk = folder.parent if (folder / "partition").exists() else folder
        return (disk / "dev").read_text(encoding="ascii").strip()
    except OSError as error:
        raise Unavailable(f"/sys/dev/block does not show the block device {number}: {error.strerror}") from error


@contextlib.contextmanager
def limited_group(device: str, root: Path = Path("/")) -> Iterator[LimitedGroup]:
    """Makes a control group that can limit a device, and removes it in the end.

    Args:
        device: ``major:minor`` of a disk.
        root: folder of ``proc`` and ``sys``.

    Raises:
        Unavailable: no group with such a limit can be made.
    """
    with _child(_parent(device, root), device) as group:
        yield group


def _parent(device: str, root: Path) -> Group:
    """The first of this process's groups below which a limited group can be made and joined."""
    reasons = []
    for group in own_groups("blkio", root):
        why = _why_not(group, device)
        if why is None:
            return group
        reasons.append(why)
    tried = "; ".join(reasons) or "this process has none"
    raise Unavailable(f"no control group that limits reads can be made ({tried})")


def _why_not(parent: Group, device: str) -> str | None:
    try:
        with _child(parent, device) as child:
            child.limit(1 << 30)
            subprocess.run([*child.prefix, "true"], check=True, capture_output=True)
    except OSError as error:
        return f"{error.filename or parent.folder}: {error.strerror}"
    except subprocess.CalledProcessError:
        return f"{parent.folder}: its processes may not move to a child"
    return None


@contextlib.contextmanager
def _child(parent: Group, device: str) -> Iterator[LimitedGroup]:
    folder = parent.folder / f"dlio_torch_benchmark_{os.getpid()}"
    try:
        folder.mkdir()
        yield LimitedGroup(Group(parent.version, folder), device)
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    """Removes a group after the end of its processes.

    Raises:
        OSError: processes are left after ten seconds.
    """
    longest = time.monotonic() + _LONGEST_END_S
    while folder.exists():
        _kill(folder)
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > longest:
                raise
            time.sleep(0.05)


def _kill(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the group or a process has just gone
        for process in map(int, (folder / "cgroup.procs").read_text(encoding="ascii").split()):
            if process > 0:  # 0: a process that this one does not see
                os.kill(process, signal.SIGKILL)
