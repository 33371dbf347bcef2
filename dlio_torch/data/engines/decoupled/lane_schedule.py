"""Schedule of lanes: the samples and rows of each batch, and the samples to read for it.

Which lane goes on with which sample follows from lengths, which files tell before samples are read: groups of
batches are scheduled one after another by that alone.  A thread that waits for its group reads samples that lanes
ask for next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dlio_torch.data.engines.decoupled.epoch import Share
from dlio_torch.data.engines.decoupled.incoming_samples import Incoming, IncomingReader, one_by_one
from dlio_torch.data.engines.decoupled.prefetch_queue import PrefetchQueue
from dlio_torch.data.order.lanes_plan import LanesPlan
from dlio_torch.errors import DlioError

Lanes = Sequence[tuple[Incoming, int]]
"""Sample of each lane and the first of the rows that a step takes from it."""


@dataclass(frozen=True)
class Step:
    """Samples of one batch.

    Attributes:
        lanes: see above; empty if there is an error.
        entered: samples that were asked for in this step, in their order.
        error: why the lanes cannot be filled.
    """

    lanes: Lanes
    entered: Sequence[Incoming]
    error: DlioError | None

    def failure(self) -> BaseException | None:
        """The error of the batch, if any; waits until all its samples are in memory."""
        for sample in (*self.entered, *(sample for sample, _ in self.lanes)):
            if sample.done is not None:
                sample.done.wait()
            if sample.error is not None:
                return sample.error
        return self.error


@dataclass(frozen=True)
class ScheduledGroup:
    """Samples of a group of batches.

    Attributes:
        steps: of each batch.
        left: samples that no lane needs after it.
    """

    steps: Sequence[Step]
    left: Sequence[Incoming]


class LaneSchedule:
    """Scheduler of groups in order, which also prefetches samples.

    Args:
        plan: which samples.
        part: of whose lanes.
        begin: steps of these lanes before the first one that is wanted.
        steps: how many are wanted.
        each: steps of a group.
        reader: reads samples.
        window: samples that are read together.
        ahead: windows that are read before a lane asks for them.
    """

    # Nothing here refers back to what makes a group: what an epoch holds is free as soon as the last group is made.

    def __init__(
        self,
        plan: LanesPlan,
        part: int,
        begin: int,
        steps: int,
        each: int,
        reader: IncomingReader,
        window: int,
        ahead: int,
    ) -> None:
        self._reader = reader
        self._queue = PrefetchQueue(plan.samples(part), reader, window, ahead, whole=not begin)
        self._entered: list[Incoming] = []  # since the step before
        samples = _noted(self._queue.samples(), self._entered)
        self._steps = plan.steps(samples, part, _rows)
        self._before, self._left, self._each = begin, steps, each
        self._change = self._queue.change
        self._next = 0  # the group that comes next
        self._broken = ""  # what went wrong with a group, so that those behind it cannot be dealt
        self._error: DlioError | None = None  # why there are no more steps
        self._current: list[Incoming] = []  # in the lanes
        self._over = 0  # all groups before this one are made
        self._finished: dict[int, Sequence[Incoming]] = {}  # what the groups behind it, which are made, have left

    def __call__(self, number: int, share: Share) -> ScheduledGroup:
        """Schedule a group; helps fetching samples until all earlier groups are scheduled."""
        queue = self._queue
        while True:
            with self._change:
                self._change.wait_for(lambda: self._broken or self._next == number or queue.has_room())
                if self._broken:
                    raise RuntimeError(f"the lanes could not be filled for an earlier batch: {self._broken}")
                if self._next == number:
                    break
                window = queue.claim()
            queue.fetch(window, share)
        try:
            queue.share = share
            group = self._schedule_next()
        except BaseException as error:
            with self._change:
                self._broken = repr(error)
                self._change.notify_all()
            raise
        finally:
            queue.share = one_by_one
        with self._change:
            self._next += 1
            self._change.notify_all()
        return group

    def finish(self, number: int, group: ScheduledGroup) -> None:
        """Release samples that only this group and earlier groups needed."""
        free: list[Incoming] = []
        with self._change:
            self._finished[number] = group.left
            while self._over in self._finished:
                free += self._finished.pop(self._over)
                self._over += 1
        self._reader.take_back(free)

    def _schedule_next(self) -> ScheduledGroup:
        had = self._current
        steps = [self._step() for _ in range(min(self._each, self._left))]
        self._left -= len(steps)
        seen = [*had, *(sample for step in steps for sample in (*step.entered, *(sample for sample, _ in step.lanes)))]
        distinct = {id(sample): sample for sample in seen}
        current = {id(sample) for sample in self._current}
        return ScheduledGroup(steps, [sample for key, sample in distinct.items() if key not in current])

    def _step(self) -> Step:
        lanes: Lanes = ()
        if self._error is None:
            try:
                self._skip()
                lanes = next(self._steps)
            except DlioError as error:
                self._error = error.with_traceback(None)  # which would refer back to here
        self._queue.read([sample for sample, _ in lanes if sample.done is None])
        self._current = [sample for sample, _ in lanes]
        entered = self._entered.copy()
        self._entered.clear()
        return Step(lanes, entered, self._error)

    def _skip(self) -> None:
        """Skip to the first requested step by sample lengths alone, without reading samples."""
        for _ in range(self._before):
            next(self._steps)
            self._entered.clear()
        if self._before:
            self._before = 0
            with self._change:
                self._queue.whole = True


def _noted(samples: Iterator[Incoming], requested: list[Incoming]) -> Iterator[Incoming]:
    """Yields samples and adds each to ``asked`` when it is requested."""
    for sample in samples:
        requested.append(sample)
        yield sample


def _rows(sample: Incoming) -> int:
    if sample.error is not None and not sample.sizes:  # its length is not known either
        raise sample.error
    return sample.rows
