"""On a cold cache, the system is told of the groups that come next, so that storage works while others are copied.

What goes on where the group before has ended in a file is left to the kernel: it reads ahead by itself there, in
larger pages, which costs half as much.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from dlio_torch.data.decoupled.plan import Plan
from dlio_torch.errors import DlioError
from dlio_torch.native.places import Ints, Mover

_ON = 32
"""Groups for which the system is told after one that was not in the page cache: what is there may have been told."""
_Ends = set[tuple[int, int]]  # descriptor and byte behind each stretch


class Ahead:
    """The plans of groups; for any number of threads.

    Args:
        make: plans a group.
        groups: how many there are.
        depth: groups of which the system is told before their turn.
        mover: knows whether the cache is cold.
    """

    def __init__(self, make: Callable[[int], Plan], groups: int, depth: int, mover: Mover) -> None:
        self._make = make
        self._groups = groups
        self._depth = depth
        self._mover = mover
        self._lock = threading.Lock()
        self._until = 0
        self._told = 0  # all groups before this one
        self._plans: dict[int, Plan] = {}
        self._ends: dict[int, _Ends] = {}  # of the group that was told last

    def take(self, number: int) -> Plan:
        """The plan of a group whose turn it is.

        Raises:
            DataError: a file is missing or damaged.
        """
        with self._lock:
            plan = self._plans.pop(number, None)
        plan = plan or self._make(number)
        if self._mover.cold:
            self._until = number + _ON
        if number < self._until:
            self._tell(number, plan)
        return plan

    def _tell(self, number: int, plan: Plan) -> None:
        while True:
            with self._lock:
                following = max(self._told, number + 1)
                if following >= min(self._groups, number + 1 + self._depth):
                    return
                self._told = following + 1
                before = self._ends.pop(following - 1, None)
            if before is None and following == number + 1:
                before = {(descriptor, end) for descriptor, _, end in _stretches(plan)}
            with contextlib.suppress(DlioError):  # it is told when its turn comes
                found = self._make(following)
                ends: _Ends = set()
                for descriptor, begin, end in _stretches(found):
                    ends.add((descriptor, end))
                    if (descriptor, begin) not in (before or ()):
                        os.posix_fadvise(descriptor, begin, end - begin, os.POSIX_FADV_WILLNEED)
                with self._lock:
                    self._plans[following], self._ends[following] = found, ends


def _stretches(plan: Plan) -> Iterator[tuple[int, int, int]]:
    """Descriptor, first byte and end of each stretch of files that a plan reads."""
    yield from _joined(plan.descriptors, plan.pieces.offsets, plan.pieces.lengths)
    for descriptor, chunks in plan.chunks:
        order = np.argsort(chunks.offsets, kind="stable")
        which = np.full(len(order), descriptor, np.int32)
        yield from _joined(which, chunks.offsets[order], chunks.sizes[order])


def _joined(descriptors: npt.NDArray[np.int32], offsets: Ints, lengths: Ints) -> Iterator[tuple[int, int, int]]:
    ends = offsets + lengths
    apart = (descriptors[1:] != descriptors[:-1]) | (offsets[1:] != ends[:-1])
    firsts = np.concatenate([[0], np.flatnonzero(apart) + 1]) if len(offsets) else np.zeros(0, np.int64)
    lasts = np.append(firsts[1:], len(offsets)) - 1
    yield from zip(descriptors[firsts].tolist(), offsets[firsts].tolist(), ends[lasts].tolist(), strict=True)
