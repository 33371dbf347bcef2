"""Loader workers that died: how that is noticed, and the line for it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

from dlio_torch.config.schema import LoaderConfig
from dlio_torch.data.workers.open_files import EXIT_CODE, OpenFiles
from dlio_torch.data.workers.transfer import LOWER
from dlio_torch.environment.oom import OomKills
from dlio_torch.environment.private_names import is_handler_of_loaders
from dlio_torch.errors import DlioError, RunFailed
from dlio_torch.storage.local.locked_folder import SHARED_MEMORY
from dlio_torch.units import format_size

_DEAF = ("weakref", "_weakrefset", "importlib._bootstrap")
"""Modules in which an error of a signal's handler is printed and lost, or leaves something half imported."""


class WorkerDied(RunFailed):
    """A loader worker ended."""


@dataclass(frozen=True)
class WorkerLimits:
    """Limits of the machine that may end a worker, as they were before it was started.

    Attributes:
        kills: processes that the kernel had killed for lack of memory.
        files: open files that are needed.
    """

    kills: OomKills
    files: OpenFiles

    @classmethod
    def now(cls, config: LoaderConfig, files: OpenFiles) -> WorkerLimits:
        """Of a loader with these options."""
        return cls(OomKills.now() if config.num_workers else OomKills(None, None), files)


def worker_died(what: str, limits: WorkerLimits) -> DlioError:
    """A loader worker ended.

    Args:
        what: names it and how it ended.
        limits: those that it may have met.
    """
    if re.search(rf"exit code {EXIT_CODE}\b", what):
        return limits.files.error()
    hint = "look for too little memory, or lower loader.num_workers"
    if "signal: Killed" in what:
        return WorkerDied(
            f"a loader worker died: {what} ({limits.kills.since()})",
            hint=f"if it took too much memory, {LOWER}",
        )
    if "signal: Bus error" in what:
        with contextlib.suppress(OSError):
            free = format_size(shutil.disk_usage(SHARED_MEMORY).free)
            what += f" (of {SHARED_MEMORY}, through which workers hand batches over, {free} are free)"
        hint = f"raise the size of {SHARED_MEMORY}, or {LOWER}"
    if re.search(r"exit code|signal: (Segmentation|Abort|Floating|Illegal)", what):
        hint = "see what it said before"
    return WorkerDied(f"a loader worker died: {what}", hint=hint)


def death_of(workers: Sequence[BaseProcess], limits: WorkerLimits) -> DlioError | None:
    """The first of the workers that did not end by itself; in the process that started them."""
    for worker in workers:
        code = worker.exitcode
        if code:
            how = f"is killed by signal: {signal.strsignal(-code)}" if code < 0 else f"ended with exit code {code}"
            return worker_died(f"DataLoader worker (pid {worker.pid}) {how}", limits)  # as torch says it
    return None


def death_in(error: BaseException, limits: WorkerLimits) -> DlioError | None:
    """What torch says of a death, in what it raised."""
    # "exited unexpectedly" has "is killed by signal" for its cause, which says more.
    found: DlioError | None = None
    cause: BaseException | None = error
    while cause is not None:
        text = str(cause).strip()
        if isinstance(cause, WorkerDied):
            return cause
        if "exited unexpectedly" in text or "is killed by signal" in text:
            # torch goes on with advice on its own.
            found = worker_died(text.splitlines()[-1].partition(" Details are lost")[0].strip().rstrip("."), limits)
        cause = cause.__cause__
    return found


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
    be: in the emulated compute rather than in the wait for a batch.  It tells of a death once, and of none that came
    before it listened: :meth:`remind`.
    """

    def __init__(self, handler: Any, limits: WorkerLimits) -> None:
        self._handler = handler
        self._limits = limits
        self._asked: Sequence[BaseProcess] = ()

    @classmethod
    def install(cls, limits: WorkerLimits) -> None:
        """Wrap torch's handler, once it is there; it stays as torch's does."""
        handler = signal.getsignal(signal.SIGCHLD)
        if is_handler_of_loaders(handler):
            signal.signal(signal.SIGCHLD, cls(handler, limits))

    @staticmethod
    def remind(workers: Sequence[BaseProcess]) -> None:
        """Have the main thread look at its workers; called by another one while it waits for a batch."""
        handler = signal.getsignal(signal.SIGCHLD)
        if isinstance(handler, WorkerSignals):
            handler._asked = workers
            os.kill(os.getpid(), signal.SIGCHLD)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Call torch's handler.

        Raises:
            DlioError: a worker died.
        """
        asked, self._asked = self._asked, ()
        if _keeps_errors(frame):  # torch would tell it there, and never again
            return
        try:
            self._handler(number, frame)
        except RuntimeError as error:
            died = death_in(error, self._limits)
            if died is None:
                raise
            raise died from error
        died = death_of(asked, self._limits)
        if died is not None:
            raise died
