"""One-line errors of loaders besides damaged files, and the set-up of workers for them."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing import resource_sharer
from multiprocessing.process import BaseProcess
from types import TracebackType

from dlio_torch.data.dataset.transfer_memory import TooManyFiles
from dlio_torch.data.workers.descriptor_limits import EXIT_CODE, is_too_many
from dlio_torch.data.workers.exits import WorkerLimits, exit_in, exit_of
from dlio_torch.data.workers.placement import UNPLACED, Placement, place_process
from dlio_torch.data.workers.transfer_errors import not_started, report_failures
from dlio_torch.errors import DlioError, RunFailed
from dlio_torch.supervision.crashes import report_crashes
from dlio_torch.supervision.parent_exit import die_with_parent
from dlio_torch.supervision.reader_activity import describe_readers

_SIGNAL_S = 0.5  # for the signal of a worker's exit to arrive


class NoBatch(RunFailed):
    """Error if no batch arrived within the time limit."""


def no_batch(source: str, timeout_s: float) -> NoBatch:
    """Makes the error for a source that gave no batch within ``timeout_s`` seconds."""
    return NoBatch(
        f"no batch came from the {source} for {timeout_s:g} s",
        hint="check the file system, or raise loader.timeout_s",
    )


def explain(
    error: Exception,
    timeout_s: float,
    workers: Sequence[BaseProcess],
    limits: WorkerLimits,
    *,
    starting: bool = False,
) -> DlioError:
    """Makes the one-line error for an exception of a loader.

    Args:
        error: the exception.
        timeout_s: longest wait for a batch, seconds.
        workers: processes that read the batches.
        limits: limits of the machine, read before the workers started.
        starting: whether the workers were being started.
    """
    if isinstance(error, NoBatch):
        return NoBatch(
            f"{error.message}: {readers}" if (readers := describe_readers(workers)) else error.message, hint=error.hint
        )
    if isinstance(error, TooManyFiles) or (not isinstance(error, DlioError) and is_too_many(error)):
        return limits.files.error()
    if isinstance(error, DlioError):
        return error
    text = str(error).strip()
    if "timed out" in text:
        return explain(no_batch("loader workers", timeout_s), timeout_s, workers, limits)
    if isinstance(error, (ConnectionError, EOFError)):  # a worker closed its connection: the signal of its exit follows
        time.sleep(_SIGNAL_S)
    died = exit_in(error, limits) or exit_of(workers, limits)
    if died is not None:
        return died
    if starting:
        return not_started(error)
    return RunFailed(f"the loader failed: {text.splitlines()[-1] if text else type(error).__name__}")


# Longest folder of a socket whose name has at most 107 characters: Python adds two names of its own.
_LONGEST_FOLDER = 107 - len("/pymp-xxxxxxxx/listener-xxxxxxxx")


def begin_worker(worker: int, folder: str, tied: bool = False, placement: Placement = UNPLACED) -> None:
    """Set up a loader worker: its temporary folder is removed by the trainer, even if the worker is killed.

    Workers pass descriptors of shared memory through sockets in a folder of their own, which a killed worker would
    leave behind.

    Args:
        worker: its number; a ``worker_init_fn`` of a DataLoader gets it.
        folder: temporary folder of the trainer.
        tied: whether the kernel ends the worker with the thread that started it; torch's own workers check every five
            seconds whether their trainer still runs.
        placement: CPUs of the workers.
    """
    place_process(os.getpid(), placement.of_reader(worker))
    if tied:
        die_with_parent()
    without_last_words(worker)
    report_failures()
    for number in (signal.SIGSEGV, signal.SIGFPE):  # torch's handlers name no file
        signal.signal(number, signal.SIG_DFL)
    report_crashes(f"loader worker (pid {os.getpid()}): ")
    if len(folder) <= _LONGEST_FOLDER:
        tempfile.tempdir = folder


def without_last_words(worker: int) -> None:
    """Suppress the traceback in a loader worker whose trainer ends while it receives a batch.

    A thread of :mod:`multiprocessing` passes the descriptors of shared memory.  It prints a traceback through
    ``sys.excepthook`` if the other side closes the connection, as a trainer does that is terminated.

    Args:
        worker: its number; a ``worker_init_fn`` of a DataLoader gets it.
    """
    others = sys.excepthook

    def say(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        by = "" if trace is None else trace.tb_frame.f_globals.get("__name__")
        if by == resource_sharer.__name__ and is_too_many(error):
            os._exit(EXIT_CODE)  # the trainer prints the error
        if by != resource_sharer.__name__ or not issubclass(kind, (ConnectionError, EOFError)):
            others(kind, error, trace)

    sys.excepthook = say
