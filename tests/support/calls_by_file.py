"""The system calls that a program of several threads makes on each file of a folder."""

from __future__ import annotations

import os
import re
import sys
from collections import defaultdict
from pathlib import Path

from strace import READS, trace

CALLS = ("openat", "newfstatat", "?fstat", "?statx", "mmap", "lseek", "fadvise64", *READS, "close")

_SHOWN = re.compile(r'\d+<[^>]*>|"[^"]*"|\{.*\}|0x[0-9a-f]+')
_PLACE = re.compile(r'<(/[^>]*)>|"(/?[^"]+)"')

FileCall = tuple[str, str, int]
"""Name, arguments without file, addresses and structures, and result; that of opening and mapping is 0."""


def calls_by_file(program: str, folder: Path, *arguments: str) -> dict[str, list[FileCall]]:
    """Run a Python program under strace.

    Args:
        program: its text.
        folder: its working directory.
        arguments: of the program.

    Returns:
        The calls on each file below the folder, by its path from there, in their order; also of opens that failed.
    """
    command = [sys.executable, "-c", program, *arguments]
    files: dict[str, list[FileCall]] = defaultdict(list)
    for call in trace(command, folder.parent / "log", cwd=folder, env=dict(os.environ), traced=CALLS):
        places = [os.path.join(folder, first or second) for first, second in _PLACE.findall(call.arguments)]
        below = [os.path.relpath(place, folder) for place in places if place.startswith(f"{folder}/")]
        if below:
            result = 0 if call.name in ("openat", "mmap") and call.result > 0 else call.result
            files[below[-1]].append((call.name, _SHOWN.sub("F", call.arguments), result))
    return dict(files)


def below(calls: dict[str, list[FileCall]], folder: str) -> dict[str, list[FileCall]]:
    """The calls on the files of one folder, by their paths from there."""
    return {name.removeprefix(f"{folder}/"): files for name, files in calls.items() if name.startswith(f"{folder}/")}
