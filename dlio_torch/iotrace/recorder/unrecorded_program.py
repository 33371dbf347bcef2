"""Explains why a program that was started with the recorder's library left no recording."""

from __future__ import annotations

import shutil
import stat
import struct
from pathlib import Path

_INTERPRETER = 3  # PT_INTERP of the ELF format: the program is linked dynamically


def why_not_preloaded(program: str) -> str:
    """The reason in one sentence.

    Args:
        program: the first word of the command.
    """
    executable = shutil.which(program)
    path = Path(executable).resolve() if executable else Path(program)
    try:
        if path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID):
            return (
                f"nothing was recorded: {path} changes its user, and such programs ignore LD_PRELOAD; start the "
                "recording as the user to which the program changes"
            )
        if _is_static(path):
            return (
                f"nothing was recorded: {path} is linked statically, and such programs ignore LD_PRELOAD; use "
                "--method strace"
            )
    except OSError:
        pass
    return (
        "nothing was recorded: no process called the C library for a file that the patterns select; check --include "
        "and --exclude, or use --method strace for programs that are linked statically or change their user, which "
        "ignore LD_PRELOAD"
    )


def _is_static(path: Path) -> bool:
    """Whether the file is a 64-bit ELF program without an interpreter, that is linked statically."""
    with open(path, "rb") as file:
        head = file.read(64)
        if len(head) < 64 or head[:5] != b"\x7fELF\x02":
            return False
        order = "<" if head[5] == 1 else ">"
        (table,) = struct.unpack_from(f"{order}Q", head, 32)
        size, count = struct.unpack_from(f"{order}HH", head, 54)
        file.seek(table)
        entries = file.read(size * count)
    kinds = {struct.unpack_from(f"{order}I", entries, offset)[0] for offset in range(0, len(entries) - 3, size)}
    return bool(kinds) and _INTERPRETER not in kinds
