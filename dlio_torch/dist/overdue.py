"""How long a rank has been in a collective, and where it is otherwise: others may ask when it does not come."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NamedTuple, TypedDict

_PACKAGE = str(Path(__file__).parent.parent)
_HERE = str(Path(__file__).parent)


class Where(TypedDict):
    """Where a rank is; travels as JSON.

    Attributes:
        number: how many collectives it has begun.
        seconds: since it began the last one, or since that ended.
        inside: whether it is in it.
        at: what its main thread does, the innermost function of this package outside of ``dist``; may be empty.
    """

    number: int
    seconds: float
    inside: bool
    at: str


class _Since(NamedTuple):
    what: str
    began: float
    inside: bool
    watched: bool


class Overdue:
    """Ends the run when a collective takes longer than it may: some rank does not take part in it.

    Not every backend has a timeout that works (Horovod waits for ever), and the main thread is
    blocked, so a daemon thread looks at the clock; a collective costs three assignments.

    Args:
        timeout_s: the longest time of one collective.
        end: called with the overdue collective's name and number; does not return.
    """

    def __init__(self, timeout_s: float, end: Callable[[str, int], object]) -> None:
        self._timeout_s = timeout_s
        self._end = end
        self._number = 0
        self._since = _Since("", time.monotonic(), inside=False, watched=False)
        self._stop = threading.Event()
        threading.Thread(target=self._look, name="dlio_torch-overdue", daemon=True).start()

    def begin(self, what: str) -> None:
        """A collective begins."""
        self._number += 1
        self._since = _Since(what, time.monotonic(), inside=True, watched=True)

    def pause(self) -> tuple[int, float]:
        """It has failed, and is looked into: its number, and how long it took."""
        since = self._since
        self._since = since._replace(watched=False)
        return self._number, time.monotonic() - since.began

    def done(self) -> None:
        """It has ended."""
        self._since = _Since("", time.monotonic(), inside=False, watched=False)

    def where(self) -> Where:
        """Where this rank is; for any thread."""
        since = self._since
        seconds = time.monotonic() - since.began
        return {"number": self._number, "seconds": seconds, "inside": since.inside, "at": _busy_in()}

    def stop(self) -> None:
        """No more collectives."""
        self._stop.set()

    def _look(self) -> None:
        while not self._stop.wait(min(1.0, self._timeout_s / 4)):
            since, number = self._since, self._number
            if since.watched and time.monotonic() - since.began > self._timeout_s:
                self._end(since.what, number)
                return


def _busy_in() -> str:
    """The innermost function of this package that the main thread is in, those of ``dist`` left out."""
    frame: FrameType | None = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_PACKAGE) and not name.startswith(_HERE):
            return f"{frame.f_code.co_name} ({Path(name).relative_to(_PACKAGE)}:{frame.f_lineno})"
        frame = frame.f_back
    return ""
