"""Transfer errors: a worker that cannot transfer a batch sends a one-line error instead.

Workers transfer batches through shared memory, of which a container often has 64 MiB.  If it is full, Python's
queue prints a traceback in a thread of its own and drops the batch, and the trainer waits for it until its limit.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from typing import Any

import torch

from dlio_torch.data.dataset.fetched import Fetched, failed
from dlio_torch.data.dataset.transfer_memory import RAISE, cause_of, transfer_error
from dlio_torch.environment.private_names import on_transfer_error
from dlio_torch.errors import DlioError
from dlio_torch.syserrors import NO_SPACE, errno_of, refused, say


def shared_numbers(count: int) -> torch.Tensor:
    """Allocates zeros (int64) in shared memory of the trainer and its workers.

    Raises:
        DlioError: shared memory is full.
    """
    try:
        return torch.zeros(count, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call, no-any-return]
    except RuntimeError as error:
        raise refused(
            "shared memory for the loader workers cannot be created", cause_of(error), elsewhere=RAISE
        ) from error


def not_started(error: Exception) -> DlioError:
    """Makes the error for workers or threads that the system could not start."""
    if "start new thread" in str(error):  # Python's message has no errno
        error = OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    elsewhere = RAISE if errno_of(error) in NO_SPACE else "lower loader.num_workers"
    return refused("the loader's workers cannot be started", error, elsewhere=elsewhere)


def drop_frames(error: BaseException) -> None:
    """Free the objects in the frames of an error now, without printing errors of their destructors."""
    before, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        traceback.clear_frames(error.__traceback__)
    finally:
        sys.unraisablehook = before


def report_failures() -> None:
    """Make a worker send an error whenever one of its queues cannot transfer an item."""
    on_transfer_error(_send_error)


def _send_error(queue: Any, error: Exception, item: Any) -> None:
    line = transfer_error(error)
    if line is None:  # a bug
        traceback.print_exception(error)
        os._exit(1)
    answer = _replace_batch(failed(line), item)
    if answer == item:  # it holds no batch that an error could replace
        say(f"error: {line}")
        os._exit(line.exit_code)
    queue.put(answer)


def _replace_batch(failure: Fetched, item: Any) -> Any:
    """Replaces the batch in an item of a queue, possibly inside a library's tuple, by an error."""
    if isinstance(item, Fetched):
        return failure
    return tuple(_replace_batch(failure, part) for part in item) if isinstance(item, tuple) else item
