"""Where trainer and loader workers cannot share what they must: one line, no wait, no traceback.

Workers pass batches on through shared memory, of which a container often has 64 MiB.  Where it is used up, Python's
queue prints a traceback in a thread of its own and drops the batch, for which the trainer then waits: here an error
takes its place.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from multiprocessing import util
from typing import Any

import torch

from dlio_torch.data.dataset.fetched import Fetched, failed
from dlio_torch.data.workers.open_files import TooManyFiles
from dlio_torch.environment.private_names import on_transfer_error
from dlio_torch.errors import DlioError
from dlio_torch.storage.local.locked_folder import SHARED_MEMORY
from dlio_torch.syserrors import NO_SPACE, errno_of, refused, say

LOWER = "lower loader.num_workers, loader.prefetch_factor or train.batch_size"
"""What takes less memory for batches."""
_BEFORE_FOLDERS = -50  # Python sends what queues hold at -5, and removes temporary folders at -100
_RAISE = f"raise the size of {SHARED_MEMORY}"
_TORCH = re.compile(r"\((\d+)\)$")  # its texts end with the number that the system gave


def shared_numbers(count: int) -> torch.Tensor:
    """Zeros that workers share with the trainer (int64), in shared memory.

    Raises:
        DlioError: there is no room for them.
    """
    try:
        return torch.zeros(count, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call, no-any-return]
    except RuntimeError as error:
        raise refused("shared memory cannot be made", _cause(error), elsewhere=_RAISE) from error


def not_started(error: Exception) -> DlioError:
    """The line for workers and threads that the system does not let us start."""
    if "start new thread" in str(error):  # all that Python says
        error = OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    elsewhere = _RAISE if errno_of(error) in NO_SPACE else "lower loader.num_workers"
    return refused("the loader's workers cannot be started", error, elsewhere=elsewhere)


def drop_frames(error: BaseException) -> None:
    """Have what is half made in the frames of an error collected now, without a word of its destructors."""
    before, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        traceback.clear_frames(error.__traceback__)
    finally:
        sys.unraisablehook = before


def report_failures() -> None:
    """In a worker: answer for every queue of this process."""
    on_transfer_error(_not_handed_over)


def _not_handed_over(queue: Any, error: Exception, item: Any) -> None:
    cause = _cause(error)
    number = errno_of(cause)
    if number is None:  # nothing that the system refuses: a bug
        traceback.print_exception(error)
        os._exit(1)
    what = f"a batch of a loader worker (pid {os.getpid()}) could not be handed over"
    refusal: DlioError
    if number == errno.EMFILE:
        refusal = TooManyFiles(what)
        # At the end of the process Python would print a traceback: it cannot open its temporary folder to remove it.
        util.Finalize(None, os._exit, args=(0,), exitpriority=_BEFORE_FOLDERS)
    elif number in (*NO_SPACE, errno.ENOMEM):
        refusal = refused(f"{what} through {SHARED_MEMORY}", cause, elsewhere=f"{_RAISE}, or {LOWER}")
    else:
        refusal = refused(what, cause, elsewhere=LOWER)
    answer = _with(failed(refusal), item)
    if answer == item:  # nothing that the trainer would know an error in
        say(f"error: {refusal}")
        os._exit(refusal.exit_code)
    queue.put(answer)


def _with(failure: Fetched, item: Any) -> Any:
    """What a library has put around a batch, with an error in its place."""
    if isinstance(item, Fetched):
        return failure
    return tuple(_with(failure, part) for part in item) if isinstance(item, tuple) else item


def _cause(error: Exception) -> Exception:
    told = _TORCH.search(str(error))
    return OSError(int(told[1]), os.strerror(int(told[1]))) if told else error
