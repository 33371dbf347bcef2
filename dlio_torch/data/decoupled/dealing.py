"""The turns of lanes: which batch is made of which rows of which samples, and what is to be read for it.

Which lane goes on with which sample follows from lengths, which files tell before samples are read: groups of
batches are dealt one after another by that alone.  Who waits for the turn of a group reads samples that are asked
for next.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, islice

from dlio_torch.data.decoupled.epoch import Share
from dlio_torch.data.decoupled.incoming import Bringer, Handful, Incoming, one_by_one
from dlio_torch.data.lanes import LanesPlan
from dlio_torch.data.patterns import filled_lanes
from dlio_torch.errors import DlioError

Lanes = Sequence[tuple[Incoming, int]]
"""Of each lane its sample, and the first of the rows that a step takes from it."""


@dataclass(frozen=True)
class Step:
    """What a batch is made of.

    Attributes:
        lanes: see above; empty if there is an error.
        entered: samples that were asked for in this step, in their order.
        error: why the lanes cannot be filled.
    """

    lanes: Lanes
    entered: Sequence[Incoming]
    error: DlioError | None

    def failure(self) -> BaseException | None:
        """Why there is no such batch; waits until all of it is in memory."""
        for one in (*self.entered, *(one for one, _ in self.lanes)):
            if one.handful is not None:
                one.handful.done.wait()
            if one.error is not None:
                return one.error
        return self.error


@dataclass(frozen=True)
class Turn:
    """What a group does.

    Attributes:
        steps: of each batch.
        left: samples that no lane needs after it.
    """

    steps: Sequence[Step]
    left: Sequence[Incoming]


class Turns:
    """Deals the turns of groups in their order, and has samples brought.

    Args:
        plan: which samples.
        part: of whose lanes.
        begin: steps of these lanes before the first one that is wanted.
        steps: how many are wanted.
        each: steps of a group.
        bringer: reads samples.
        handful: samples that are read together.
        ahead: handfuls that are read before a lane asks for them.
    """

    def __init__(
        self, plan: LanesPlan, part: int, begin: int, steps: int, each: int, bringer: Bringer, handful: int, ahead: int
    ) -> None:
        self._bringer = bringer
        self._handful, self._ahead = handful, ahead
        self._order = plan.samples(part)
        self._steps = filled_lanes(self._samples(), plan.batch_size, plan.rows, _rows, plan.patience)
        self._before, self._left, self._each = begin, steps, each
        self._change = threading.Condition()
        self._next = 0  # the group whose turn it is
        self._broken: BaseException | None = None
        self._error: DlioError | None = None  # why there are no more steps
        self._claimed = 0  # handfuls
        self._asked = 0
        self._coming: dict[int, Handful] = {}  # those that are claimed and not asked for
        self._share: Share = one_by_one
        self._entered: list[Incoming] = []  # since the step before
        self._current: list[Incoming] = []  # in the lanes
        self._over = 0  # all groups before this one are made
        self._made: dict[int, Sequence[Incoming]] = {}  # what the groups behind it, which are made, have left

    def __call__(self, number: int, share: Share) -> Turn:
        """The turn of a group; brings samples until it comes."""
        while True:
            with self._change:
                self._change.wait_for(lambda: self._broken or self._next == number or self._has_room())
                if self._broken is not None:
                    raise self._broken
                if self._next == number:
                    break
                handful = self._claim()
            self._bring(handful, share)
        try:
            self._share = share
            turn = self._deal()
        except BaseException as error:
            with self._change:
                self._broken = error
                self._change.notify_all()
            raise
        with self._change:
            self._next += 1
            self._change.notify_all()
        return turn

    def made(self, number: int, turn: Turn) -> None:
        """A group is made: what it and those before have left is not needed any more."""
        free: list[Incoming] = []
        with self._change:
            self._made[number] = turn.left
            while self._over in self._made:
                free += self._made.pop(self._over)
                self._over += 1
        self._bringer.take_back(free)

    # --- the steps, for the one whose turn it is ------------------------------------------------------

    def _deal(self) -> Turn:
        had = self._current
        steps = [self._step() for _ in range(min(self._each, self._left))]
        self._left -= len(steps)
        seen = [*had, *(one for step in steps for one in (*step.entered, *(one for one, _ in step.lanes)))]
        goes_on = {id(one) for one in self._current}
        return Turn(steps, [one for key, one in {id(one): one for one in seen}.items() if key not in goes_on])

    def _step(self) -> Step:
        lanes: Lanes = ()
        if self._error is None:
            try:
                self._skip()
                lanes = next(self._steps)
            except DlioError as error:
                self._error = error
        self._fetch([one for one, _ in lanes if one.handful is None])
        self._current = [one for one, _ in lanes]
        entered, self._entered = self._entered, []
        return Step(lanes, entered, self._error)

    def _skip(self) -> None:
        """Step to the first one that is wanted, by lengths alone."""
        for _ in range(self._before):
            next(self._steps)
            self._entered.clear()
        if self._before:
            with self._change:
                self._before = 0  # from now on samples are read

    def _fetch(self, samples: Sequence[Incoming]) -> None:
        """Read samples of which only the lengths are known."""
        for first in range(0, len(samples), self._handful * self._ahead):
            some = samples[first : first + self._handful * self._ahead]
            handfuls = [self._of(some[at : at + self._handful]) for at in range(0, len(some), self._handful)]
            self._bring_all(handfuls)

    def _samples(self) -> Iterator[Incoming]:
        """The samples in the order in which lanes ask for them; their lengths are known."""
        for number in count():
            with self._change:
                fresh = number == self._claimed  # else somebody has it, or has had it
                claimed = [self._claim() for _ in range(self._ahead if fresh else 0)]
            self._bring_all(claimed)
            with self._change:
                handful = self._coming.pop(number)
                self._asked = number + 1
                self._change.notify_all()
                self._change.wait_for(partial(getattr, handful, "known"))
            for one in handful.samples:
                self._entered.append(one)
                yield one

    # --- samples --------------------------------------------------------------------------------------

    def _has_room(self) -> bool:
        return self._claimed < self._asked + self._ahead

    def _claim(self) -> Handful:
        samples = [Incoming(number) for number in islice(self._order, self._handful)]
        handful = Handful(samples, whole=False) if self._before else self._of(samples)
        self._coming[self._claimed] = handful
        self._claimed += 1
        return handful

    @staticmethod
    def _of(samples: Sequence[Incoming]) -> Handful:
        handful = Handful(samples, whole=True)
        for one in samples:
            one.handful = handful
        return handful

    def _bring_all(self, handfuls: Sequence[Handful]) -> None:
        if handfuls:
            self._share([partial(self._bring, handful, one_by_one) for handful in handfuls])
        if not all(handful.known for handful in handfuls):
            raise RuntimeError("the epoch was ended")  # parts are left out then; nobody hears of it

    def _bring(self, handful: Handful, share: Share) -> None:
        self._bringer.find(handful)
        with self._change:
            handful.known = True
            self._change.notify_all()
        self._bringer.read(handful, share)


def _rows(one: Incoming) -> int:
    if one.error is not None and not one.sizes:  # its length is not known either
        raise one.error
    return one.rows
