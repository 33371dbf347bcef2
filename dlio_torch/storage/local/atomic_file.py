"""Files that get their names when they are complete."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from dlio_torch.syserrors import refused


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of ``path`` when the body is done; after an exception all is as before.

    Raises:
        DlioError: the file cannot be written (see :mod:`dlio_torch.syserrors`).
    """
    temporary: str | None = None
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            remove_unfinished(path)
            descriptor, temporary = _temporary(path)
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(file.fileno(), 0o666 & ~_umask())
                yield file
                file.flush()
                os.fsync(file.fileno())
                os.replace(temporary, path)  # while it is held
                temporary = None
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def remove_unfinished(path: Path) -> None:
    """Remove what processes that were killed have left of writing ``path``; who still writes holds a lock."""
    for left in unfinished(path.parent, path.name):
        with contextlib.suppress(OSError):
            left.unlink()


def unfinished(folder: Path, name: str = "*") -> list[Path]:
    """Files in a folder that :func:`replaced` has begun in a process that was killed.

    Args:
        folder: where they lie.
        name: of the file that was written; "*": of any.
    """
    found = []
    pattern = name if name == "*" else glob.escape(name)
    for path in sorted(folder.glob(f".{pattern}.????????.tmp")):
        with contextlib.suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found.append(path)
    return found


def _temporary(path: Path) -> tuple[int, str]:
    """A file beside ``path``, held by a lock while it is open; its descriptor and name."""
    while True:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        with contextlib.suppress(OSError):  # a file system without locks: nobody else gets one either
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        if os.fstat(descriptor).st_nlink:
            return descriptor, name
        os.close(descriptor)  # somebody took it for left over, before it was held


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an error of the system into the line that the user sees.

    Raises:
        DlioError: ``path`` cannot be written (see :mod:`dlio_torch.syserrors`).
    """
    try:
        yield
    except OSError as error:
        raise refused(f"{path} cannot be written", error, elsewhere="set output.root") from error


def _umask() -> int:
    # The mask can only be read by setting it, which other threads would see; /proc tells it too.
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("Umask:"):
                    return int(line.split()[1], 8)
    except OSError:
        pass
    return 0o022
