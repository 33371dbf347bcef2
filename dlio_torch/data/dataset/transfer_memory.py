"""Errors of the memory through which workers transfer batches: shared memory, and a descriptor for each tensor."""

from __future__ import annotations

import errno
import os
import re
from multiprocessing import util

from dlio_torch.errors import DlioError, PreconditionError
from dlio_torch.files.locked_folder import SHARED_MEMORY
from dlio_torch.syserrors import NO_SPACE, errno_of, refused

LOWER = "lower loader.num_workers, loader.prefetch_factor or train.batch_size"
"""Hint that names the options which reduce the memory of batches."""
RAISE = f"raise the size of {SHARED_MEMORY}"
"""Hint for shared memory that is full."""
_BEFORE_FOLDERS = -50  # Python flushes queues at -5, and removes temporary folders at -100
_TORCH = re.compile(r"\((\d+)\)$")  # its messages end with the errno


class TooManyFiles(PreconditionError):
    """The limit of open files is too low for loader workers (exit code 3)."""


def transfer_error(error: Exception) -> DlioError | None:
    """The error of a worker that has no memory, or no descriptor, to transfer a batch; ``None``: not of the system."""
    cause = cause_of(error)
    number = errno_of(cause)
    if number is None:
        return None
    subject = f"a batch of a loader worker (pid {os.getpid()}) could not be transferred"
    if number == errno.EMFILE:
        # At the exit of the process Python would print a traceback: it cannot open its temporary folder to remove it.
        util.Finalize(None, os._exit, args=(0,), exitpriority=_BEFORE_FOLDERS)
        return TooManyFiles(subject)
    if number in (*NO_SPACE, errno.ENOMEM):
        return refused(f"{subject} through {SHARED_MEMORY}", cause, elsewhere=f"{RAISE}, or {LOWER}")
    return refused(subject, cause, elsewhere=LOWER)


def cause_of(error: Exception) -> Exception:
    """The error of the system that an error of torch reports."""
    match = _TORCH.search(str(error))
    return OSError(int(match[1]), os.strerror(int(match[1]))) if match else error
