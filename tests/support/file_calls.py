"""The calls that a program makes on the files of a folder, complete also where threads interrupt each other."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from strace import READS, trace

CALLS = ("openat", "fstat", "mmap", "lseek", *READS, "close")
ADVICE = ""
"""Key of the advice on mapped memory, which names no file."""

_OWN_ADVICE = re.compile("MADV_(DONTNEED|FREE|.*HUGEPAGE|POPULATE)")  # of allocators
_SHOWN = re.compile(r'AT_FDCWD<[^>]*>, "[^"]*"|\d+<[^>]*>|\{.*\}')

FileCall = tuple[str, str, int]
"""Name, arguments without the file, and result; that of opening and mapping is 0."""


def calls_on_files(
    program: str, folder: Path, suffix: str, *arguments: str, env: Mapping[str, str]
) -> dict[str, list[FileCall]]:
    """Run a Python program under strace.

    Args:
        program: its text; what it does before it opens the file ``mark`` does not count.
        folder: working directory.
        suffix: of the files of interest.
        arguments: of the program.
        env: its environment.

    Returns:
        The calls on each file, by its name, in their order; advice on mapped memory, sorted, under ``ADVICE``.
    """
    command = [sys.executable, "-c", program, *arguments]
    calls = trace(command, folder / "log", cwd=folder, env=env, traced=(*CALLS, "madvise"))
    begin = max((i for i, call in enumerate(calls) if call.path.endswith("/mark")), default=0)
    files: dict[str, list[FileCall]] = defaultdict(list)
    for call in calls[begin:]:
        if call.name == "madvise":
            if not _OWN_ADVICE.search(call.arguments):
                files[ADVICE].append((call.name, call.arguments.partition(", ")[2], call.result))
            continue
        file = re.search(rf"/([-\w]+{re.escape(suffix)})[\">|]", f"{call.path}|{call.arguments}")
        if file is not None:
            result = 0 if call.name in ("openat", "mmap") else call.result
            files[file[1]].append((call.name, _SHOWN.sub("F", call.arguments), result))
    files[ADVICE].sort()
    return dict(files)
