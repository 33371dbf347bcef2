"""The watchdog: a thread that reports a wait that takes too long, and ends the process at a limit.

It prints one line when a wait has lasted ``patience_s`` seconds, and again each time that the wait has doubled.
The standard library's watchdog (``faulthandler.dump_traceback_later``) prints the Python stack of every thread instead.
It cannot name the batch that is late, the worker that should deliver it, or the file that this worker reads.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from dlio_torch.supervision.heartbeat import Heartbeat
from dlio_torch.syserrors import say

_POLL_S = 1.0
DescribeWait = Callable[[], tuple[str, str]]
"""Returns the name of the awaited item, and a description (may be empty) of the threads or processes to deliver it."""


@dataclass(frozen=True)
class WatchdogSettings:
    """Time limits of waits, and the actions at these limits.

    Attributes:
        patience_s: seconds of a wait before a line is printed; 0: none is printed.
        limit_s: seconds of a wait before ``give_up`` is called; 0: never.
        give_up: called once with the line, by the watchdog's thread; ends the process.
        observer: module and arguments for :class:`~dlio_torch.supervision.heartbeat.Heartbeat`, which covers waits in
            which no Python code runs; ``None``: no heartbeat.
        observer_limit_s: seconds without Python code before the process is ended; 0: never.
    """

    patience_s: float = 0.0
    limit_s: float = 0.0
    give_up: Callable[[str], object] | None = None
    observer: tuple[str, list[str]] | None = None
    observer_limit_s: float = 0.0


NO_WATCHDOG = WatchdogSettings()
"""Settings under which waits are not watched."""


class Watchdog:
    """Watches the waits of one thread, from a thread of its own.

    A wait costs two assignments: set :attr:`wait_number` to another number and :attr:`is_waiting` before it, and
    clear :attr:`is_waiting` after it.  As a context manager it does both.

    Args:
        describe: called by the watchdog's thread when a line is due.
        settings: time limits and actions.
        on_poll: called by the watchdog's thread each time that it sees a wait go on.

    Attributes:
        wait_number: differs from wait to wait.
        is_waiting: whether a wait is in progress.
    """

    def __init__(
        self, describe: DescribeWait, settings: WatchdogSettings, on_poll: Callable[[], object] | None = None
    ) -> None:
        self.wait_number = 0
        self.is_waiting = False
        self.describe = describe
        self.on_poll = on_poll
        self.settings = settings
        self._heartbeat: Heartbeat | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread; a second call does nothing."""
        settings = self.settings
        shortest = min(filter(None, (settings.patience_s, settings.limit_s)), default=0.0)
        if self._thread is None and shortest:
            if settings.observer is not None:
                self._heartbeat = Heartbeat(settings.patience_s, settings.observer_limit_s, *settings.observer)
            # A weak reference: the thread must not keep a watchdog alive that is never stopped.
            arguments = (weakref.ref(self), self._stopped, min(_POLL_S, shortest / 4), self._heartbeat)
            thread = threading.Thread(target=_watch, args=arguments, name="dlio_torch-watchdog", daemon=True)
            thread.start()
            self._thread = thread  # assigned last: a thread that could not be started cannot be joined

    def stop(self) -> None:
        """End the thread and the heartbeat; :meth:`start` may be called again."""
        self._stopped.set()
        if self._heartbeat is not None:
            self._heartbeat.stop()
            self._heartbeat = None
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self._stopped = threading.Event()

    def __enter__(self) -> Watchdog:
        self.start()
        self.wait_number += 1
        self.is_waiting = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.is_waiting = False

    def line(self, waited_s: float) -> str:
        """The line for a wait of ``waited_s`` seconds."""
        awaited, source = self.describe()
        return f"waiting for {awaited} for {waited_s:.0f} s" + (f": {source}" if source else "")


def _watch(
    reference: weakref.ref[Watchdog], stopped: threading.Event, every_s: float, heartbeat: Heartbeat | None
) -> None:
    seen, since, due = -1, time.monotonic(), 0.0
    while not stopped.wait(every_s):
        watchdog = reference()
        if watchdog is None:
            return
        if heartbeat is not None:
            heartbeat.beat()
        settings = watchdog.settings
        if not watchdog.is_waiting or watchdog.wait_number != seen:
            seen, since, due = watchdog.wait_number, time.monotonic(), settings.patience_s
            continue
        if watchdog.on_poll is not None:
            watchdog.on_poll()
        waited = time.monotonic() - since
        if settings.patience_s and waited >= due:
            due = 2 * waited
            say(watchdog.line(waited))
        if settings.limit_s and waited >= settings.limit_s and settings.give_up is not None:
            settings.give_up(watchdog.line(waited))
            return
        del watchdog
