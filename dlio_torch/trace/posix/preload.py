"""The environment in which programs record their I/O calls, and whether this process does.

Variables that the library reads when it is loaded, and again in each program that the tree executes::

    DLIO_TORCH_POSIX_DIRECTORY   events folder, absolute; without it nothing is recorded
    DLIO_TORCH_POSIX_RANK        rank of all processes; unset: from the launcher's variables of each, else 0
    DLIO_TORCH_POSIX_INCLUDE     patterns, one per line; none: every file
    DLIO_TORCH_POSIX_EXCLUDE     patterns, one per line
    DLIO_TORCH_POSIX_LIMIT       bytes that one process may write

Patterns are those of :mod:`dlio_torch.trace.posix.patterns`.  A program that is started with an environment of its
own making gets these variables, too, but for one in which ``LD_PRELOAD`` or ``DLIO_TORCH_POSIX_DIRECTORY`` is empty.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path

from dlio_torch import native
from dlio_torch.errors import ConfigError
from dlio_torch.trace.posix.patterns import check, with_defaults

LIBRARY = "posix_trace"
DEFAULT_LIMIT_BYTES = 1 << 30
_PATTERNS_ROOM = 16000  # of the library, per list


def environment(
    directory: Path,
    *,
    rank: int | None = None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    defaults: bool = True,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> dict[str, str]:
    """Variables to add to those of a program so that it, and all that it starts, record their I/O calls.

    Args:
        directory: events folder; must exist when the program runs.
        rank: rank of all processes; None: from the launcher's variables of each process, else 0.
        include: patterns of files to record; none: all.
        exclude: patterns of files to leave out, also of those included.
        defaults: leave out :func:`~dlio_torch.trace.posix.patterns.default_exclude`, too, but for folders in which
            something lies that ``include`` names.
        limit_bytes: what one process may write to its files; what comes later is counted, not recorded.

    Raises:
        NativeUnavailable: there is no library and none can be compiled.
        ConfigError: the patterns are too long, or one holds a line break.
    """
    if defaults:
        exclude = with_defaults(include, exclude)
    variables = {
        "LD_PRELOAD": native.preloaded(LIBRARY),
        "DLIO_TORCH_POSIX_DIRECTORY": str(Path(directory).absolute()),
        "DLIO_TORCH_POSIX_INCLUDE": _joined("include", include),
        "DLIO_TORCH_POSIX_EXCLUDE": _joined("exclude", exclude),
        "DLIO_TORCH_POSIX_LIMIT": str(limit_bytes),
    }
    if rank is not None:
        variables["DLIO_TORCH_POSIX_RANK"] = str(rank)
    return variables


def active() -> bool:
    """Whether the I/O calls of this process are being recorded."""
    if LIBRARY not in os.environ.get("LD_PRELOAD", ""):
        return False
    function = getattr(ctypes.CDLL(None), "dlio_posix_active", None)
    return function is not None and function() != 0


def _joined(option: str, patterns: Sequence[str]) -> str:
    check(option, patterns)
    text = "\n".join(patterns)
    if len(os.fsencode(text)) + len(patterns) > _PATTERNS_ROOM:
        raise ConfigError(f"the {option} patterns are longer than {_PATTERNS_ROOM} bytes", hint="use fewer")
    return text
