"""What every worker process needs, whichever library makes it: an end with its trainer that leaves nothing behind."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
import weakref
from collections.abc import Callable
from multiprocessing.connection import wait
from pathlib import Path
from typing import Generic, TypeVar

from dlio_torch.environment.held import SHARED_MEMORY, temporary_folder

_PID = "worker-"
T = TypeVar("T")
R = TypeVar("R")


def workers_folder(owner: object) -> tuple[str, Callable[[], object]]:
    """A temporary folder for the workers of ``owner``, and what removes it: called, or when ``owner`` is collected.

    With the folder goes the shared memory of workers that were killed: see :func:`enter`.
    """
    stack = contextlib.ExitStack()
    folder = stack.enter_context(temporary_folder())
    stack.callback(_remove_segments, folder)
    return str(folder), weakref.finalize(owner, _close_here, stack, os.getpid())


def enter(folder: str) -> None:
    """In a worker: say whose shared memory is to be removed with the folder of the workers.

    torch makes a segment under a name, takes its memory and then removes the name: a worker that is killed meanwhile,
    as the kernel does where memory runs out, leaves a segment that holds its memory until somebody finds it.
    """
    with contextlib.suppress(OSError):  # a temporary file system that is full costs no run
        Path(folder, f"{_PID}{os.getpid()}").touch()


def _remove_segments(folder: Path) -> None:
    for mark in folder.glob(f"{_PID}*"):
        # Whatever of a worker that is alive bears a name is on its way to a trainer that takes nothing any more.
        for segment in SHARED_MEMORY.glob(f"torch_{mark.name.removeprefix(_PID)}_*"):
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
