"""Records I/O calls of this process during a part of its life.

The library must be loaded at the start of the process, but the target folder is known only later.  Therefore the
process starts with an idle library (:func:`waiting_environment`), and :func:`recording` activates it, also for the
processes that it starts meanwhile.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from dlio_torch.errors import PreconditionError
from dlio_torch.iotrace.recorder.preload import DEFAULT_LIMIT_BYTES, LIBRARY, environment


def waiting_environment() -> dict[str, str]:
    """Environment variables with which a program can call :func:`recording` later.

    Raises:
        NativeUnavailable: there is no library and none can be compiled.
    """
    return {"LD_PRELOAD": environment(Path("/"))["LD_PRELOAD"]}


def is_waiting() -> bool:
    """Whether this process has loaded the recorder's library."""
    return LIBRARY in os.environ.get("LD_PRELOAD", "") and hasattr(ctypes.CDLL(None), "dlio_posix_begin")


@contextlib.contextmanager
def recording(
    directory: Path,
    *,
    rank: int,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> Iterator[None]:
    """Context in which the I/O calls of this process and of its children are recorded; usable once.

    Args:
        directory: events folder; made where it is missing.
        rank: rank of this process and its children.
        include: see :func:`~dlio_torch.iotrace.recorder.preload.environment`.
        exclude: see there.
        limit_bytes: see there.

    Raises:
        PreconditionError: the folder cannot be made, or the process was started without the library.
        ConfigError: a pattern cannot be used.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PreconditionError(
            f"calls cannot be recorded in {directory}: {error.strerror}", hint="choose another folder"
        ) from error
    variables = environment(directory, rank=rank, include=include, exclude=exclude, limit_bytes=limit_bytes)
    del variables["LD_PRELOAD"]  # as it is
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    library = ctypes.CDLL(None)
    try:
        if not is_waiting() or not library.dlio_posix_begin():
            raise PreconditionError(
                "the calls of this process cannot be recorded: it was started without the recorder's library, or "
                "was recorded before",
                hint="start the program with python -m dlio_torch",
            )
        try:
            yield
        finally:
            library.dlio_posix_end()
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def patterns(places: Sequence[Path | str]) -> list[str]:
    """Path patterns for folders and files, under the names that programs and the kernel use."""
    names: dict[str, None] = {}
    for place in map(str, places):
        is_pattern = any(mark in place for mark in "*?[") and not os.path.exists(place)
        for name in [place] if is_pattern else [os.path.abspath(place), os.path.realpath(place)]:
            names[name] = None
    return list(names)
