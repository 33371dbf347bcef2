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
from multiprocessing import queues
from typing import Any

import torch

from dlio_torch.data.datasets import Failure
from dlio_torch.data.making import Made
from dlio_torch.environment.held import SHARED_MEMORY
from dlio_torch.errors import DlioError, PreconditionError
from dlio_torch.syserrors import NO_SPACE, reason, refused, say

LOWER = "lower loader.num_workers, loader.prefetch_factor or train.batch_size"
"""What takes less memory for batches."""
_RAISE = f"raise the size of {SHARED_MEMORY}"
_LIMITS = {
    errno.EAGAIN: "raise the limit of processes (ulimit -u)",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}
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


def not_started(error: OSError) -> DlioError:
    """The line for workers that could not be started; what was made of them is ended without a word of torch's."""
    hints = {
        errno.EAGAIN: "raise the limit of processes (ulimit -u)",
        errno.EMFILE: "raise that of open files (ulimit -n)",
    }
    hint = hints.get(error.errno or 0, _RAISE if error.errno in NO_SPACE else "look at the limits of this machine")
    before, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        traceback.clear_frames(error.__traceback__)  # which hold iterators that are half made
    finally:
        sys.unraisablehook = before
    text = f"the loader's workers cannot be started: {reason(error)}"
    return PreconditionError(text, hint=f"{hint}, or lower loader.num_workers")


def report_failures() -> None:
    """In a worker: answer for every queue of this process."""
    # Python's own executors replace this method for the same purpose.
    queues.Queue._on_queue_feeder_error = _not_handed_over  # type: ignore[attr-defined]


def _not_handed_over(queue: Any, error: Exception, item: Any) -> None:
    what = f"a batch of a loader worker (pid {os.getpid()}) could not be handed over through {SHARED_MEMORY}"
    failure = Failure(refused(what, _cause(error), elsewhere=f"{_RAISE}, or {LOWER}"))
    answer = _with(failure, item)
    if answer == item:  # nothing that the trainer would know an error in
        say(f"error: {failure.error}")
        os._exit(failure.error.exit_code)
    queue.put(answer)


def _with(failure: Failure, item: Any) -> Any:
    """What a library has put around a batch, with an error in its place."""
    if isinstance(item, Made) or (
        isinstance(item, dict) and any(isinstance(one, torch.Tensor) for one in item.values())
    ):
        return failure
    return tuple(_with(failure, part) for part in item) if isinstance(item, tuple) else item


def _is_batch(item: Any) -> bool:
    return isinstance(item, dict) and any(isinstance(value, torch.Tensor) for value in item.values())


def _cause(error: Exception) -> Exception:
    told = _TORCH.search(str(error))
    return OSError(int(told[1]), os.strerror(int(told[1]))) if told else error
