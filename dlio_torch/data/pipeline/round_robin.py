"""Round robin of threads over one iterator.

A stream can only be read in its order, but what is done to its items afterwards can be done by several
threads at once: the parallel map of TensorFlow's pipelines.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from dlio_torch.iotrace.recorder.spans import NULL, Recorder

T = TypeVar("T")


class RoundRobin(Generic[T]):
    """Distributes the items of ``source``: item k goes to share ``k % shares``, whose thread reads it in turn.

    Args:
        source: iterated over by whichever thread has the first turn.
        shares: iterators to deal to.
        recorder: takes spans ``turn``, the waits of a thread while another one reads.
    """

    def __init__(self, source: Iterable[T], shares: int, recorder: Recorder = NULL) -> None:
        self._source = source
        self._shares = shares
        self._recorder = recorder
        self._changed = threading.Condition()
        self._items: Iterator[T] | None = None
        self._due = 0
        self._over = False

    def share(self, number: int) -> Iterator[T]:
        """Yields the items of share ``number``."""
        while True:
            began = time.perf_counter_ns()
            with self._changed:
                self._changed.wait_for(lambda: self._over or self._due == number)
                self._recorder.add("turn", began, time.perf_counter_ns())
                if self._over:
                    return
                if self._items is None:
                    self._items = iter(self._source)
                items = self._items
            try:
                item = next(items)  # outside the lock: nobody else has the turn
            except BaseException as error:
                self.end()
                if isinstance(error, StopIteration):
                    return
                raise
            with self._changed:
                self._due = (number + 1) % self._shares
                self._changed.notify_all()
            yield item

    def end(self) -> None:
        """Stop waiting for turns: every share ends after the current read."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
