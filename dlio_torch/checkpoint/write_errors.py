"""Errors of writing checkpoints."""

from __future__ import annotations

import shutil
from pathlib import Path

from dlio_torch.errors import DlioError
from dlio_torch.storage.local.stored_paths import system_error
from dlio_torch.syserrors import refused
from dlio_torch.units import format_size


def cannot_write(path: Path, size: int, error: Exception) -> DlioError:
    """The error of a checkpoint file of ``size`` bytes that cannot be written."""
    try:
        free = f"{format_size(shutil.disk_usage(path.parent).free)} are free"
    except OSError:
        free = "the free space of its folder is unknown"
    return refused(
        f"checkpoint file {path} cannot be written (it needs {format_size(size)}, {free})",
        system_error(error, path.parent, size),
        elsewhere="set checkpoint.root to another file system, or lower checkpoint.keep",
    )
