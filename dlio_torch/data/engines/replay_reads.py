"""Replay of reads (``loader.replay=reads``): read calls on the data are answered from memory by a preloaded library.

The files are mapped before training, whole and with all their pages, by a small C library that stands before
the C library's calls; a read is then a copy without a system call, whichever library asks for it (HDF5's,
Python's, Arrow's).  Opening a file, asking for its status and closing it remain system calls.  Files that a
format maps itself are never read by calls, so nothing changes for them.

As with recording, the library must be there when the process starts.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

from dlio_torch import native
from dlio_torch.errors import PreconditionError
from dlio_torch.files.locked_folder import temporary_folder

LIBRARY = "memory_reads"
FILES_VARIABLE = "DLIO_TORCH_MEMORY_FILES"
DELAY_VARIABLE = "DLIO_TORCH_MEMORY_DELAY"
"""Environment variable of :mod:`dlio_torch.data.engines.delayed_reads`."""
_MAPS = Path("/proc/sys/vm/max_map_count")
_MAPS_DEFAULT = 65530


def waiting_environment() -> dict[str, str]:
    """Environment variables that preload the library which :func:`serve` needs.

    Raises:
        NativeUnavailable: there is no library and none can be compiled.
    """
    return {"LD_PRELOAD": native.preloaded(LIBRARY)}


def is_waiting() -> bool:
    """Whether this process was started with the preloaded library."""
    return LIBRARY in os.environ.get("LD_PRELOAD", "") and hasattr(ctypes.CDLL(None), "dlio_memory_serve")


def serve(files: Iterable[Path]) -> int:
    """Answer reads of these files from memory, in this process and those that it starts; returns their bytes.

    Raises:
        PreconditionError: the process was started without the library, or a file cannot be mapped.
    """
    paths = [file.absolute() for file in files]
    if not is_waiting():
        raise PreconditionError(
            "loader.replay=reads needs a library that must be preloaded when the process starts",
            hint="start the run with python -m dlio_torch",
        )
    most = _most_files()
    if len(paths) > most:
        raise PreconditionError(
            f"loader.replay=reads: {len(paths)} files cannot be mapped; this system allows about {most} mappings",
            hint="use fewer files (scale=tiny), or raise vm.max_map_count",
        )
    library = ctypes.CDLL(None)
    for path in paths:
        error = library.dlio_memory_serve(os.fsencode(path))
        if error:
            raise PreconditionError(
                f"loader.replay=reads: {path} cannot be mapped: {os.strerror(error)}", hint="set loader.replay=none"
            )
    _tell_children(paths)
    return sum(path.stat().st_size for path in paths)


def _most_files() -> int:
    """Maximum number of files: half of the mappings of a process, limited by the size of the library's table."""
    try:
        allowed = int(_MAPS.read_text())
    except (OSError, ValueError):
        allowed = _MAPS_DEFAULT
    return min(allowed // 2, 1 << 16)


def _tell_children(paths: Iterable[Path]) -> None:
    """Prepare child processes: forked workers inherit the mappings, spawned workers read the list of files."""
    stack = contextlib.ExitStack()
    listed = stack.enter_context(temporary_folder()) / "files"
    listed.write_bytes(b"".join(os.fsencode(path) + b"\n" for path in paths))
    os.environ[FILES_VARIABLE] = str(listed)
    os.environ.pop(DELAY_VARIABLE, None)
    atexit.register(_forget, stack, os.getpid())


def _forget(stack: contextlib.ExitStack, owner: int) -> None:
    if os.getpid() == owner:
        stack.close()
