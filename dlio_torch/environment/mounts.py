"""The file system of a place."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Any


def describe_mount(name: str, path: Path, why: dict[str, str]) -> dict[str, Any]:
    """Mount point, file system, device, options, room and request sizes where ``path`` lies, JSON-able.

    Args:
        name: what the place is called in ``why``.
        path: a path; where it does not exist yet, its nearest existing parent is described.
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
    found = _find_mount(place)
    if found is None:
        found = dict.fromkeys(("mount_point", "device_number", "options", "file_system", "device", "super_options"))
        why.update({f"mounts.{name}.{key}": "/proc/self/mountinfo does not tell" for key in found})
    readahead = None
    with contextlib.suppress(OSError, ValueError):
        bdi = Path("/sys/class/bdi", str(found["device_number"]), "read_ahead_kb")
        readahead = int(bdi.read_text(encoding="ascii")) * 1024
    if readahead is None:
        why[f"mounts.{name}.readahead_bytes"] = "the file system shows no backing device"
    return {**result, **found, "readahead_bytes": readahead}


def _find_mount(place: Path) -> dict[str, str | None] | None:
    """The mount that holds ``place``, from ``/proc/self/mountinfo`` (proc_pid_mountinfo(5))."""
    try:
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return None
    best: dict[str, str | None] | None = None
    longest = -1
    for line in lines:
        left, _, right = line.partition(b" - ")
        fields, device = left.split(b" "), right.split(b" ")
        point = _unescape(fields[4])
        # Of mounts on one point the last hides the others.
        if len(Path(point).parts) >= longest and place.is_relative_to(point):
            longest = len(Path(point).parts)
            best = {
                "mount_point": point,
                "device_number": fields[2].decode(),
                "options": fields[5].decode(),
                "file_system": device[0].decode(),
                "device": _unescape(device[1]),
                "super_options": device[2].decode() if len(device) > 2 else "",
            }
    return best


def _unescape(field: bytes) -> str:
    # Blanks, line breaks and backslashes stand there as three octal digits.
    return os.fsdecode(re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), field))
