"""Sockets and segments of shared memory that processes of this user left behind."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from pathlib import Path

# Named shared memory of torch, Python's multiprocessing and MPICH.
_SHARED = re.compile(r"torch_\d+_\d+.*|psm_[0-9a-f]+|sem\.mp-\w+|mpich_sh(ar_tmp|m_)\w+")


def is_old(path: Path) -> bool:
    """Whether a file has not changed for a minute; a newer file may still be written."""
    with contextlib.suppress(OSError):
        return time.time() - path.stat().st_mtime > 60
    return False


def unused_sockets() -> list[Path]:
    """Folders of Python's multiprocessing whose sockets no process uses any more."""
    try:
        bound = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    folders = [path for path in Path(tempfile.gettempdir()).glob("pymp-*") if path.is_dir() and _is_mine(path)]
    return sorted(path for path in folders if is_old(path) and f"{path}/" not in bound)


def unused_segments(shared: Path) -> list[Path]:
    """Segments of shared memory of this user that libraries made and no process has mapped."""
    segments = [path for path in sorted(shared.glob("*")) if _SHARED.fullmatch(path.name) and _is_mine(path)]
    if not segments:
        return []
    used = _files_in_use(shared)
    return [path for path in segments if is_old(path) and str(path) not in used]


def _is_mine(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.lstat().st_uid == os.geteuid()
    return False


def _files_in_use(folder: Path) -> set[str]:
    """Files of a folder that are mapped by processes whose maps this user may read."""
    files: set[str] = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            for line in maps.read_text(errors="replace").splitlines():
                name = line.partition("/")[2]
                if f"/{name}".startswith(str(folder)):
                    files.add(f"/{name}")
    return files
