"""One epoch of the decoupled engine: reader threads that make groups of batches within a read-ahead limit.

Batches are made in groups, so that small ones do not cost a change of threads each.  Groups are begun in the
order of steps, when there is room for them; a thread that finds no room does parts of groups of other threads.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from dlio_torch.data.dataset.fetched import Fetched
from dlio_torch.data.workers.worker_errors import no_batch

Part = Callable[[], None]
Share = Callable[[Sequence[Part]], None]
"""Function that runs all parts of a task, helped by idle threads, and raises the error of any part."""


_SLICE_S = 0.1


def _nothing() -> None:
    """Does nothing during a wait."""


class Groups(Protocol):
    """Protocol of an epoch's groups of batches."""

    def __len__(self) -> int:
        """Number of groups."""

    def size(self, number: int) -> int:
        """Bytes of a group; the mean if samples differ in size."""

    def make(self, number: int, share: Share) -> list[Fetched]:
        """Makes the batches of a group, or the errors in their place."""


class Epoch(Iterator[Fetched]):
    """Iterator over an epoch's batches, whose groups are made by threads.

    Args:
        groups: what is made.
        threads: reader threads.
        limit: bytes that are read ahead and not taken yet; a single group may be larger.
        in_order: give groups in the order of steps; else as they are ready.
        timeout_s: seconds to wait for a batch; 0 disables the limit.

    Attributes:
        idle: is called by :meth:`next_filled` during long waits, which its exception ends.
        wait_for_room: likewise, where all that may be read ahead was given.
    """

    def __init__(self, groups: Groups, *, threads: int, limit: int, in_order: bool, timeout_s: float) -> None:
        self.idle: Callable[[], None] = _nothing
        self.wait_for_room: Callable[[], None] = _nothing
        self._groups = groups
        self._limit = limit
        self._in_order = in_order
        self._timeout_s = timeout_s
        lock = threading.Lock()
        self._work = threading.Condition(lock)  # readers wait for it
        self._come = threading.Condition(lock)  # the trainer waits for it
        self._begun = 0  # groups that a thread has taken on
        self._done = 0
        self._ahead = 0  # bytes of groups that are begun and not taken
        self._parts: deque[tuple[_Shared, Part]] = deque()
        self._ready: dict[int, list[Fetched] | BaseException] = {}
        self._stopped = False
        self._taken = 0  # groups
        self._items: deque[Fetched] = deque()  # of the group that is being taken
        self._current = -1
        self.threads = [
            threading.Thread(target=self._run, name=f"reader {number}", daemon=True) for number in range(threads)
        ]
        for thread in self.threads:
            thread.start()

    # --- the trainer's side ---------------------------------------------------------------------------

    def __next__(self) -> Fetched:
        """The next batch.

        Raises:
            RunFailed: none came in time.
        """
        if not self._items:
            self._current, batches = self.next_group()
            self._items.extend(batches)
        item = self._items.popleft()
        if not self._items:
            self.took(self._current)
        return item

    def next_group(self) -> tuple[int, list[Fetched]]:
        """The next group and its number; the caller must report by :meth:`took` when the group is used up.

        Raises:
            RunFailed: none came in time.
        """
        with self._come:
            if not self._come.wait_for(self._has_come, self._timeout_s or None):
                raise no_batch("reader threads", self._timeout_s)
            if self._taken == len(self._groups):
                raise StopIteration
            number = self._taken if self._in_order else next(iter(self._ready))
            batches = self._ready.pop(number)
            self._taken += 1
        if isinstance(batches, BaseException):
            raise batches
        return number, batches

    def next_filled(self) -> tuple[int, list[Fetched]]:
        """Same as :meth:`next_group`, for a thread that has to look at something else during long waits."""
        while True:
            with self._come:
                nothing_begun = self._begun == self._taken and not self._has_room()
                if self._come.wait_for(self._has_come, 0 if nothing_begun else _SLICE_S):
                    break
            (self.wait_for_room if nothing_begun else self.idle)()
        return self.next_group()

    def took(self, number: int) -> None:
        """Remove a used-up group from the groups that count as read ahead."""
        with self._work:
            self._ahead -= self._groups.size(number)
            self._work.notify_all()

    def _has_come(self) -> bool:
        if self._taken == len(self._groups):
            return True
        return self._taken in self._ready if self._in_order else bool(self._ready)

    def stop(self) -> None:
        """Start no further work; threads end after their current read."""
        with self._work:
            self._stopped = True
            self._taken = len(self._groups)
            self._ready.clear()
            self._items.clear()
            self._work.notify_all()
            self._come.notify_all()

    # --- the readers' side ----------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._work:
                self._work.wait_for(lambda: self._is_over() or bool(self._parts) or self._has_room())
                if self._is_over():
                    return
                shared = self._parts.popleft() if self._parts else None
                if shared is None:
                    number = self._begun
                    self._begun += 1
                    self._ahead += self._groups.size(number)
            if shared is None:
                self._make(number)
            else:
                self._run_part(*shared)

    def _is_over(self) -> bool:
        return self._stopped or self._done == len(self._groups)

    def _has_room(self) -> bool:
        if self._begun == len(self._groups):
            return False
        return not self._ahead or self._ahead + self._groups.size(self._begun) <= self._limit

    def _make(self, number: int) -> None:
        batches: list[Fetched] | BaseException
        try:
            batches = self._groups.make(number, self._share)
        except BaseException as error:  # it is the trainer's to handle
            batches = error
        with self._come:
            if not self._stopped:
                self._ready[number] = batches
            del batches  # the traceback of an error refers back to here
            self._done += 1
            if self._done == len(self._groups):
                self._work.notify_all()
            self._come.notify_all()

    def _share(self, parts: Sequence[Part]) -> None:
        if len(parts) == 1:
            parts[0]()
            return
        shared = _Shared(len(parts))
        with self._work:
            self._parts.extend((shared, part) for part in parts)
            self._work.notify_all()
        while True:
            with self._work:
                self._work.wait_for(lambda: not shared.left or bool(self._parts))
                if not shared.left:
                    break
                other = self._parts.popleft()
            self._run_part(*other)
        if shared.error is not None:
            raise shared.error

    def _run_part(self, shared: _Shared, part: Part) -> None:
        error: BaseException | None = None
        try:
            if shared.error is None and not self._stopped:
                part()
        except BaseException as raised:
            error = raised
        with self._work:
            shared.left -= 1
            shared.error = shared.error or error
            if not shared.left:
                self._work.notify_all()


class _Shared:
    """Parts of a task that are not done yet, and the first error in a part."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.error: BaseException | None = None
