"""Memory and CPUs of a rank's readers, as the kernel shows them while they run."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dlio_torch.data.workers.placement import ReadingThread
from dlio_torch.environment.cpu_lists import format_cpus
from dlio_torch.environment.topology.kernel_files import text_of
from dlio_torch.environment.topology.numa import PROC, cpus_of_task


class ReadingLoader(Protocol):
    """Protocol of a loader with worker processes or reader threads."""

    def workers(self) -> Sequence[multiprocessing.process.BaseProcess]:
        """The worker processes."""

    def threads(self) -> Sequence[ReadingThread]:
        """The reader threads of this process."""


@dataclass(frozen=True)
class ReaderFigures:
    """Figures of a rank's readers; CPUs in the kernel's format (``0-3,8``), empty for a reader that has ended.

    Attributes:
        workers: CPUs of each worker process.
        pss_bytes: memory of each worker, ``None`` where it is not known: its own pages, and its part of pages that
            several processes share (PSS).
        threads: CPUs of each reader thread of the rank's own process.
        trainer: CPUs of the trainer's thread.
    """

    workers: tuple[str, ...]
    pss_bytes: tuple[int | None, ...]
    threads: tuple[str, ...]
    trainer: str


def reader_figures(loader: ReadingLoader, threads: tuple[str, ...], proc: Path = PROC) -> ReaderFigures | None:
    """Figures of the readers of a loader; ``None`` if the trainer's thread reads.  The trainer's thread calls it.

    Args:
        loader: the loader, at the end of an epoch, when all workers have begun.
        threads: result of :func:`thread_cpus` at the begin of the epoch.
        proc: folder of the kernel's processes.
    """
    workers = [proc / str(worker.pid) for worker in loader.workers()]
    if not workers and not threads:
        return None
    return ReaderFigures(
        tuple(format_cpus(cpus_of_task(worker)) for worker in workers),
        tuple(pss_bytes(worker) for worker in workers),
        threads,
        format_cpus(os.sched_getaffinity(0)),
    )


def thread_cpus(loader: ReadingLoader) -> tuple[str, ...]:
    """CPUs of each reader thread of a loader, which an engine may end before the epoch does."""
    return tuple(_cpus_of_thread(thread.native_id) for thread in loader.threads())


def _cpus_of_thread(number: int | None) -> str:
    try:
        return "" if number is None else format_cpus(os.sched_getaffinity(number))
    except ProcessLookupError:
        return ""


def pss_bytes(process: Path) -> int | None:
    """Proportional set size of a process in bytes; ``None`` if it has ended or the kernel does not show it.

    Args:
        process: its folder in ``/proc``.
    """
    for line in (text_of(process / "smaps_rollup") or "").splitlines():
        name, _, size = line.partition(":")
        if name == "Pss":
            return int(size.split()[0]) * 1024
    return None
