"""Reader threads that prefetch batches for the trainer.

Thread ``t`` of ``n`` runs an iterator of its own over batches t, t + n, ...; the trainer takes from
the threads in turn, which keeps the order.  Batch ``k + depth`` is started when the trainer has taken
batch ``k``: with a depth of 1 that is larcv's queue, whose next read begins right after the pop.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from dlio_torch.data.workers.placement import UNPLACED, Placement
from dlio_torch.data.workers.worker_errors import no_batch
from dlio_torch.errors import RunFailed

T = TypeVar("T")
_CLOSING_S = 2.0


class _End:
    """End of a thread's iterator, with the exception that ended it, if any."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class _ReaderThread(Generic[T]):
    """Reader thread: waits for a token, reads one item and puts it into the queue."""

    def __init__(self, number: int) -> None:
        self.tokens: queue.SimpleQueue[Iterator[T] | None] = queue.SimpleQueue()
        self.ready: queue.SimpleQueue[T | _End] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._run, name=f"reader {number}", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        take, give = self.tokens.get, self.ready.put
        while (source := take()) is not None:
            try:
                give(next(source))
            except StopIteration:
                give(_End(None))
            except BaseException as error:  # it is the trainer's to handle
                give(_End(error))
            source = None  # an iterator that is over must not live on here


class Items(Iterator[T]):
    """Items of several iterators in round robin, each iterator read by its own thread.

    Taking an item leaves room for another; :meth:`read_on` starts it.  The two are apart so that waking a
    thread, a system call, is no part of the wait for an item.
    """

    def __init__(
        self, readers: Sequence[_ReaderThread[T]], sources: Sequence[Iterator[T]], depth: int, timeout: float | None
    ) -> None:
        self._readers, self._sources, self._timeout = readers, sources, timeout
        self._under_way: deque[int] = deque()  # readers, in the order of items
        self._unwanted: deque[int] = deque()  # readers that still read what nobody will take
        self._following = 0
        self._room = depth
        self.read_on()

    def read_on(self) -> None:
        """Start reading as many items as the read-ahead limit allows."""
        while self._room:
            number = self._following % len(self._sources)
            self._readers[number].tokens.put(self._sources[number])
            self._under_way.append(number)
            self._following += 1
            self._room -= 1

    def __next__(self) -> T:
        """The next item.

        Raises:
            RunFailed: none came in time; and whatever a source raises.
        """
        if not self._under_way:
            self.read_on()
        if not self._under_way:
            raise StopIteration
        try:
            item = self._readers[self._under_way[0]].ready.get(timeout=self._timeout)
        except queue.Empty:
            raise no_batch("reader threads", self._timeout or 0.0) from None
        self._under_way.popleft()
        if isinstance(item, _End):
            self._stop()
            if item.error is not None:
                raise item.error
            raise StopIteration
        self._room += 1
        return item

    def drop(self, timeout: float | None) -> None:
        """Wait for current reads and discard all pending items; the iterator is at its end then.

        The next epoch finds empty queues, and no thread inside an iterator.

        Args:
            timeout: seconds to wait; ``None``: no limit.

        Raises:
            RunFailed: a thread was still reading then.
        """
        self._stop()
        for number in set(self._unwanted):
            with contextlib.suppress(queue.Empty):
                while True:
                    self._readers[number].tokens.get_nowait()
                    self._unwanted.remove(number)
        end = None if timeout is None else time.monotonic() + timeout
        while self._unwanted:
            left = None if end is None else max(0.0, end - time.monotonic())
            try:
                self._readers[self._unwanted[0]].ready.get(timeout=left)
            except queue.Empty:
                raise RunFailed(
                    "a reader thread of the loader does not return from a read",
                    hint="check the file system that holds the data",
                ) from None
            self._unwanted.popleft()

    def _stop(self) -> None:
        self._room = 0
        self._unwanted += self._under_way
        self._under_way.clear()


class ReadAhead(Generic[T]):
    """Runs iterators in their own threads and prefetches several items.

    Args:
        depth: items that are ready or being read at any time.
        timeout_s: seconds to wait for an item; 0 disables the limit.
        placement: CPUs of the threads.
    """

    def __init__(self, depth: int, timeout_s: float, placement: Placement = UNPLACED) -> None:
        self._placement = placement
        self._depth = depth
        self._timeout = timeout_s or None
        self._readers: list[_ReaderThread[T]] = []
        self._items: Items[T] | None = None

    @property
    def threads(self) -> list[threading.Thread]:
        """The threads, in the order of iterators."""
        return [reader.thread for reader in self._readers]

    def start(self, sources: Sequence[Iterator[T]]) -> Items[T]:
        """Start reading and iterate over ``sources`` in round robin.

        Raises:
            RunFailed: a thread still hangs in the iterators of before.
        """
        if self._items is not None:
            self._items.drop(self._timeout)
        while len(self._readers) < len(sources):
            self._readers.append(_ReaderThread(len(self._readers)))
        self._placement.place_threads(self.threads)
        self._items = Items(self._readers, sources, self._depth, self._timeout)
        return self._items

    def close(self) -> None:
        """End the threads; a thread still inside a read after two seconds is left to end after that read."""
        end = time.monotonic() + _CLOSING_S
        if self._items is not None:
            with contextlib.suppress(RunFailed):
                self._items.drop(_CLOSING_S)
        for reader in self._readers:
            reader.tokens.put(None)
        for reader in self._readers:
            reader.thread.join(max(0.0, end - time.monotonic()))
        self._readers, self._items = [], None
