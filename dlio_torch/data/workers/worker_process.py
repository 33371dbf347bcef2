"""Set-up of worker processes of any library: temporary folder, exit with the trainer, removal of shared memory."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from typing import Generic, TypeVar

from dlio_torch.files.locked_folder import SHARED_MEMORY, temporary_folder
from dlio_torch.supervision.parent_exit import exit_with_parent

T = TypeVar("T")
R = TypeVar("R")


def workers_folder(owner: object) -> tuple[str, Callable[[], object]]:
    """Creates a temporary folder for workers, and the function that removes it; the end of ``owner`` calls that too."""
    stack = contextlib.ExitStack()
    folder = str(stack.enter_context(temporary_folder()))
    return folder, weakref.finalize(owner, _close_here, stack, os.getpid())


def remove_segments(workers: Sequence[BaseProcess]) -> None:
    """Remove the shared memory of killed workers; all workers must have ended.

    torch creates a named segment, takes its memory and then removes the name.  A worker that is killed in between,
    for example by the out-of-memory killer, leaves a segment that holds its memory.
    """
    killed = [worker.pid for worker in workers if worker.exitcode]
    for segment in SHARED_MEMORY.glob("torch_*") if killed else ():
        if any(segment.name.startswith(f"torch_{pid}_") for pid in killed):
            with contextlib.suppress(OSError):
                segment.unlink()


def _close_here(stack: contextlib.ExitStack, owner: int) -> None:
    if os.getpid() == owner:  # not in a worker that was forked
        stack.close()


class InWorker(Generic[T, R]):
    """Function wrapper that sets up worker processes of a library without hooks for their start and exit.

    The first call in a process calls ``begin`` and starts a thread that waits for the exit of the parent: without it,
    workers of torchdata's nodes would run on after their trainer was killed.

    Args:
        function: the function; like ``begin`` it is pickled with this object if workers are spawned.
        begin: called once in each worker.
    """

    def __init__(self, function: Callable[[T], R], begin: Callable[[], object]) -> None:
        self._function = function
        self._begin = begin
        self._pid = os.getpid()

    def __call__(self, argument: T) -> R:
        """Set up the worker process at the first call, and call the function."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._begin()
            exit_with_parent()
        return self._function(argument)
