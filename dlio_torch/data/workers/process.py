"""What every worker process needs, whichever library makes it: an end with its trainer that leaves nothing behind."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Generic, TypeVar

from dlio_torch.storage.local.locked_folder import SHARED_MEMORY, temporary_folder

T = TypeVar("T")
R = TypeVar("R")


def workers_folder(owner: object) -> tuple[str, Callable[[], object]]:
    """A temporary folder for the workers of ``owner``, and what removes it: called, or when ``owner`` is collected."""
    stack = contextlib.ExitStack()
    folder = str(stack.enter_context(temporary_folder()))
    return folder, weakref.finalize(owner, _close_here, stack, os.getpid())


def remove_segments(workers: Sequence[BaseProcess]) -> None:
    """Remove shared memory that workers have left which were killed; all of them have ended.

    torch makes a segment under a name, takes its memory and then removes the name: a worker that is killed meanwhile,
    as the kernel does where memory runs out, leaves a segment that holds its memory until somebody finds it.
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
    """A function that is called in worker processes of a library that gives them no beginning and no end of our own.

    At the first call in a process, ``begin`` is called, and a thread begins to wait for the end of the parent: workers
    of torchdata's nodes would go on for ever where it is killed.

    Args:
        function: what is called; pickled together with this object where workers are spawned, as ``begin``.
        begin: called once in each worker.
    """

    def __init__(self, function: Callable[[T], R], begin: Callable[[], object]) -> None:
        self._function = function
        self._begin = begin
        self._pid = os.getpid()

    def __call__(self, argument: T) -> R:
        """Call the function."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._begin()
            threading.Thread(target=_end_with_the_parent, name="watch of the parent", daemon=True).start()
        return self._function(argument)


def _end_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)  # nobody is there to whom anything could be said
