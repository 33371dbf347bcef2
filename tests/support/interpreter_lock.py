"""Whether a call gives up the interpreter lock."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable


class _Counter(threading.Thread):
    """Counts as long as it gets the interpreter lock, and hands it over after each count."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.count = 0
        self.stop = False

    def run(self) -> None:
        while not self.stop:
            self.count += 1
            time.sleep(0)


def turns_of_another_thread(call: Callable[[], object], tries: int = 10) -> int:
    """How often another thread gets the lock during a call; calls again, ``tries`` times at most, until it does."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(30.0)  # the interpreter would otherwise switch between our own bytecodes
    counter = _Counter()
    counter.start()
    try:
        for _ in range(tries):
            counted = counter.count
            call()
            if counter.count > counted:
                return counter.count - counted
        return 0
    finally:
        counter.stop = True
        counter.join()
        sys.setswitchinterval(before)
