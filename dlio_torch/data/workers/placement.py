"""Placement of a rank's readers: the CPUs on which worker processes and reader threads run (``loader.affinity``)."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

Cpus = tuple[int, ...]
"""CPU numbers; empty: no restriction."""


class ReadingThread(Protocol):
    """Protocol of a thread that reads: one of Python's or a native one."""

    @property
    def native_id(self) -> int | None:
        """Number that the kernel gave it; ``None``: it has not begun."""


@dataclass(frozen=True)
class NativeThread:
    """Thread that runs no Python.

    Attributes:
        native_id: number that the kernel gave it.
    """

    native_id: int


@dataclass(frozen=True)
class Placement:
    """CPUs of a rank's readers and of its trainer.

    Attributes:
        readers: CPUs of each worker process, or of each reader thread of a loader without workers; readers beyond the
            last entry begin with the first one again.  Empty: nothing is placed.
        trainer: CPUs of the trainer's thread and of all that it starts; empty: they stay as they are.
        usable: CPUs that the rank may use; empty: nothing is placed.
        notes: reasons why the placement differs from the requested one.
    """

    readers: tuple[Cpus, ...] = ()
    trainer: Cpus = ()
    usable: Cpus = ()
    notes: tuple[str, ...] = ()

    def of_reader(self, number: int) -> Cpus:
        """CPUs of a worker process or reader thread, counted from 0."""
        return self.readers[number % len(self.readers)] if self.readers else ()

    def place_threads(self, threads: Iterable[ReadingThread]) -> None:
        """Restrict running reader threads, in the order of their numbers."""
        for number, thread in enumerate(threads):
            if thread.native_id is not None:
                place_thread(thread.native_id, self.of_reader(number))


UNPLACED = Placement()
"""Placement of a loader whose readers run on all CPUs of the process."""


def place_thread(thread: int, cpus: Collection[int]) -> None:
    """Restrict one thread to CPUs, if it still runs and the system still lets it run there.

    Args:
        thread: number that the kernel gave it; 0: the calling thread.
        cpus: empty: nothing is changed.
    """
    with contextlib.suppress(OSError):
        if cpus:
            os.sched_setaffinity(thread, cpus)


def place_process(pid: int, cpus: Collection[int]) -> None:
    """Restrict all threads of a process to CPUs, the main thread first: later threads of it inherit that.

    Args:
        pid: number of the process.
        cpus: empty: nothing is changed.
    """
    place_thread(pid, cpus)
    if not cpus:
        return
    with contextlib.suppress(OSError):  # it may end meanwhile
        for task in Path(f"/proc/{pid}/task").iterdir():
            place_thread(int(task.name), cpus)


def place_trainer(placement: Placement) -> Callable[[], None]:
    """Restrict the calling thread, which is the trainer's; returns a function that undoes it."""
    thread, before = threading.get_native_id(), os.sched_getaffinity(0)
    place_thread(thread, placement.trainer)
    return partial(place_thread, thread, before if placement.trainer else ())
