"""Mounts, and the file system of a path."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Any, NamedTuple


class Mount(NamedTuple):
    """A line of ``/proc/self/mountinfo`` (proc_pid_mountinfo(5))."""

    device_number: str
    root: str
    point: str
    options: str
    file_system: str
    device: str
    super_options: str


def mounts(root: Path = Path("/")) -> list[Mount]:
    """All mounts that this process sees; if several share a mount point, the last one hides the others.

    Args:
        root: folder of ``proc``.

    Raises:
        OSError: they cannot be read.
    """
    result = []
    for line in (root / "proc/self/mountinfo").read_bytes().splitlines():
        left, _, right = line.partition(b" - ")
        fields, device = left.split(b" "), [*right.split(b" "), b""]
        result.append(
            Mount(
                fields[2].decode(),
                _unescape(fields[3]),
                _unescape(fields[4]),
                fields[5].decode(),
                device[0].decode(),
                _unescape(device[1]),
                device[2].decode(),
            )
        )
    return result


def describe_mount(name: str, path: Path, why: dict[str, str]) -> dict[str, Any]:
    """Mount point, file system, device, options, free space and request sizes of a path, as JSON-compatible values.

    Args:
        name: name of the path in ``why``.
        path: a path; if it does not exist yet, its nearest existing parent is described.
        why: receives the reason of each None, by dotted name.
    """
    place = Path(os.path.realpath(path.expanduser()))
    while not place.exists():
        place = place.parent
    result: dict[str, Any] = {"path": str(path), "measured_at": str(place)}
    try:
        room, stat = os.statvfs(place), os.stat(place)
        result |= {
            "total_bytes": room.f_blocks * room.f_frsize,
            "free_bytes": room.f_bavail * room.f_frsize,
            "preferred_io_bytes": stat.st_blksize,
        }
    except OSError as error:
        result |= {"total_bytes": None, "free_bytes": None, "preferred_io_bytes": None}
        why[f"mounts.{name}"] = f"{place}: {error.strerror}"
    mount = _find_mount(place)
    if mount is None:
        mount = dict.fromkeys(("mount_point", "device_number", "options", "file_system", "device", "super_options"))
        why.update({f"mounts.{name}.{key}": "/proc/self/mountinfo does not show the mount" for key in mount})
    readahead = None
    with contextlib.suppress(OSError, ValueError):
        bdi = Path("/sys/class/bdi", str(mount["device_number"]), "read_ahead_kb")
        readahead = int(bdi.read_text(encoding="ascii")) * 1024
    if readahead is None:
        why[f"mounts.{name}.readahead_bytes"] = "the file system shows no backing device"
    return {**result, **mount, "readahead_bytes": readahead}


def mount_of(place: Path, root: Path = Path("/")) -> Mount | None:
    """The mount that contains an absolute path; ``None`` if the kernel does not show it.

    Args:
        place: a path without symbolic links.
        root: folder of ``proc``.
    """
    try:
        around = [mount for mount in mounts(root) if place.is_relative_to(mount.point)]
    except OSError:
        return None
    # If several mounts share a mount point, the last one hides the others.
    return max(reversed(around), key=lambda mount: len(Path(mount.point).parts), default=None)


def _find_mount(place: Path) -> dict[str, str | None] | None:
    best = mount_of(place)
    if best is None:
        return None
    return {
        "mount_point": best.point,
        "device_number": best.device_number,
        "options": best.options,
        "file_system": best.file_system,
        "device": best.device,
        "super_options": best.super_options,
    }


def _unescape(field: bytes) -> str:
    # The kernel writes blanks, line breaks and backslashes as three octal digits.
    return os.fsdecode(re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), field))
