"""The timeout of collectives, and the progress of a rank, for which other ranks may ask.

Backends have timeouts of their own, and none is enough.  Horovod and MPI wait without an end.  Gloo's error, "Timed
out waiting 3000ms for recv operation to complete", does not say which rank is absent.
``torch.distributed.monitored_barrier`` names a rank, but runs on Gloo alone, costs a second collective each time (half
a millisecond and more on two ranks of one host), says "in 1800000 ms" 0.1 s after the rank has died, and cannot say
what an absent rank does.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypedDict

from dlio_torch.supervision import process_exit
from dlio_torch.supervision.reader_activity import innermost_function
from dlio_torch.supervision.watchdog import Watchdog, WatchdogSettings

_DIST = str(Path(__file__).parent.parent)


class RankProgress(TypedDict):
    """Progress of a rank; travels as JSON.

    Attributes:
        number: collectives that it has begun.
        seconds: seconds since it began the last one, or since that ended.
        inside: whether it is in a collective.
        function: innermost function of this package outside of ``dist`` in its main thread; may be empty.
    """

    number: int
    seconds: float
    inside: bool
    function: str


class _Collective(NamedTuple):
    name: str
    changed: float  # monotonic time at which it began or ended, seconds
    inside: bool


class CollectiveTimeout:
    """Ends the run if a collective takes too long because a rank does not take part.

    The main thread is blocked in the collective then, so the watchdog's thread looks at the clock.

    Args:
        timeout_s: longest time of one collective.
        on_timeout: called with name and number of the overdue collective; does not return.
    """

    def __init__(self, timeout_s: float, on_timeout: Callable[[str, int], object]) -> None:
        self._number = 0
        self._last = _Collective("", time.monotonic(), inside=False)
        settings = WatchdogSettings(limit_s=timeout_s, give_up=lambda _: on_timeout(self._last.name, self._number))
        self._watchdog = Watchdog(lambda: (self._last.name, ""), settings)
        self._watchdog.start()

    def begin(self, name: str) -> None:
        """Record that a collective begins."""
        self._number += 1
        self._last = _Collective(name, time.monotonic(), inside=True)
        self._watchdog.wait_number = self._number
        self._watchdog.is_waiting = True

    def pause(self) -> tuple[int, float]:
        """Stop the clock of a collective that has failed; returns its number and the seconds that it took."""
        self._watchdog.is_waiting = False
        return self._number, time.monotonic() - self._last.changed

    def done(self) -> None:
        """Record that the collective has ended."""
        self._watchdog.is_waiting = False
        self._last = _Collective("", time.monotonic(), inside=False)

    def progress(self) -> RankProgress:
        """Returns the progress of this rank; may be called from any thread."""
        last = self._last
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        return {
            "number": self._number,
            "seconds": time.monotonic() - last.changed,
            "inside": last.inside,
            "function": innermost_function(frame, without=_DIST),
        }

    def stop(self) -> None:
        """Stop watching: no more collectives follow."""
        self._watchdog.stop()


@contextmanager
def deadline(timeout_s: float, line: str) -> Iterator[None]:
    """End the process with exit code 1 and ``line`` on the standard error if the body takes longer.

    For native calls that wait for other ranks without an end, before the failure channel exists.
    """

    def on_timeout(_: str, number: int) -> None:
        process_exit.print_line(f"{process_exit.ERROR_PREFIX}{line}")
        process_exit.end_children()
        process_exit.exit_now(1)

    timeout = CollectiveTimeout(timeout_s, on_timeout)
    timeout.begin(line)
    try:
        yield
    finally:
        timeout.stop()
