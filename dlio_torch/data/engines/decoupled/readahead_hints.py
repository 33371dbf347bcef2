"""Read-ahead hints: on a cold cache, tells the system which groups come next, so that storage stays busy.

What goes on where the group before has ended in a file is left to the kernel: it reads ahead by itself there, in
larger pages, which costs half as much.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from dlio_torch.data.engines.decoupled.epoch_plans import Plans
from dlio_torch.data.engines.decoupled.group_plan import ReadPlan
from dlio_torch.errors import DlioError
from dlio_torch.native.extents import Ints, Mover

_ON = 32
"""Number of groups that get hints after a group that was not in the page cache."""


class Ahead:
    """Thread-safe plans of groups that give read-ahead hints for later groups.

    Args:
        plans: of all groups.
        groups: how many there are.
        depth: groups of which the system is told before their turn.
        mover: knows whether the cache is cold.
    """

    def __init__(self, plans: Plans, groups: int, depth: int, mover: Mover) -> None:
        self._plans = plans
        self._groups = groups
        self._depth = depth
        self._mover = mover
        self._until = 0
        self._telling = threading.Lock()
        self._hinted = 0  # all groups before this one
        self._ends: set[tuple[int, int]] = set()  # descriptor and byte behind each extent of the last of them

    def take(self, number: int) -> ReadPlan:
        """Takes the plan of a group and gives hints for later groups if the cache is cold.

        Raises:
            DataError: a file is missing or damaged.
        """
        plan = self._plans.take(number)
        if self._mover.cold:
            self._until = number + _ON
        if number < self._until:
            self._tell(number, plan)
        return plan

    def _tell(self, number: int, plan: ReadPlan) -> None:
        if not self._telling.acquire(blocking=False):  # whoever tells needs to know where the group before ended
            return
        try:
            if self._hinted <= number:
                self._hinted, self._ends = number + 1, {(descriptor, end) for descriptor, _, end in _extents(plan)}
            while self._hinted < min(self._groups, number + 1 + self._depth):
                self._hinted += 1
                with contextlib.suppress(DlioError):  # it is told when its turn comes
                    self._tell_of(self._hinted - 1)
        finally:
            self._telling.release()

    def _tell_of(self, number: int) -> None:
        before, self._ends = self._ends, set()
        plan = self._plans.peek(number)
        if plan is None:
            return
        for descriptor, begin, end in _extents(plan):
            self._ends.add((descriptor, end))
            if (descriptor, begin) not in before and end > begin:
                os.posix_fadvise(descriptor, begin, end - begin, os.POSIX_FADV_WILLNEED)


def _extents(plan: ReadPlan) -> Iterator[tuple[int, int, int]]:
    """Descriptor, first byte and end of each file extent that a plan reads."""
    yield from _joined(plan.descriptors, plan.extents.offsets, plan.extents.lengths)
    for descriptor, chunks in plan.chunks:
        order = np.argsort(chunks.offsets, kind="stable")
        which = np.full(len(order), descriptor, np.int32)
        yield from _joined(which, chunks.offsets[order], chunks.sizes[order])


def _joined(descriptors: npt.NDArray[np.int32], offsets: Ints, lengths: Ints) -> Iterator[tuple[int, int, int]]:
    if not len(offsets):  # all of it is chunks, records or in memory
        return
    ends = offsets + lengths
    apart = (descriptors[1:] != descriptors[:-1]) | (offsets[1:] != ends[:-1])
    firsts = np.concatenate([[0], np.flatnonzero(apart) + 1])
    lasts = np.append(firsts[1:], len(offsets)) - 1
    yield from zip(descriptors[firsts].tolist(), offsets[firsts].tolist(), ends[lasts].tolist(), strict=True)
