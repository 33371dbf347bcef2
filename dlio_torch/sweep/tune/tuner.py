"""A search for better settings: runs, one at a time, until no untried setting can win; then the confirmation."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from dlio_torch.sweep.resolve import Resolved
from dlio_torch.sweep.runner import figures_text
from dlio_torch.sweep.store import Store
from dlio_torch.sweep.trial import Trial
from dlio_torch.sweep.tune import confirm as tune_confirm
from dlio_torch.sweep.tune import state as tune_state
from dlio_torch.sweep.tune.confirm import Gain
from dlio_torch.sweep.tune.objective import figure, optuna_value, outcome
from dlio_torch.sweep.tune.optuna import OptunaRecord, Record
from dlio_torch.sweep.tune.request import LEAST_PAIRS, Request
from dlio_torch.sweep.tune.search import Findings, Goal, best, decide
from dlio_torch.sweep.tune.space import SearchSpace
from dlio_torch.sweep.tune.state import State
from dlio_torch.sweep.tune.surrogate import Space
from dlio_torch.units import format_duration

Measure = Callable[[Resolved, int], Trial]
"""Runs a point for the n-th time; never raises for a run that fails."""

_FIRST_RUN_S = 10.0  # assumed before the first run has told


@dataclass(frozen=True)
class Found:
    """What a search has found so far.

    Attributes:
        trials: all, in the order of time.
        searched: how many of them are the search's; those behind confirm.
        stopped: why the search ended.
        finished: whether it was confirmed, or nothing had to be.
        chosen: index of the best point; 0 is the default.
        gain: of the best point over the default; ``None`` where it was not confirmed.
        noise: standard deviation of the logarithm of one run's figure.
    """

    trials: tuple[Trial, ...]
    searched: int
    stopped: str
    finished: bool
    chosen: int | None
    gain: Gain | None
    noise: float


@dataclass
class Tuner:
    """Searches and confirms.

    Attributes:
        request: what is asked.
        space: the points.
        store: where trials go.
        state: where the search was left.
        measure: runs a point.
        say: prints one line.
        now: seconds of a clock that only goes forward.
    """

    request: Request
    space: SearchSpace
    store: Store
    state: State
    measure: Measure
    say: Callable[[str], None]
    now: Callable[[], float] = time.monotonic
    trials: list[Trial] = field(init=False)

    def __post_init__(self) -> None:
        self.trials = self.store.trials()
        self._before_s = sum(trial.figures.get("trial.wall_s") or 0.0 for trial in self.trials)
        self._begin = self.now()
        self._record = OptunaRecord(
            self.store.path,
            self.request.study.name,
            self.space.study.axes,
            "minimize" if self.request.objective == "resources" else "maximize",
        )
        self._record.catch_up([self._of(i, trial) for i, trial in enumerate(self.trials)])

    @property
    def goal(self) -> Goal:
        """What is sought, for :mod:`dlio_torch.sweep.tune.search`."""
        return goal(self.request, self.space)

    def run(self) -> Found:
        """Search, confirm, and say what was found.

        Raises:
            DlioError: the directory cannot be written.
            KeyboardInterrupt: passed on; nothing that was finished is lost, see :meth:`found`.
        """
        if self.state.by_budget and self._affordable():
            self.state = self.state.searching()
        if self.state.searched is None:
            self._search()
        if self.state.chosen not in (None, 1):
            self._confirm()
        return self.found()

    def found(self) -> Found:
        """What is known now."""
        return found(self.request, self.space, self.state, self.trials)

    # --- search ----------------------------------------------------------------------------------

    def _search(self) -> None:
        while True:
            decision = decide(self.goal, [outcome(trial, self.request) for trial in self.trials])
            if decision.point is None or not self._affordable():
                break
            self._measure(decision.point, decision.why)
        by_budget = decision.point is not None
        chosen = best(self.goal, [outcome(trial, self.request) for trial in self.trials])
        self.state = replace(
            self.state,
            searched=len(self.trials),
            chosen=None if chosen is None else chosen + 1,
            stopped=self._used_up() if by_budget else decision.why,
            by_budget=by_budget,
        )
        tune_state.save(self.store.path, self.state)
        self.say(f"search: {self.state.stopped}")

    def _affordable(self) -> bool:
        """Whether another run of the search leaves enough for the confirmation."""
        pairs = self.request.pairs if self.request.trials >= 4 * self.request.pairs else LEAST_PAIRS
        if len(self.trials) + 1 + 2 * pairs > self.request.trials and len(self.trials) >= 2:
            return False
        least = (1 + 2 * LEAST_PAIRS) * self._typical_s()
        return self._spent_s() + least <= 60 * self.request.minutes or len(self.trials) < 2

    def _used_up(self) -> str:
        """Why the budget ends the search, although some of it is left."""
        seconds = max(0.0, 60 * self.request.minutes - self._spent_s())
        trials = self.request.trials - len(self.trials)
        return (
            f"the budget of {self.request.budget} has no room for another trial of the search: what is left, "
            f"{format_duration(seconds)} and {trials} trials, is kept for the confirmation"
        )

    # --- confirmation ----------------------------------------------------------------------------

    def _confirm(self) -> None:
        """Run default and chosen point in pairs, as many as it takes."""
        assert self.state.searched is not None
        assert self.state.chosen is not None
        while not self._settled():
            run = len(self.trials) - self.state.searched
            is_chosen = tune_confirm.order(run // 2)[run % 2]
            self._measure(self.state.chosen - 1 if is_chosen else 0, f"pair {run // 2 + 1} of the confirmation")

    def _settled(self) -> bool:
        assert self.state.searched is not None
        count = len(self.trials) - self.state.searched
        if count % 2:
            return False
        if count >= 2 * self.request.pairs:
            return True
        if count < 2 * LEAST_PAIRS:
            return False
        spent = len(self.trials) + 2 > self.request.trials
        late = self._spent_s() + 2 * self._typical_s() > 60 * self.request.minutes
        pairs = confirmed_pairs(self.request, self.state, self.trials)
        return spent or late or tune_confirm.decided(pairs)

    # --- one run ---------------------------------------------------------------------------------

    def _measure(self, index: int, why: str) -> None:
        point = self.space.points[index]
        repeat = 1 + sum(trial.point == point.point.number for trial in self.trials)
        running = self._record.begin(point.point.values)
        try:
            trial = self.store.append(self.measure(point, repeat))
        except BaseException:
            self._record.abandon(running)
            raise
        self.trials.append(trial)
        self._record.end(running, self._of(len(self.trials) - 1, trial))
        what = figures_text(trial) if trial.status == "done" else f"failed (exit code {trial.exit_code}): {trial.error}"
        left = format_duration(max(0.0, 60 * self.request.minutes - self._spent_s()))
        self.say(f"[{len(self.trials)}] {self._name(index)}: {what}; {why}; at most {left} left")

    def _of(self, number: int, trial: Trial) -> Record:
        confirms = self.state.searched is not None and number >= self.state.searched
        return Record(
            key=f"{number}",
            point=trial.point,
            repeat=trial.repeat,
            values=trial.values,
            value=optuna_value(trial, self.request, self.space.costs),
            notes={
                "phase": "confirmation" if confirms else "search",
                "directory": trial.directory,
                "samples_per_s": trial.figures.get("train.samples_per_s"),
                "au": trial.figures.get("au.mean"),
            },
        )

    def _name(self, index: int) -> str:
        label = self.space.points[index].point.label
        return f"default ({label})" if index == 0 else label

    def _spent_s(self) -> float:
        return self._before_s + self.now() - self._begin

    def _typical_s(self) -> float:
        took = [wall for trial in self.trials if (wall := trial.figures.get("trial.wall_s")) is not None]
        return statistics.median(took) if took else _FIRST_RUN_S


def goal(request: Request, space: SearchSpace) -> Goal:
    """What is sought among the points of ``space``."""
    keys = [axis.key for axis in space.study.axes]
    places = Space(keys, [dict(one.point.values) for one in space.points])
    if request.objective != "resources":
        return Goal(places)
    return Goal(places, enough=math.log(request.min_au), costs=tuple(cost.value for cost in space.costs))


def found(request: Request, space: SearchSpace, state: State, trials: Sequence[Trial]) -> Found:
    """What ``trials`` say."""
    searched = len(trials) if state.searched is None else state.searched
    outcomes = [outcome(trial, request) for trial in trials]
    chosen = state.chosen - 1 if state.chosen is not None else best(goal(request, space), outcomes[:searched])
    pairs = confirmed_pairs(request, state, trials)
    return Found(
        trials=tuple(trials),
        searched=searched,
        stopped=state.stopped,
        finished=state.searched is not None,
        chosen=chosen,
        gain=tune_confirm.gain(pairs),
        noise=Findings.of(outcomes).noise,
    )


def confirmed_pairs(request: Request, state: State, trials: Sequence[Trial]) -> list[tuple[float, float]]:
    """Figures of the default and the chosen point in the pairs that are complete; one with a failed run is none."""
    if state.searched is None:
        return []
    runs = trials[state.searched :]
    pairs = []
    for first, second in zip(runs[::2], runs[1::2], strict=False):
        default, chosen = (first, second) if first.point == 1 else (second, first)
        values = figure(default, request), figure(chosen, request)
        if values[0] is not None and values[1] is not None:
            pairs.append((values[0], values[1]))
    return pairs
