"""Eviction of files from the page cache, and reads that fill it, by any user who may read the files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from dlio_torch.environment.mounts import describe_mount

MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs", "hugetlbfs", "devtmpfs", "rootfs")
"""File systems whose files exist only in the page cache."""

_READ_BYTES = 4 << 20


def evict(path: Path | str) -> str | None:
    """Evict a file from the page cache: ``fsync``, then ``posix_fadvise(DONTNEED)``.

    Linux drops only clean pages that no process has mapped, so dirty pages are written first.  It does not report
    whether it dropped them: measure :func:`~dlio_torch.storage.local.page_cache.cached_share`.

    Returns:
        Error in words; ``None`` if the system accepted the request.
    """
    try:
        unflushed = drop_from_cache(path, flush=True)
    except OSError as error:
        return f"{path} cannot be evicted: {error.strerror}"
    return None if unflushed is None else f"{path} cannot be flushed: {unflushed.strerror}"


def drop_from_cache(path: Path | str, *, flush: bool) -> OSError | None:
    """Drop the clean pages of a file from the page cache.

    Args:
        path: the file.
        flush: whether dirty pages are written first.

    Returns:
        The error of the flush; what is dirty stays, and the rest is dropped.

    Raises:
        OSError: the file cannot be opened, or the system refuses the request.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        unflushed = _flushed(descriptor) if flush else None
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return unflushed
    finally:
        os.close(descriptor)


def _flushed(descriptor: int) -> OSError | None:
    """Writes the dirty pages of an open file; returns the error, ``None`` without one."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        return error
    return None


def read_through(path: Path | str) -> str | None:
    """Read a file once from start to end; returns an error in words, ``None`` without one."""
    buffer = bytearray(_READ_BYTES)
    try:
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    return None


def why_cached(path: Path | str) -> str:
    """Likely reason that a file still lies in the page cache after :func:`evict`, in words."""
    kind = describe_mount("", Path(path), {})["file_system"]
    if kind in MEMORY_FILE_SYSTEMS:
        return f"{kind} keeps its files in memory"
    users = mapped_by(path)
    if users:
        return f"{Path(path).name} is mapped by {', '.join(users)}"
    return (
        "pages of the file are in use: mapped by a process of another user, not yet written back, "
        f"or read by another process meanwhile ({kind or 'unknown'} file system)"
    )


def mapped_by(path: Path | str) -> list[str]:
    """Processes of this user that have mapped a file, as ``name (pid)``."""
    try:
        status = os.stat(path)
    except OSError:
        return []
    wanted = f" {os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x} {status.st_ino} "
    processes = []
    for folder in _processes():
        # They come and go, and those of others cannot be read.
        with contextlib.suppress(OSError):
            if wanted in (folder / "maps").read_text(encoding="utf-8", errors="replace"):
                name = (folder / "comm").read_text(encoding="utf-8", errors="replace").strip()
                processes.append(f"{name} ({folder.name})")
    return processes


def _processes() -> Iterable[Path]:
    with contextlib.suppress(OSError):
        yield from (entry for entry in sorted(Path("/proc").iterdir()) if entry.name.isdigit())
