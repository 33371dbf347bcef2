"""Checkpoint files in the page cache."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dlio_torch.storage.local.eviction import drop_from_cache
from dlio_torch.syserrors import refused


def drop_pages(paths: Iterable[Path]) -> None:
    """Drop files from the page cache; they have been flushed.

    Raises:
        DlioError: a file cannot be opened (see :mod:`dlio_torch.syserrors`).
    """
    for path in paths:
        try:
            drop_from_cache(path, flush=False)
        except OSError as error:
            raise refused(f"checkpoint file {path} cannot be opened", error) from error
