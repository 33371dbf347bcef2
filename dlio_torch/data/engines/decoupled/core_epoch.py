"""One epoch of the decoupled engine on the read core: the trainer's thread plans groups, C threads read them.

The trainer's thread submits groups while the window has room, takes those that are complete and cuts them into
batches.  No Python runs in between: it is woken once a group.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from dlio_torch.data.dataset.fetched import Fetched, failed
from dlio_torch.data.engines.decoupled.batch_groups import BatchGroups
from dlio_torch.data.engines.decoupled.block_pool import Memory
from dlio_torch.data.engines.decoupled.core_jobs import Job, Jobs
from dlio_torch.data.engines.decoupled.group_plan import ReadPlan
from dlio_torch.data.engines.decoupled.switch_interval import SHORT
from dlio_torch.errors import DlioError

_AT_FIRST = 2  # groups that are submitted before all others are planned: the first batch comes early


def _no_room() -> None:
    raise RuntimeError("all groups that may be read ahead were given, and none was reported as taken")


class _GroupUnderWay(NamedTuple):
    """Group under way.

    Attributes:
        number: of the group.
        job: its reads; ``None``: it could not be planned.  The error is not kept, for it would keep files open: the
            batches are planned one by one when the group is taken.
    """

    number: int
    job: Job | None


class FilledGroup(NamedTuple):
    """Group that is in memory.

    Attributes:
        plan: of its block.
        memory: the block.
        numbers: of its batches, where the core has recorded them.
    """

    plan: ReadPlan
    memory: Memory
    numbers: list[int]


class CoreEpoch(Iterator[Fetched]):
    """Iterator over an epoch's batches, whose groups are read by the threads of a read core.

    Args:
        groups: what is read.
        jobs: reads it.
        limit: bytes that are read ahead and not taken yet; a single group may be larger.
        in_order: give groups in the order of steps; else as they are ready.
        most: groups that are planned at once, with all their files open; ``None``: no limit.

    Attributes:
        wait_for_room: waits until :meth:`took` was called, where all that may be read ahead was given.
    """

    def __init__(self, groups: BatchGroups, jobs: Jobs, *, limit: int, in_order: bool, most: int | None = None) -> None:
        self._groups = groups
        self._jobs = jobs
        self.wait_for_room: Callable[[], None] = _no_room
        self._limit = limit
        self._in_order = in_order
        self._most = sys.maxsize if most is None else most
        self._count = len(groups)
        self._submitted = 0
        self._ahead = 0  # bytes of groups that are submitted and not taken
        self._under_way: deque[_GroupUnderWay] = deque()
        self._items: deque[Fetched] = deque()  # of the group that is being taken
        self._current = -1
        self._is_stopped = False
        SHORT.begin(self)
        self._fill(_AT_FIRST)

    def __next__(self) -> Fetched:
        """The next batch.

        Raises:
            RunFailed: none came in time.
        """
        items = self._items
        if not items:
            self._current, batches = self.next_group()
            items.extend(batches)
        item = items.popleft()
        if not items:
            self.took(self._current)
        return item

    @property
    def idle(self) -> Callable[[], None]:
        """Function that is called during long waits, which its exception ends."""
        return self._jobs.idle

    @idle.setter
    def idle(self, call: Callable[[], None]) -> None:
        self._jobs.idle = call

    def next_group(self) -> tuple[int, list[Fetched]]:
        """The next group and its number; the caller must report by :meth:`took` when the group is used up.

        Raises:
            RunFailed: none came in time.
        """
        number, group = self.next_filled()
        return number, self.cut(group) if isinstance(group, FilledGroup) else group

    def cut(self, group: FilledGroup) -> list[Fetched]:
        """The batches of a group."""
        return self._groups.cut(*group)

    def next_filled(self) -> tuple[int, FilledGroup | list[Fetched]]:
        """Same as :meth:`next_group`, but a group that could be read as a whole is not cut into batches.

        Raises:
            RunFailed: none came in time.
        """
        self._fill(self._count)
        while not self._under_way:
            if self._submitted >= self._count:
                self.stop()
                raise StopIteration
            self.wait_for_room()
            self._fill(self._count)
        group = self._first()
        number, job = group
        if job is not None:
            self._jobs.first([job])
        self._under_way.remove(group)
        if job is not None:
            try:
                return number, FilledGroup(job.plan, *self._jobs.finish(job))
            except DlioError as error:
                if len(self._groups.steps(number)) == 1:
                    return number, [failed(error)]
        return number, [item for step in self._groups.steps(number) for item in self._alone(step)]

    def took(self, number: int) -> None:
        """Remove a used-up group from the groups that count as read ahead, and submit others."""
        self._ahead -= self._groups.size(number)
        self._fill(self._count)

    def stop(self) -> bool:
        """Submit nothing more, and give up what the core still reads; returns whether that has ended in time."""
        self._count = 0
        self._under_way.clear()
        self._items.clear()
        SHORT.end(self)
        if self._is_stopped:  # jobs under way are those of a later epoch
            return self._jobs.is_idle
        self._is_stopped = True
        return self._jobs.cancel()

    def __del__(self) -> None:
        SHORT.end(self)

    def _fill(self, most: int) -> None:
        """Submits groups up to number ``most`` while there is room."""
        while self._submitted < min(self._count, most):
            size = self._groups.size(self._submitted)
            if (self._ahead and self._ahead + size > self._limit) or len(self._under_way) >= self._most:
                return
            number = self._submitted
            try:
                group = _GroupUnderWay(number, self._jobs.submit(self._groups.plan(number)))
            except DlioError:
                if self._under_way:  # their open files may be too many for this one: again when they are taken
                    return
                group = _GroupUnderWay(number, None)
            self._under_way.append(group)
            self._submitted += 1
            self._ahead += size

    def _first(self) -> _GroupUnderWay:
        """The group that is taken next."""
        first = self._under_way[0]
        if self._in_order or first.job is None or len(self._under_way) == 1:
            return first
        by_job = {id(group.job): group for group in self._under_way if group.job is not None}
        return by_job[id(self._jobs.first([group.job for group in by_job.values() if group.job is not None]))]

    def _alone(self, step: int) -> list[Fetched]:
        """The batch of one step of a group that could not be read as a whole, or its error."""
        try:
            job = self._jobs.submit(self._groups.plan_step(step))
            self._jobs.first([job])
            return self.cut(FilledGroup(job.plan, *self._jobs.finish(job)))
        except DlioError as error:
            return [failed(error)]
