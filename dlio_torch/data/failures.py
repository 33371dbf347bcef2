"""One line for each way in which loading can fail beside damaged files."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import resource_sharer
from types import FrameType, TracebackType
from typing import Any

from dlio_torch.data.handover import LOWER, report_failures
from dlio_torch.data.worker_process import enter
from dlio_torch.environment.held import SHARED_MEMORY
from dlio_torch.environment.oom import OomKills
from dlio_torch.errors import DlioError, RunFailed
from dlio_torch.native.crashing import guard_crashes
from dlio_torch.units import format_size

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


class WorkerDied(RunFailed):
    """A loader worker ended."""


class NoBatch(RunFailed):
    """No batch came in time."""


def worker_died(what: str, kills: OomKills | None = None) -> WorkerDied:
    """A loader worker ended.

    Args:
        what: names it and how it ended.
        kills: processes that the kernel had killed before, for lack of memory.
    """
    hint = "look for too little memory, or lower loader.num_workers"
    if re.search(r"SIGKILL|signal: Killed", what):
        known = f" ({kills.since()})" if kills is not None else ""
        return WorkerDied(
            f"a loader worker died: {what}{known}",
            hint=f"if it took too much memory, {LOWER}",
        )
    if re.search(r"SIGBUS|Bus error", what):
        with contextlib.suppress(OSError):
            free = format_size(shutil.disk_usage(SHARED_MEMORY).free)
            what += f" (of {SHARED_MEMORY}, through which workers hand batches over, {free} are free)"
        hint = f"raise the size of {SHARED_MEMORY}, or {LOWER}"
    if "exit code" in what:
        hint = "see what it said before"
    return WorkerDied(f"a loader worker died: {what}", hint=hint)


def no_batch(source: str, timeout_s: float) -> NoBatch:
    """``source`` gave no batch in time."""
    return NoBatch(
        f"no batch came from the {source} for {timeout_s:g} s",
        hint="look at the file system, or raise loader.timeout_s",
    )


def explain(error: Exception, timeout_s: float, who: Callable[[], str], kills: OomKills) -> DlioError:
    """One line for what torch's DataLoader raises.

    Args:
        error: what was raised.
        timeout_s: longest wait for a batch.
        who: says what those do that are to bring a batch.
        kills: see :func:`worker_died`.
    """
    if isinstance(error, NoBatch):
        return NoBatch(f"{error.message}: {doing}" if (doing := who()) else error.message, hint=error.hint)
    if isinstance(error, DlioError):
        return error
    text = str(error).strip()
    if "timed out" in text:
        return explain(no_batch("loader workers", timeout_s), timeout_s, who, kills)
    if isinstance(error, (ConnectionError, EOFError)):  # a worker hung up: the signal of its death is on its way
        time.sleep(_SIGNAL_S)
    died = _death(error, kills) or WorkerSignals.told()
    if died is not None:
        return died
    return RunFailed(f"the loader failed: {text.splitlines()[-1] if text else type(error).__name__}")


def _death(error: BaseException, kills: OomKills) -> RunFailed | None:
    # "exited unexpectedly" has "is killed by signal" for its cause, which says more.
    found: RunFailed | None = None
    cause: BaseException | None = error
    while cause is not None:
        text = str(cause).strip()
        if isinstance(cause, WorkerDied):
            return cause
        if "exited unexpectedly" in text or "is killed by signal" in text:
            # torch goes on with advice on its own.
            found = worker_died(text.splitlines()[-1].partition(" Details are lost")[0].strip().rstrip("."), kills)
        cause = cause.__cause__
    return found


_DEAF = ("weakref", "_weakrefset", "importlib._bootstrap")
# Of the longest name of a socket, what is left for its folder: Python adds two names of its own.
_LONGEST_FOLDER = 107 - len("/pymp-xxxxxxxx/listener-xxxxxxxx")


def begin_worker(worker: int, folder: str) -> None:
    """In a loader worker: what it makes for a time lies in a folder that its trainer removes, however it ends.

    Workers pass descriptors of shared memory on through sockets in a folder of their own, which one that is killed
    leaves behind.

    Args:
        worker: its number; a ``worker_init_fn`` of a DataLoader gets it.
        folder: of the trainer.
    """
    without_last_words(worker)
    report_failures()
    for number in (signal.SIGSEGV, signal.SIGFPE):  # torch's handlers name no file
        signal.signal(number, signal.SIG_DFL)
    guard_crashes(f"loader worker (pid {os.getpid()}): ")
    enter(folder)
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
        if by != resource_sharer.__name__ or not issubclass(kind, (ConnectionError, EOFError)):
            others(kind, error, trace)

    sys.excepthook = say


def _keeps_errors(frame: FrameType | None) -> bool:
    """Whether what is raised here would be printed and lost, as in a destructor, or leave a module half imported."""
    while frame is not None:
        if frame.f_code.co_name == "__del__" or frame.f_globals.get("__name__") in _DEAF:
            return True
        frame = frame.f_back
    return False


class WorkerSignals:
    """The handler of SIGCHLD that torch's DataLoader installs, with one line for what it raises.

    torch notices the death of a worker in this handler, which raises wherever the main thread happens to
    be: in the emulated compute rather than in the wait for a batch.  Where that is a place that keeps errors to itself,
    it is raised later: :meth:`remind`.
    """

    def __init__(self, handler: Any, kills: OomKills) -> None:
        self._handler = handler
        self._kills = kills
        self._died: RunFailed | None = None
        self._reminded = False

    @classmethod
    def install(cls, kills: OomKills) -> None:
        """Wrap torch's handler, once it is there; it stays as torch's does."""
        handler = signal.getsignal(signal.SIGCHLD)
        # torch's is a nested function of this module.
        if getattr(handler, "__module__", "") == "torch.utils.data._utils.signal_handling":
            signal.signal(signal.SIGCHLD, cls(handler, kills))

    @staticmethod
    def remind() -> None:
        """Have the main thread look again; called by another one while it waits for a batch of a worker that is dead.

        The signal may have come before torch listened to it, too: while another worker was started.
        """
        handler = signal.getsignal(signal.SIGCHLD)
        if isinstance(handler, WorkerSignals):
            handler._reminded = True
            os.kill(os.getpid(), signal.SIGCHLD)

    @staticmethod
    def told() -> RunFailed | None:
        """The death of a worker that is still wanted."""
        handler = signal.getsignal(signal.SIGCHLD)
        return handler._died if isinstance(handler, WorkerSignals) else None

    @staticmethod
    def forget() -> None:
        """Called when workers are ended: whoever has died of them is no failure any more."""
        handler = signal.getsignal(signal.SIGCHLD)
        if isinstance(handler, WorkerSignals):
            handler._died = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Call torch's handler.

        Raises:
            RunFailed: a worker died.
        """
        died = self._died if self._reminded else None  # torch tells of a death once
        self._reminded = False
        if died is None:
            try:
                self._handler(number, frame)
                return
            except RuntimeError as error:
                died = self._died = _death(error, self._kills)
                if died is None:
                    raise
        if not _keeps_errors(frame):
            raise died
