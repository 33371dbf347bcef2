"""Path patterns that select the recorded files, for the preloaded library and for strace.

A pattern with ``*``, ``?`` or ``[`` is a shell pattern for the whole absolute path (``*`` matches slashes, too);
any other is a file, or a folder with all that lies in it.
"""

from __future__ import annotations

import fnmatch
import re
import site
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from dlio_torch.errors import ConfigError

_SYSTEM = ("/proc", "/sys", "/etc", "/run", "/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin")
# Shared memory of libraries; a data set may lie in /dev/shm, too.
_SHARED_MEMORY = tuple(f"/dev/shm/{name}*" for name in ("torch_", "sem.", "psm_", "pym-", "nccl-", "vader_", "ucx_"))
_PROGRAM_TEXT = ("*.py", "*.pyc", "*.so", "*.so.*", "*/__pycache__/*", "*/lib/python3*", "*/lib64/python3*")

NO_FILES = (
    *("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty*", "/dev/pts", "/dev/ptmx"),
    *("/dev/nvidia*", "/dev/dri", "/dev/kfd", "/dev/infiniband", "/dev/fuse"),
)
"""Character devices, which some sources do not distinguish from files."""


def default_exclude() -> tuple[str, ...]:
    """Patterns of files that are not data: system folders, this Python's installation, Python code."""
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, site.getusersitepackages()}
    prefixes -= {"/", str(Path.home()), "/usr"}
    # Python asks for every folder above its own, again and again.
    above = {str(parent) for prefix in prefixes for parent in Path(prefix).parents} - {"/"}
    return (*_SYSTEM, *sorted(prefixes), *map(_only, sorted(above)), *_SHARED_MEMORY, *_PROGRAM_TEXT)


def with_defaults(include: Sequence[str], exclude: Sequence[str]) -> list[str]:
    """``exclude`` and :func:`default_exclude`, without default folders that contain an included path."""
    return [
        *exclude,
        *(pattern for pattern in default_exclude() if not any(_lies_in(name, pattern) for name in include)),
    ]


def check(option: str, patterns: Sequence[str]) -> None:
    """Raises ConfigError for a pattern that can match nothing."""
    for pattern in patterns:
        if "\n" in pattern:
            raise ConfigError(
                f"{option} pattern {pattern!r} contains a line break", hint=("write ? instead of the line break")
            )
        if not pattern.startswith(("/", "*", "?", "[")):
            raise ConfigError((f"{option} pattern {pattern!r} matches no absolute path"), hint=f"write '*/{pattern}'")


def selector(include: Sequence[str], exclude: Sequence[str]) -> Callable[[str], bool]:
    """Returns a function that selects paths: absolute, included (if there are such patterns), not excluded."""
    included, excluded = _matcher(include), _matcher(exclude)
    return lambda path: path.startswith("/") and (not include or included(path)) and not excluded(path)


def _matcher(patterns: Sequence[str]) -> Callable[[str], bool]:
    expressions = []
    for pattern in patterns:
        if any(mark in pattern for mark in "*?["):
            expressions.append(fnmatch.translate(pattern.replace("[^", "[!")))
        else:
            expressions.append(re.escape(pattern) + ("" if pattern.endswith("/") else r"(?:/|\Z)"))
    if not expressions:
        return lambda path: False
    expression = re.compile("|".join(expressions), re.DOTALL)
    return lambda path: expression.match(path) is not None


def _only(folder: str) -> str:
    """Pattern that matches a folder itself, without its content."""
    return f"{folder[:-1]}[{folder[-1]}]"


def _lies_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
