"""Lock of a data set that is being written, and removal of partial files of a killed generation."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path

from dlio_torch.data.dataset.manifest import SPLITS
from dlio_torch.dist.base import Communicator
from dlio_torch.errors import PreconditionError
from dlio_torch.files.atomic_file import PART
from dlio_torch.ownership.names import LOCK
from dlio_torch.storage.local.stored_paths import remove
from dlio_torch.syserrors import refused

_STALE = re.compile(
    rf"\.({'|'.join(SPLITS)})_[0-9]{{7,}}.*{re.escape(PART)}.*|\.dlio_torch\.\w+\.[0-9]+{re.escape(PART)}"
)


class BeingWritten(PreconditionError):
    """Error for a data set that another process is writing (exit code 3)."""


@contextlib.contextmanager
def exclusive(folder: Path, comm: Communicator) -> Iterator[None]:
    """Hold the folder's lock on rank 0, so that two runs do not write the same data set at once."""
    if comm.rank != 0:
        comm.barrier()
        yield
        return
    with contextlib.ExitStack() as stack:
        with unwritable(folder):
            folder.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context((folder / LOCK).open("w"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BeingWritten(
                f"another process is writing {folder}",
                hint="wait for the other process, or choose another dataset.root",
            ) from error
        except OSError:
            pass  # a file system without locks: final names still appear only when files are complete
        with unwritable(folder):
            for stale in list(_unfinished(folder)):
                remove(stale)
        comm.barrier()
        yield


def _unfinished(folder: Path | str) -> Iterator[Path]:
    """Partial files of a killed generation, recognised by name, in the folder and its subfolders."""
    with contextlib.suppress(PermissionError), os.scandir(folder) as entries:
        for entry in entries:
            if _STALE.fullmatch(entry.name):
                yield Path(entry.path)
            elif entry.is_dir(follow_symlinks=False):
                yield from _unfinished(entry.path)


@contextlib.contextmanager
def unwritable(folder: Path) -> Iterator[None]:
    """Turn an OSError into the one-line error that the user sees."""
    try:
        yield
    except OSError as error:
        raise refused(
            f"the data set cannot be written to {folder}", error, elsewhere="choose another dataset.root"
        ) from error
