"""Times between the recorded activities of the main thread: what the program calls its step."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from dlio_torch.iotrace.recorder.run_queue import UNKNOWN, RunQueue

clock = time.perf_counter_ns


class Activity:
    """Records spans ``compute`` between activities, once the first batch was fetched.

    Activities are fetches, starts of iterators, saves and loads.  Those of other threads than the main thread are
    ignored, and those within another one.  A span ``run_delay`` that begins with it has the length for which the thread
    waited for a core meanwhile.

    Args:
        add: records a span.
    """

    def __init__(self, add: Callable[..., None]) -> None:
        self._add = add
        self._thread: int | None
        self.forget()

    def stop(self) -> None:
        """Ends recording, as in a worker."""
        self._thread = None

    def forget(self) -> None:
        """Begins without a batch, as a forked child does."""
        self._thread = threading.main_thread().ident
        self._depth = 0
        self._end_ns = 0
        self._run_queue: RunQueue | None = None
        self._delay_ns = UNKNOWN
        self._step, self._file = -1, ""

    def begin(self) -> int:
        """Begins an activity; returns the time."""
        now = clock()
        if threading.get_ident() == self._thread:
            if self._depth == 0 and self._end_ns:
                self._add("compute", self._end_ns, now, step=self._step, file=self._file)
                if self._run_queue is not None and self._delay_ns != UNKNOWN:
                    delay_ns = self._run_queue.delay_since(self._delay_ns)
                    self._add("run_delay", self._end_ns, self._end_ns + delay_ns, step=self._step, file=self._file)
            self._depth += 1
        return now

    def end(self, now: int, *, is_start: bool = False) -> None:
        """Ends an activity.

        Args:
            now: the time.
            is_start: whether it was the start of an iterator, after which no step of the program follows.
        """
        if threading.get_ident() == self._thread and self._depth > 0:
            self._depth -= 1
            if self._depth == 0:
                self._end_ns = now if self._file and not is_start else 0
                if self._run_queue is None:
                    self._run_queue = RunQueue()
                self._delay_ns = self._run_queue.delay_ns()

    def fetched(self, step: int, file: str) -> None:
        """Notes the batch that the program gets by the activity that ends now; -1: there was none any more."""
        if threading.get_ident() == self._thread and self._depth == 1:
            self._step, self._file = step, file
