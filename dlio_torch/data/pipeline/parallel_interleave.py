"""Fixed-order interleaving of files, each read by one thread, like ``tf.data.experimental.parallel_interleave``.

Source: tensorflow/tensorflow, tensorflow/core/kernels/data/experimental/parallel_interleave_dataset_op.cc
(``EnsureWorkerThreadsStarted``, ``WorkerThread``, ``GetNextInternal``), and the defaults of its arguments in
tensorflow/python/data/ops/readers.py (``ParallelInterleaveDataset``).
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from dlio_torch.syserrors import refused

T = TypeVar("T")
_CLOSING_S = 2.0


class _Failed:
    """Error that ended a source."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Over:
    """Marker for the end of a source."""


class _Stage:
    """State that the threads and the consumer share.

    Attributes:
        lock: of everything here, and of all readers.
        buffer: items that a reader has ready at the most.
        cancelled: nobody takes items any more.
        pid: of the process that has the threads.
    """

    def __init__(self, buffer: int) -> None:
        self.lock = threading.RLock()
        self.buffer = buffer
        self.cancelled = False
        self.pid = os.getpid()


class _SourceReader(Generic[T]):
    """Thread that reads one source to its end and then waits for another.

    Attributes:
        items: that are ready, at most as many as the buffer holds; the thread holds another one.
        busy: the source has not come to its end yet.
    """

    def __init__(self, stage: _Stage, number: int) -> None:
        self._stage = stage
        self._changed = threading.Condition(stage.lock)
        self._source: Iterable[T] | None = None
        self.items: deque[T | _Failed] = deque()
        self.busy = False
        self.thread = threading.Thread(target=self._run, name=f"interleave {number}", daemon=True)

    def begin(self, source: Iterable[T]) -> None:
        """Start reading another source; the caller must hold the lock."""
        self._source, self.busy = source, True
        self._changed.notify_all()

    def take(self) -> T | _Over:
        """Waits for the next item of the source and returns it.

        Raises:
            BaseException: what ended the source.
        """
        with self._stage.lock:
            self._changed.wait_for(lambda: self.items or not self.busy)
            if not self.items:
                return _Over()
            item = self.items.popleft()
            self._changed.notify_all()
        if isinstance(item, _Failed):
            raise item.error
        return item

    def wake(self) -> None:
        """Wake the thread; the caller must hold the lock."""
        self._changed.notify_all()

    def _run(self) -> None:
        while (source := self._taken()) is not None:
            items = iter(source)
            del source
            try:
                for item in items:
                    if not self._give(item):
                        break
            except BaseException as error:  # it is the consumer's to handle
                self._give(_Failed(error))
            finally:
                # A file that is open when the stream is abandoned.
                close = getattr(items, "close", None)
                if close is not None:
                    close()
            del items
            self._end()

    def _taken(self) -> Iterable[T] | None:
        with self._stage.lock:
            self._changed.wait_for(lambda: self._source is not None or self._stage.cancelled)
            source, self._source = self._source, None
            return None if self._stage.cancelled else source

    def _room(self) -> bool:
        self._changed.wait_for(lambda: len(self.items) < self._stage.buffer or self._stage.cancelled)
        return not self._stage.cancelled

    def _give(self, item: T | _Failed) -> bool:
        with self._stage.lock:
            if self._room():
                self.items.append(item)
                self._changed.notify_all()
                return True
            return False

    def _end(self) -> None:
        with self._stage.lock:
            self._room()
            self.busy = False
            self._changed.notify_all()


def interleaved_in_parallel(
    sources: Iterable[Iterable[T]], cycle_length: int, prefetch: int, buffer: int
) -> Iterator[T]:
    """Yields one item of each of ``cycle_length`` sources in round robin, each read by its own thread.

    The order is that of :func:`~dlio_torch.data.order.access_patterns.interleaved`.  Beside the sources in turn,
    ``prefetch`` further ones are begun and read up to their buffers; the first of them takes the place of one that is
    over, whose thread begins another source.  ``cycle_length + prefetch`` threads live as long as the iterator.

    Args:
        sources: what to read; one is asked for when a thread is free for it.
        cycle_length: sources in turn, at least 1; TensorFlow's ``cycle_length``.
        prefetch: sources that are begun before their turn; ``prefetch_input_elements``.
        buffer: items of each source that are ready, beside one that its thread holds; ``buffer_output_elements``.

    Raises:
        DlioError: the system starts no more threads.
    """
    coming, stage = iter(sources), _Stage(buffer)
    readers: list[_SourceReader[T]] = []
    try:
        for number in range(cycle_length + prefetch):
            source = next(coming, None)
            if source is None:
                break
            readers.append(_SourceReader(stage, number))
            with stage.lock:
                readers[-1].begin(source)
            _start(readers[-1].thread)
        turn: list[_SourceReader[T] | None] = [*readers[:cycle_length]]
        staged = deque(readers[cycle_length:])
        place = 0
        while any(turn):
            reader = turn[place]
            if reader is not None:
                item = reader.take()
                if not isinstance(item, _Over):
                    yield item
                else:
                    source = next(coming, None)
                    if source is not None:
                        with stage.lock:
                            reader.begin(source)
                        staged.append(reader)
                    turn[place] = staged.popleft() if staged else None
            place = (place + 1) % len(turn)
    finally:
        _close(stage, readers)


def _start(thread: threading.Thread) -> None:
    try:
        thread.start()
    except RuntimeError as error:  # "can't start new thread" is all that Python says
        limit = OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        elsewhere = "lower access.interleave or access.interleave_prefetch"
        raise refused("the threads that read files cannot be started", limit, elsewhere=elsewhere) from error


def _close(stage: _Stage, readers: Sequence[_SourceReader[Any]]) -> None:
    """End the threads; a thread still inside a read after two seconds ends after that read."""
    if stage.pid != os.getpid():  # forked from the process that has them
        return
    with stage.lock:
        stage.cancelled = True
        for reader in readers:
            reader.wake()
    end = time.monotonic() + _CLOSING_S
    for reader in readers:
        if reader.thread.ident is not None and reader.thread is not threading.current_thread():
            reader.thread.join(max(0.0, end - time.monotonic()))
