"""A sign of life: a line names what takes longer than one has patience for, and again after twice as long."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from dlio_torch.environment.heart import Heart
from dlio_torch.syserrors import say

_LOOK_S = 1.0
Describe = Callable[[], tuple[str, str]]
"""What is waited for, and what is known about who is to bring it (may be empty)."""


@dataclass(frozen=True)
class Watch:
    """How waits are watched.

    Attributes:
        patience_s: wait after which there is a line; 0: there is none.
        limit_s: wait after which ``give_up`` is called; 0: never.
        give_up: called once with the line, by the watching thread; ends the process.
        outside: module and words for :class:`~dlio_torch.environment.heart.Heart`, for a wait in which no Python code
            runs; ``None``: nobody looks from outside.
        outside_limit_s: such a wait after which the process is ended; 0: never.
    """

    patience_s: float = 0.0
    limit_s: float = 0.0
    give_up: Callable[[str], object] | None = None
    outside: tuple[str, list[str]] | None = None
    outside_limit_s: float = 0.0


NO_WATCH = Watch()
"""Nobody watches."""


class Vigil:
    """Watches waits of one thread, from another one.

    A wait costs two assignments: set :attr:`asked` to another number and :attr:`inside` before it, and unset
    :attr:`inside` after it; or use it as a context.

    Args:
        describe: called by the watching thread when a line is due.
        watch: how long, and what then.
        remind: called by the watching thread at each look at a wait that goes on.

    Attributes:
        asked: another number for each wait.
        inside: whether it goes on.
    """

    def __init__(self, describe: Describe, watch: Watch, remind: Callable[[], object] | None = None) -> None:
        self.asked = 0
        self.inside = False
        self.describe = describe
        self.remind = remind
        self.watch = watch
        self._heart: Heart | None = None
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Watch from now on; a second call does nothing."""
        watch = self.watch
        shortest = min(filter(None, (watch.patience_s, watch.limit_s)), default=0.0)
        if self._thread is None and shortest:
            if watch.outside is not None:
                self._heart = Heart(watch.patience_s, watch.outside_limit_s, *watch.outside)
            # The thread must not keep a vigil alive that nobody stops.
            arguments = (weakref.ref(self), self._over, min(_LOOK_S, shortest / 4), self._heart)
            thread = threading.Thread(target=_look, args=arguments, name="dlio_torch-vigil", daemon=True)
            thread.start()
            self._thread = thread  # one that the system has not let start could not be joined

    def stop(self) -> None:
        """Watch no more."""
        self._over.set()
        if self._heart is not None:
            self._heart.stop()
            self._heart = None
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self._over = threading.Event()

    def __enter__(self) -> Vigil:
        self.start()
        self.asked += 1
        self.inside = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.inside = False

    def line(self, waited_s: float) -> str:
        """What is said after such a wait."""
        what, who = self.describe()
        return f"waiting for {what} for {waited_s:.0f} s" + (f": {who}" if who else "")


def _look(reference: weakref.ref[Vigil], over: threading.Event, every_s: float, heart: Heart | None) -> None:
    seen, since, due = -1, time.monotonic(), 0.0
    while not over.wait(every_s):
        vigil = reference()
        if vigil is None:
            return
        if heart is not None:
            heart.beat()
        watch = vigil.watch
        if not vigil.inside or vigil.asked != seen:
            seen, since, due = vigil.asked, time.monotonic(), watch.patience_s
            continue
        if vigil.remind is not None:
            vigil.remind()
        waited = time.monotonic() - since
        if watch.patience_s and waited >= due:
            due = 2 * waited
            say(vigil.line(waited))
        if watch.limit_s and waited >= watch.limit_s and watch.give_up is not None:
            watch.give_up(vigil.line(waited))
            return
        del vigil
