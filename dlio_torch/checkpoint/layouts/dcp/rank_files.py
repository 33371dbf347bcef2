"""Files of a checkpoint of ``torch.distributed.checkpoint``, by the rank that writes them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from dlio_torch.checkpoint.cached_pages import drop_pages
from dlio_torch.ownership.names import numbers

METADATA = ".metadata"
"""Name of the description of all ranks' files, which the first rank writes last."""


def folder_of(directory: Path, step: int) -> Path:
    """Folder of the checkpoint of a step."""
    return directory / f"step-{step}"


def metadata_path(folder: Path, rank: int, *, collectives: bool) -> Path:
    """The description that a load of this rank reads: that of all ranks, or without collectives its own."""
    return folder / (METADATA if collectives else f"__{rank}{METADATA}")


def ownership_entries() -> list[str]:
    """Entries for all files (see :mod:`dlio_torch.ownership.names`)."""
    step, rank = numbers(), numbers()
    described = (METADATA, f"{METADATA}.tmp", f"__{rank}{METADATA}", f"__{rank}{METADATA}.tmp")
    return [f"step-{step}/{name}" for name in (f"__{rank}_{numbers()}.distcp", *described)]


def rank_files(folder: Path, rank: int) -> list[Path]:
    """Files that a rank has written, its description first, so that a checkpoint that is deleted is incomplete."""
    prefixes = (f"__{rank}_", f"__{rank}{METADATA}", *([METADATA] if rank == 0 else []))
    with contextlib.suppress(OSError):
        names = [name for name in os.listdir(folder) if name.startswith(prefixes)]
        return [folder / name for name in sorted(names, key=lambda name: (METADATA not in name, name))]
    return []


def saved_size(folder: Path, rank: int) -> int:
    """Bytes of the files that a rank has written."""
    return sum(path.stat().st_size for path in rank_files(folder, rank))


def delete(folder: Path, rank: int) -> None:
    """Delete a rank's files, and the folder when it is empty."""
    for path in rank_files(folder, rank):
        with contextlib.suppress(OSError):
            path.unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()


def drop_cached_pages(folder: Path, rank: int) -> None:
    """Drop a rank's files from the page cache.

    Raises:
        DlioError: a file cannot be opened.
    """
    drop_pages(rank_files(folder, rank))
