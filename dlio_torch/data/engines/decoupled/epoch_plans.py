"""Plans of an epoch's groups, many of which are made at once because NumPy's cost hardly grows with their number."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from dlio_torch.data.engines.decoupled.group_plan import Planner, ReadPlan
from dlio_torch.data.order.orders import Indices
from dlio_torch.errors import DlioError

_MOST_GROUPS = 16
_MOST_SAMPLES = 2048
"""Number of samples planned at a time; takes some tenths of a millisecond, for which other threads wait."""


class Plans:
    """Thread-safe plans by group number, for threads that take them in approximate order.

    Args:
        planner: makes them.
        batches: the sample numbers of a group's batches.
        groups: how many groups there are.
    """

    def __init__(self, planner: Planner, batches: Callable[[int], Sequence[Indices]], groups: int) -> None:
        self._planner = planner
        self._batches = batches
        self._groups = groups
        self._lock = threading.Lock()
        self._waiting: dict[int, ReadPlan] = {}
        self._begun = -1
        self._alone = 0  # groups before this one are planned each for itself: one of them cannot be

    def take(self, number: int) -> ReadPlan:
        """Takes and removes the plan of a group.

        Raises:
            DataError: a file is missing or damaged.
        """
        with self._lock:
            self._begun = max(self._begun, number)
            plan = self._waiting.pop(number, None) or self._several(number)
        return plan or self._planner(self._batches(number))

    def peek(self, number: int) -> ReadPlan | None:
        """The plan of a group, without removing it; ``None`` if the plan was already taken.

        Raises:
            DataError: a file is missing or damaged.
        """
        with self._lock:
            if number <= self._begun:
                return None
            plan = self._waiting.get(number)
        if plan is None:
            plan = self._planner(self._batches(number))
            with self._lock:
                if number > self._begun:
                    self._waiting[number] = plan
        return plan

    def _several(self, number: int) -> ReadPlan | None:
        """Plans a group together with the following groups; ``None`` if it must be planned alone."""
        if not self._planner.joins or number < self._alone:
            return None
        first = self._batches(number)
        most = min(_MOST_GROUPS, _MOST_SAMPLES // sum(map(len, first)))
        numbers = range(number, min(number + max(1, most), self._groups))
        try:
            plans = self._planner.several([first, *map(self._batches, numbers[1:])])
        except DlioError:
            self._alone = numbers.stop
            return None
        self._waiting.update(zip(numbers[1:], plans[1:], strict=True))
        return plans[0]
