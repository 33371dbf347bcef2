"""Environment variables that make programs load the recorder's library.

A recorded program sees two additional variables.  So does every program that it starts, even with a new environment
(``clearenv``, ``env -i``); otherwise its calls would not be recorded.  A program that is started with one of the two
empty is not recorded::

    LD_PRELOAD         the library, before the previous value; the dynamic linker loads it
    DLIO_TORCH_POSIX   what to record, and the target folder; the library reads it in each program that loads it

The second variable holds lines, the last of which is the events folder::

    limit=BYTES   largest number of bytes that one process writes
    rank=NUMBER   rank of all processes; without it: from the launcher's variables of each process, else 0
    hook=FILE     Python file that runs in a Python program when it begins to import torch; without it: none
    +PATTERN      files to record; without such lines: every file
    -PATTERN      files to leave out
    /FOLDER       the events folder, absolute; without it nothing is recorded

:mod:`dlio_torch.iotrace.events.path_patterns` defines the patterns.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path

from dlio_torch import native
from dlio_torch.errors import ConfigError
from dlio_torch.iotrace.events.path_patterns import check, with_defaults

LIBRARY = "posix_trace"
VARIABLE = "DLIO_TORCH_POSIX"
DEFAULT_LIMIT_BYTES = 1 << 30
PACKAGE = Path(__file__).parents[2]
"""Folder of this package, whose modules the import hook reads."""
HOOK = Path(__file__).parent / "torch_hook" / "enter.py"
"""File that starts the import hook (:mod:`dlio_torch.iotrace.recorder.torch_hook`)."""
_PATTERNS_ROOM = 16000  # of the library, per list


def environment(
    directory: Path,
    *,
    rank: int | None = None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    defaults: bool = True,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
    hook: Path | None = None,
) -> dict[str, str]:
    """Environment variables with which a program, and all processes that it starts, record their I/O calls.

    Args:
        directory: events folder; must exist when the program runs.
        rank: rank of all processes; None: from the launcher's variables of each process, else 0.
        include: patterns of files to record; none: all.
        exclude: patterns of files to leave out, also of those included.
        defaults: leave out :func:`~dlio_torch.iotrace.events.path_patterns.default_exclude`, too, but for folders in
        which
            something lies that ``include`` names.
        limit_bytes: what one process may write to its files; what comes later is counted, not recorded.
        hook: Python file that starts the import hook; None: only calls are recorded.

    Raises:
        NativeUnavailable: there is no library and none can be compiled.
        ConfigError: the patterns are too long, or one holds a line break.
    """
    if defaults:
        exclude = with_defaults(include, exclude)
    lines = [f"limit={limit_bytes}"]
    if rank is not None:
        lines.append(f"rank={rank}")
    if hook is not None:
        lines.append(f"hook={hook}")
    lines += [*_lines("include", "+", include), *_lines("exclude", "-", exclude)]
    return {
        "LD_PRELOAD": native.preloaded(LIBRARY),
        VARIABLE: "\n".join([*lines, str(Path(directory).absolute())]),
    }


def active() -> bool:
    """Whether the I/O calls of this process are being recorded."""
    if LIBRARY not in os.environ.get("LD_PRELOAD", ""):
        return False
    function = getattr(ctypes.CDLL(None), "dlio_posix_active", None)
    return function is not None and function() != 0


def _lines(option: str, sign: str, patterns: Sequence[str]) -> list[str]:
    check(option, patterns)
    if sum(len(os.fsencode(pattern)) + 1 for pattern in patterns) > _PATTERNS_ROOM:
        raise ConfigError(
            f"the {option} patterns together are longer than {_PATTERNS_ROOM} bytes",
            hint=("give fewer or shorter patterns"),
        )
    return [sign + pattern for pattern in patterns]
