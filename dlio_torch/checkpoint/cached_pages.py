"""Checkpoint files in the page cache."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from dlio_torch.syserrors import refused


def drop_pages(paths: Iterable[Path]) -> None:
    """Drop files from the page cache; they have been flushed.

    Raises:
        DlioError: a file cannot be opened (see :mod:`dlio_torch.syserrors`).
    """
    for path in paths:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise refused(f"checkpoint file {path} cannot be opened", error) from error
