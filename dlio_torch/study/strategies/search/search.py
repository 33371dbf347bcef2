"""Search strategy: trials until no untried setting is likely to win, then pairs of trials that confirm the gain."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from dlio_torch.config.arguments import split_argument
from dlio_torch.environment.machine import describe
from dlio_torch.errors import ConfigError, PreconditionError
from dlio_torch.study.model import Proposal, Trial
from dlio_torch.study.needs import StudyNeeds
from dlio_torch.study.store import Store
from dlio_torch.study.strategies.base import Strategy
from dlio_torch.study.strategies.search import search_state
from dlio_torch.study.strategies.search.acquisition import Goal, best, decide
from dlio_torch.study.strategies.search.confirmation import conclusive, order
from dlio_torch.study.strategies.search.costs import Host
from dlio_torch.study.strategies.search.objective import observation
from dlio_torch.study.strategies.search.search_console import plan_lines
from dlio_torch.study.strategies.search.search_request import LEAST_PAIRS, SearchRequest, parse_request
from dlio_torch.study.strategies.search.search_result import SearchResult, completed_pairs
from dlio_torch.study.strategies.search.search_space import GivenPoints, SearchSpace, given_points, search_space
from dlio_torch.study.strategies.search.search_state import State
from dlio_torch.study.strategies.search.surrogate import Space
from dlio_torch.units import format_duration

_CHANGEABLE = ("minutes", "trials", "repeats", "timeout", "start")
_FIRST_RUN_S = 10.0  # assumed before the first run


def prepare_search(request: SearchRequest, given: GivenPoints) -> Search:
    """Prepare a new search.

    Raises:
        ConfigError: there is nothing to search.
    """
    return Search(request, search_space(request, host(), given), State(request.arguments))


def stored_search(store: Store, arguments: Sequence[str] | None = None, *, changes: Sequence[str] = ()) -> Search:
    """Load the search in a directory.

    Args:
        store: of the directory.
        arguments: as requested on the command line; None: as stored.
        changes: ``key=value`` arguments that may differ from the stored ones.

    Raises:
        ConfigError: another argument would change.
        DataError: the directory holds no search.
        PreconditionError: the objective differs.
    """
    for argument in changes:
        if split_argument(argument)[0] not in _CHANGEABLE:
            raise ConfigError(
                f"{argument} (command line): cannot be changed while a search is resumed",
                hint=f"change only {', '.join(f'{key}=' for key in _CHANGEABLE)}, or begin another search",
            )
    state = search_state.load(store.path)
    before = parse_request(state.arguments, cwd=store.cwd)
    current = (*state.arguments, *changes) if arguments is None else state.as_begun(arguments)
    request = parse_request(current, cwd=store.cwd)
    if (request.objective, request.min_au) != (before.objective, before.min_au):
        raise PreconditionError(
            f"{store.path} contains a search with another objective",
            hint=f"choose a new folder with output=, or continue that search with --resume {store.path}",
        )
    space = search_space(request, host(), given_points(request, cwd=store.cwd), cwd=store.cwd)
    return Search(request, space, replace(state, arguments=current))


def host() -> Host:
    """The machine of this process."""
    import torch

    about = describe({})
    memory = [size for size in (about["memory"]["total_bytes"], about["memory"]["limit_bytes"]) if size]
    return Host(
        cores=max(1, int(about["cpu"]["cores_usable"])),
        gpus=torch.cuda.is_available(),
        memory_bytes=float(min(memory, default=1 << 33)),
    )


class Search(Strategy):
    """A search with its confirmation.

    Args:
        request: arguments of the search.
        space: its points.
        state: progress of the search.
        now: seconds of a monotonic clock.
    """

    verb: ClassVar[str] = "tune"
    noun: ClassVar[str] = "search"

    def __init__(
        self, request: SearchRequest, space: SearchSpace, state: State, now: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(space.study, space.points, space.notes)
        self.request, self.space, self.state, self.now = request, space, state, now
        self.goal = goal(request, space)
        self._reopened = False

    def plan(self, needs: StudyNeeds, done: int = 0) -> Iterator[str]:
        """Settings, data and budget."""
        return plan_lines(self.request, self.space, needs)

    def start(self, store: Store, say: Callable[[str], None]) -> None:
        """Begin to run in a directory, or to continue; the time of earlier trials counts."""
        super().start(store, say)
        self.state = search_state.save(store.path, self.state)
        self._before_s = sum(trial.wall_s or 0.0 for trial in store.trials())
        self._begin = self.now()

    def propose(self, trials: Sequence[Trial]) -> Proposal | None:
        """The next trial of the search, then of the confirmation."""
        if not self._reopened and self.state.by_budget and self._affordable(trials):
            self.state = self.state.searching()  # a larger budget
        self._reopened = True
        if self.state.searched is None:
            decision = decide(self.goal, [observation(trial, self.request) for trial in trials])
            if decision.point is not None and self._affordable(trials):
                return self._proposal(decision.point, decision.reason, trials)
            self._end_search(trials, self._used_up(trials) if decision.point is not None else decision.reason)
            self.state = replace(self.state, by_budget=decision.point is not None)
            search_state.save(self.store.path, self.state)
        if self.state.chosen in (None, 1) or self._settled(trials):
            return None
        assert self.state.searched is not None
        assert self.state.chosen is not None
        run = len(trials) - self.state.searched
        chosen = order(run // 2)[run % 2]
        return self._proposal(
            self.state.chosen - 1 if chosen else 0, f"pair {run // 2 + 1} of the confirmation", trials
        )

    def title(self, trial: Trial) -> str:
        """The values of the point."""
        label = self.points[trial.point - 1].label
        return f"default ({label})" if trial.point == 1 else label

    def after_failure(self, trial: Trial, trials: Sequence[Trial]) -> str:
        """Do nothing: a failed point is not tried again."""
        return ""

    def outlook(self, trials: Sequence[Trial]) -> str:
        """Returns the remaining time."""
        return f"at most {format_duration(self._left_s())} left"

    def result(self, trials: Sequence[Trial]) -> SearchResult:
        """The result of these trials."""
        return SearchResult(self.request, self.space, self.state, tuple(trials), self.goal, self.store)

    def _proposal(self, index: int, reason: str, trials: Sequence[Trial]) -> Proposal:
        point = self.points[index]
        return Proposal(point, 1 + sum(trial.point == point.number for trial in trials), reason)

    def _end_search(self, trials: Sequence[Trial], stopped: str) -> None:
        chosen = best(self.goal, [observation(trial, self.request) for trial in trials])
        self.state = replace(
            self.state, searched=len(trials), chosen=None if chosen is None else chosen + 1, stopped=stopped
        )
        self.say(f"search: {stopped}")

    # --- budget ----------------------------------------------------------------------------------

    def _affordable(self, trials: Sequence[Trial]) -> bool:
        """Whether the budget for the confirmation is left after another trial of the search."""
        pairs = self.request.pairs if self.request.trials >= 4 * self.request.pairs else LEAST_PAIRS
        if len(trials) < 2:
            return True
        if len(trials) + 1 + 2 * pairs > self.request.trials:
            return False
        return self._spent_s() + (1 + 2 * LEAST_PAIRS) * _typical_s(trials) <= 60 * self.request.minutes

    def _used_up(self, trials: Sequence[Trial]) -> str:
        """Returns why the budget ends the search although a part of the budget is left."""
        return (
            f"the budget of {self.request.budget} has no room for another trial of the search: the remaining "
            f"{format_duration(self._left_s())} and {self.request.trials - len(trials)} trials are kept for the "
            "confirmation"
        )

    def _settled(self, trials: Sequence[Trial]) -> bool:
        """Whether the confirmation needs, or can afford, no further pair."""
        assert self.state.searched is not None
        count = len(trials) - self.state.searched
        if count % 2 or count < 2 * LEAST_PAIRS:
            return False
        if count >= 2 * self.request.pairs or len(trials) + 2 > self.request.trials:
            return True
        late = self._spent_s() + 2 * _typical_s(trials) > 60 * self.request.minutes
        return late or conclusive(completed_pairs(self.request, self.state, trials))

    def _spent_s(self) -> float:
        return self._before_s + self.now() - self._begin

    def _left_s(self) -> float:
        return max(0.0, 60 * self.request.minutes - self._spent_s())


def goal(request: SearchRequest, space: SearchSpace) -> Goal:
    """The goal of a search among the points of ``space``."""
    keys = [axis.key for axis in space.study.axes]
    coordinates = Space(keys, [dict(resolved.point.values) for resolved in space.points])
    if request.objective != "resources":
        return Goal(coordinates)
    return Goal(coordinates, enough=math.log(request.min_au), costs=tuple(cost.value for cost in space.costs))


def _typical_s(trials: Sequence[Trial]) -> float:
    times = [seconds for trial in trials if (seconds := trial.wall_s) is not None]
    return statistics.median(times) if times else _FIRST_RUN_S
