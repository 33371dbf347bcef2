"""Detection of unexpected exits of loader workers, and their one-line errors."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import shutil
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

from dlio_torch.config.schema import LoaderConfig
from dlio_torch.data.dataset.transfer_memory import LOWER
from dlio_torch.data.workers.descriptor_limits import EXIT_CODE, OpenFiles
from dlio_torch.environment.private_names import is_handler_of_loaders
from dlio_torch.errors import DlioError, RunFailed
from dlio_torch.files.locked_folder import SHARED_MEMORY
from dlio_torch.supervision.out_of_memory import OomKills
from dlio_torch.units import format_size

_SWALLOWING = ("weakref", "_weakrefset", "importlib._bootstrap")
"""Modules in which an exception of a signal handler is printed and lost, or leaves a module half imported."""


class WorkerDied(RunFailed):
    """Error for a loader worker that ended unexpectedly."""


@dataclass(frozen=True)
class WorkerLimits:
    """Machine limits that may end a worker, read before workers are started.

    Attributes:
        kills: counters of the out-of-memory killer.
        files: open files that are needed.
    """

    kills: OomKills
    files: OpenFiles

    @classmethod
    def now(cls, config: LoaderConfig, files: OpenFiles) -> WorkerLimits:
        """Reads the current limits for a loader with these options."""
        return cls(OomKills.now() if config.num_workers else OomKills(None, None), files)


def worker_died(exit_text: str, limits: WorkerLimits) -> DlioError:
    """Makes the error for a loader worker that ended unexpectedly.

    Args:
        exit_text: names the worker and how it ended, in torch's words.
        limits: limits of the machine, read before the worker was started.
    """
    if re.search(rf"exit code {EXIT_CODE}\b", exit_text):
        return limits.files.error()
    hint = "check the memory of the machine, or lower loader.num_workers"
    if "signal: Killed" in exit_text:
        return WorkerDied(
            f"a loader worker died: {exit_text} ({limits.kills.since()})",
            hint=f"if the worker used too much memory, {LOWER}",
        )
    if "signal: Bus error" in exit_text:
        with contextlib.suppress(OSError):
            free = format_size(shutil.disk_usage(SHARED_MEMORY).free)
            exit_text += f" ({free} are free in {SHARED_MEMORY}, through which workers transfer batches)"
        hint = f"raise the size of {SHARED_MEMORY}, or {LOWER}"
    if re.search(r"exit code|signal: (Segmentation|Abort|Floating|Illegal)", exit_text):
        hint = "see the message of the worker above"
    return WorkerDied(f"a loader worker died: {exit_text}", hint=hint)


def exit_of(workers: Sequence[BaseProcess], limits: WorkerLimits) -> DlioError | None:
    """The error for the first worker that was killed or failed, or None; called by the parent process."""
    for worker in workers:
        code = worker.exitcode
        if code:
            ending = f"is killed by signal: {signal.strsignal(-code)}" if code < 0 else f"ended with exit code {code}"
            return worker_died(f"DataLoader worker (pid {worker.pid}) {ending}", limits)  # in torch's words
    return None


def exit_in(error: BaseException, limits: WorkerLimits) -> DlioError | None:
    """The error for a worker's exit that an exception of torch reports, or None."""
    # "exited unexpectedly" has "is killed by signal" as its cause, which has more information.
    exit_error: DlioError | None = None
    cause: BaseException | None = error
    while cause is not None:
        text = str(cause).strip()
        if isinstance(cause, WorkerDied):
            return cause
        if "exited unexpectedly" in text or "is killed by signal" in text:
            # torch adds advice of its own, which is cut off.
            exit_error = worker_died(
                text.splitlines()[-1].partition(" Details are lost")[0].strip().rstrip("."), limits
            )
        cause = cause.__cause__
    return exit_error


def _swallows_errors(frame: FrameType | None) -> bool:
    """Whether an exception raised here would be printed and lost, as in a destructor or where the garbage collector
    calls back, or leave an import half done.
    """
    collected = {getattr(callback, "__code__", None) for callback in gc.callbacks}
    while frame is not None:
        code = frame.f_code
        if code.co_name == "__del__" or code in collected or frame.f_globals.get("__name__") in _SWALLOWING:
            return True
        frame = frame.f_back
    return False


class WorkerSignals:
    """Wrapper of the SIGCHLD handler of torch's DataLoader that raises one-line errors.

    torch notices the exit of a worker in this handler, which raises wherever the main thread happens to
    be: in the emulated compute rather than in the wait for a batch.  It reports an exit once, and not at all if it came
    before the handler was installed: :meth:`check` covers these.
    """

    def __init__(self, handler: Any, limits: WorkerLimits) -> None:
        self._handler = handler
        self._limits = limits
        self._workers: Sequence[BaseProcess] = ()

    @classmethod
    def install(cls, limits: WorkerLimits) -> None:
        """Wrap torch's handler if it is installed; like torch's handler, the wrapper stays after the workers ended.

        Outside the main thread nothing is wrapped, as torch installs nothing there.
        """
        handler = signal.getsignal(signal.SIGCHLD)
        if is_handler_of_loaders(handler) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGCHLD, cls(handler, limits))

    @staticmethod
    def remove() -> None:
        """Put torch's own handler back, for a program that goes on without loaders of this package."""
        handler = signal.getsignal(signal.SIGCHLD)
        if isinstance(handler, WorkerSignals) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGCHLD, handler._handler)

    @staticmethod
    def check(workers: Sequence[BaseProcess]) -> None:
        """Make the main thread check its workers; called by another thread while the main thread waits for a batch."""
        handler = signal.getsignal(signal.SIGCHLD)
        if isinstance(handler, WorkerSignals):
            handler._workers = workers
            os.kill(os.getpid(), signal.SIGCHLD)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal by torch's handler, and raise its error as one line.

        Raises:
            DlioError: a worker died.
        """
        workers, self._workers = self._workers, ()
        if _swallows_errors(frame):  # torch would report it here, and never again
            return
        try:
            self._handler(number, frame)
        except RuntimeError as error:
            died = exit_in(error, self._limits)
            if died is None:
                raise
            raise died from error
        died = exit_of(workers, self._limits)
        if died is not None:
            raise died
