"""The control groups that this process belongs to: what they grant, all of its parents grant as well."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import NamedTuple

from dlio_torch.environment.mounts import Mount, mounts


class Group(NamedTuple):
    """A control group.

    Attributes:
        version: 1 or 2 of the kernel's interface, which name their files differently.
        folder: where its files lie.
    """

    version: int
    folder: Path


def own_groups(controller: str, root: Path = Path("/")) -> list[Group]:
    """The groups of this process that may limit it: its own one, and those above as far as they are mounted.

    Both versions are looked at, as machines that use version 2 for some controllers use 1 for others.

    Args:
        controller: ``cpu`` or ``memory``.
        root: where ``proc`` and ``sys`` lie.

    Returns:
        The groups, the innermost of each version first; none where the kernel has no control groups.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        mounted = mounts(root)
    except OSError:
        return []
    found = []
    for line in lines:
        _, names, path = line.split(":", 2)
        if names == "":
            mount = next((one for one in mounted if one.file_system == "cgroup2"), None)
        elif controller in names.split(","):
            mount = next((one for one in mounted if _holds(one, controller)), None)
        else:
            continue
        if mount is not None:
            version = 2 if names == "" else 1
            found += [Group(version, folder) for folder in _folders(mount, path, root)]
    return found


def _holds(mount: Mount, controller: str) -> bool:
    return mount.file_system == "cgroup" and controller in mount.super_options.split(",")


def _folders(mount: Mount, path: str, root: Path) -> list[Path]:
    """From the group at ``path`` up to the one that is mounted."""
    top = root / mount.point.lstrip("/")
    own = PurePosixPath(path)
    # A container may see a part of the hierarchy, or name its group by a way that leads out of that part.
    inside = own.relative_to(mount.root).parts if own.is_relative_to(mount.root) and ".." not in own.parts else ()
    return [top.joinpath(*inside[:depth]) for depth in range(len(inside), -1, -1)]
