"""One line for each way in which loading can fail beside damaged files."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from multiprocessing import resource_sharer
from multiprocessing.process import BaseProcess
from types import FrameType, TracebackType

from dlio_torch.data.workers.activity import doing
from dlio_torch.data.workers.exits import WorkerLimits, death_in, death_of
from dlio_torch.data.workers.open_files import EXIT_CODE, TooManyFiles, is_too_many
from dlio_torch.data.workers.transfer import not_started, report_failures
from dlio_torch.environment.crashing import guard_crashes
from dlio_torch.environment.parent_exit import die_with_parent
from dlio_torch.errors import DlioError, RunFailed

_SIGNAL_S = 0.5  # in which a signal comes that was sent


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C, SIGTERM and SIGHUP wait until the body is done.

    An exception in the middle of starting or ending workers would lose track of those that run, and
    torch's half-made iterator prints a traceback when it is collected.  A worker that is forked inside
    ignores Ctrl-C and SIGHUP, which its trainer answers for it, and dies of SIGTERM.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread gets signals
        return
    late: list[tuple[int, FrameType | None]] = []
    owner = os.getpid()

    def wait(number: int, frame: FrameType | None) -> None:
        if os.getpid() == owner:
            late.append((number, frame))
        elif number == signal.SIGTERM:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    # One that is ignored (nohup) stays so.
    kinds = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, wait) for number in kinds if signal.getsignal(number) != signal.SIG_IGN}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, signal.SIG_DFL if handler is None else handler)
    for number, frame in late:
        handler = before[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)
        else:
            signal.raise_signal(number)


class NoBatch(RunFailed):
    """No batch came in time."""


def no_batch(source: str, timeout_s: float) -> NoBatch:
    """``source`` gave no batch in time."""
    return NoBatch(
        f"no batch came from the {source} for {timeout_s:g} s",
        hint="look at the file system, or raise loader.timeout_s",
    )


def explain(
    error: Exception,
    timeout_s: float,
    workers: Sequence[BaseProcess],
    limits: WorkerLimits,
    *,
    starting: bool = False,
) -> DlioError:
    """One line for what a loader raises.

    Args:
        error: what was raised.
        timeout_s: longest wait for a batch.
        workers: who is to bring the batches.
        limits: those that they may have met.
        starting: whether they were being started.
    """
    if isinstance(error, NoBatch):
        return NoBatch(f"{error.message}: {who}" if (who := doing(workers)) else error.message, hint=error.hint)
    if isinstance(error, TooManyFiles) or (not isinstance(error, DlioError) and is_too_many(error)):
        return limits.files.error()
    if isinstance(error, DlioError):
        return error
    text = str(error).strip()
    if "timed out" in text:
        return explain(no_batch("loader workers", timeout_s), timeout_s, workers, limits)
    if isinstance(error, (ConnectionError, EOFError)):  # a worker hung up: the signal of its death is on its way
        time.sleep(_SIGNAL_S)
    died = death_in(error, limits) or death_of(workers, limits)
    if died is not None:
        return died
    if starting:
        return not_started(error)
    return RunFailed(f"the loader failed: {text.splitlines()[-1] if text else type(error).__name__}")


# Of the longest name of a socket, what is left for its folder: Python adds two names of its own.
_LONGEST_FOLDER = 107 - len("/pymp-xxxxxxxx/listener-xxxxxxxx")


def begin_worker(worker: int, folder: str, tied: bool = False) -> None:
    """In a loader worker: what it makes for a time lies in a folder that its trainer removes, however it ends.

    Workers pass descriptors of shared memory on through sockets in a folder of their own, which one that is killed
    leaves behind.

    Args:
        worker: its number; a ``worker_init_fn`` of a DataLoader gets it.
        folder: of the trainer.
        tied: whether the kernel is to end it with the thread that started it; torch's own workers look every five
            seconds whether their trainer is still there.
    """
    if tied:
        die_with_parent()
    without_last_words(worker)
    report_failures()
    for number in (signal.SIGSEGV, signal.SIGFPE):  # torch's handlers name no file
        signal.signal(number, signal.SIG_DFL)
    guard_crashes(f"loader worker (pid {os.getpid()}): ")
    if len(folder) <= _LONGEST_FOLDER:
        tempfile.tempdir = folder


def without_last_words(worker: int) -> None:
    """In a loader worker: print nothing where the trainer ends in the midst of taking a batch over.

    A thread of :mod:`multiprocessing` passes the descriptors of shared memory on.  It prints a traceback through
    ``sys.excepthook`` where the other side hangs up, as a trainer does that is terminated.

    Args:
        worker: its number; a ``worker_init_fn`` of a DataLoader gets it.
    """
    others = sys.excepthook

    def say(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        by = "" if trace is None else trace.tb_frame.f_globals.get("__name__")
        if by == resource_sharer.__name__ and is_too_many(error):
            os._exit(EXIT_CODE)  # the trainer says it
        if by != resource_sharer.__name__ or not issubclass(kind, (ConnectionError, EOFError)):
            others(kind, error, trace)

    sys.excepthook = say
