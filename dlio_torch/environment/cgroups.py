"""Control groups of this process, each of which limits it, as do their parent groups."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import NamedTuple

from dlio_torch.environment.mounts import Mount, mounts


class Group(NamedTuple):
    """Control group with its folder and version.

    Attributes:
        version: 1 or 2 of the kernel's interface, which name their files differently.
        folder: folder of its files.
    """

    version: int
    folder: Path


def own_groups(controller: str, root: Path = Path("/")) -> list[Group]:
    """Control groups that may limit this process: its own group and the mounted parent groups.

    Both versions are read: a machine may use version 2 for some controllers and version 1 for others.

    Args:
        controller: its name in version 1: ``cpu``, ``memory`` or ``blkio``.
        root: folder of ``proc`` and ``sys``.

    Returns:
        The groups, the innermost of each version first; empty if the kernel has no control groups.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        mounted = mounts(root)
    except OSError:
        return []
    groups = []
    for line in lines:
        _, names, path = line.split(":", 2)
        if names == "":
            mount = next((mount for mount in mounted if mount.file_system == "cgroup2"), None)
        elif controller in names.split(","):
            mount = next((mount for mount in mounted if _holds(mount, controller)), None)
        else:
            continue
        if mount is not None:
            version = 2 if names == "" else 1
            groups += [Group(version, folder) for folder in _folders(mount, path, root)]
    return groups


def _holds(mount: Mount, controller: str) -> bool:
    return mount.file_system == "cgroup" and controller in mount.super_options.split(",")


def _folders(mount: Mount, path: str, root: Path) -> list[Path]:
    """Folders of the group at ``path`` and of its parents, up to the mounted one."""
    top = root / mount.point.lstrip("/")
    group = PurePosixPath(path)
    # A container may see a part of the hierarchy, or name its group by a path that leads out of that part.
    is_inside = group.is_relative_to(mount.root) and ".." not in group.parts
    inside = group.relative_to(mount.root).parts if is_inside else ()
    return [top.joinpath(*inside[:depth]) for depth in range(len(inside), -1, -1)]
