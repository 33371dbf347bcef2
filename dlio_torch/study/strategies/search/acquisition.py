"""Chooses the next point of a search, or ends the search, as a pure function of the measurements.

A search that was interrupted therefore goes on as if nothing had happened.

The order: the default; points far from it and from each other; the default again, which with every later
repetition tells the noise; then, as long as it is worth it, the untried point of the highest expected improvement.
No point is explored twice; only the default and those that lead are measured again, so that luck does not win.

The rule of stopping: no untried point beats the best one by more than the noise with a probability of 5 % or more,
by the belief of :mod:`dlio_torch.study.strategies.search.surrogate`, and each value of every axis of few values was
tried, since
an optimum between two bad ends is what a belief from the ends misses; or the best one leaves nothing to gain.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from dlio_torch.study.strategies.search.surrogate import Belief, Space, believe
from dlio_torch.units import percent

CHANCE = 0.05
"""Probability of winning below which a point is not tried."""
LEAST_GAIN = 0.01
"""Smallest relative difference, 1 %, that is worth a run."""
_FIRST_NOISE = 0.03  # before repetitions tell, taken as two of them
_FIRST_WEIGHT = 2.0
_MOST_FIRST = 6  # points before the belief is asked
_REPEATS = 2  # of the default, and of a point before it may win
_DEFAULT = 0  # index of the default point


@dataclass(frozen=True)
class Observation:
    """Result of one run of a point.

    Attributes:
        point: index of the point; 0 is the default.
        score: logarithm of the figure, higher is better; ``None``: the run failed.
        room: most that any point could be better than this run, as a difference of scores; ``None``: not known.
    """

    point: int
    score: float | None
    room: float | None = None


@dataclass(frozen=True)
class Decision:
    """The next step of a search.

    Attributes:
        point: index of the point to run; ``None``: stop.
        reason: in a few words.
    """

    point: int | None
    reason: str


@dataclass(frozen=True)
class Goal:
    """Goal of a search: the highest score, or the cheapest point whose score is high enough.

    Attributes:
        space: the points; the first is the default.
        enough: least score; ``None``: the highest.
        costs: of each point, where ``enough`` is given.
    """

    space: Space
    enough: float | None = None
    costs: tuple[float, ...] = ()


@dataclass
class Observations:
    """The outcomes by point.

    Attributes:
        scores: of the runs of each point that gave one.
        failed: points of which a run failed.
        rooms: what each run left to gain.
    """

    scores: dict[int, list[float]] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    rooms: dict[int, list[float]] = field(default_factory=dict)

    @classmethod
    def of(cls, outcomes: Iterable[Observation]) -> Observations:
        """Sort ``outcomes``."""
        result = cls()
        for outcome in outcomes:
            if outcome.score is None:
                result.failed.add(outcome.point)
                continue
            result.scores.setdefault(outcome.point, []).append(outcome.score)
            if outcome.room is not None:
                result.rooms.setdefault(outcome.point, []).append(outcome.room)
        for point in result.failed:  # one that fails now and then is none to recommend
            result.scores.pop(point, None)
        return result

    def count(self, point: int) -> int:
        """Runs of a point that gave a score."""
        return len(self.scores.get(point, ()))

    def means(self) -> dict[int, tuple[float, int]]:
        """Mean score and number of runs of each point."""
        return {point: (float(np.median(scores)), len(scores)) for point, scores in self.scores.items()}

    @property
    def noise(self) -> float:
        """Standard deviation of a single run's score, from repeated runs of the same point.

        Pooled over the points; 3 % counts as two repetitions, until there are more.
        """
        squares = sum(len(scores) * float(np.var(scores)) for scores in self.scores.values())
        freedom = sum(len(scores) - 1 for scores in self.scores.values())
        return math.sqrt((_FIRST_WEIGHT * _FIRST_NOISE**2 + squares) / (_FIRST_WEIGHT + freedom))

    @property
    def margin(self) -> float:
        """Difference up to which results are taken as noise."""
        return max(LEAST_GAIN, self.noise)


def decide(goal: Goal, outcomes: Sequence[Observation]) -> Decision:
    """The next step after ``outcomes``."""
    result = Observations.of(outcomes)
    size = goal.space.size
    untried = [point for point in range(size) if point not in result.scores and point not in result.failed]
    if _DEFAULT in untried:
        return Decision(_DEFAULT, "the default")
    first = min(size, _MOST_FIRST, max(3, goal.space.axes + 1))
    if size - len(untried) < first:
        return Decision(_farthest(goal.space, [p for p in range(size) if p not in untried], untried), "far from others")
    if 0 < result.count(_DEFAULT) < _REPEATS:
        return Decision(_DEFAULT, "the default again, to measure the noise")
    if not result.scores:
        return (
            Decision(untried[0], "all settings tried before failed")
            if untried
            else Decision(None, "every setting failed")
        )
    belief = believe(goal.space, result.means(), result.noise)
    if goal.enough is None:
        return _highest(goal.space, result, belief, untried)
    return _cheapest(goal, goal.enough, result, belief, untried)


def best(goal: Goal, outcomes: Sequence[Observation]) -> int | None:
    """Returns the point to recommend after ``outcomes``; ``None`` if no point has a score.

    The highest in the belief, so that a single lucky run counts for little; with ``goal.enough`` the cheapest
    that reached it, or the highest where none did.
    """
    result = Observations.of(outcomes)
    if not result.scores:
        return None
    belief = believe(goal.space, result.means(), result.noise)
    if goal.enough is not None:
        reached = _reached(goal.enough, result)
        if reached:
            return min(reached, key=lambda point: (goal.costs[point], -result.means()[point][0]))
    return _leader(result, belief)


def _leader(observations: Observations, belief: Belief) -> int:
    return max(sorted(observations.scores), key=lambda point: belief.mean[point])


def _reached(enough: float, observations: Observations) -> list[int]:
    return [point for point, (score, _) in observations.means().items() if score >= enough]


def _highest(space: Space, observations: Observations, belief: Belief, untried: Sequence[int]) -> Decision:
    leader = _leader(observations, belief)
    again = (
        Decision(leader, "the best again, to check that it was not luck")
        if observations.count(leader) < _REPEATS
        else None
    )
    room = float(np.median(observations.rooms[leader])) if leader in observations.rooms else math.inf
    if room < observations.margin:
        return again or Decision(
            None, f"the best setting leaves at most {_share(room)} to gain, the noise is {_share(observations.margin)}"
        )
    if not untried:
        return again or Decision(None, "every setting was tried")
    chances = belief.above(leader, observations.margin)
    top = max(untried, key=lambda point: chances[point])
    if chances[top] < CHANCE:
        unseen = space.unseen([*observations.scores, *observations.failed], untried)
        if unseen:
            return Decision(max(unseen, key=lambda point: chances[point]), "has a value that was not tried yet")
        return again or Decision(
            None,
            f"none of the {len(untried)} untried settings is expected to beat the best by more than the noise "
            f"({_share(observations.margin)}): the most likely one does with a probability of {percent(chances[top])}",
        )
    gains = belief.improvement(leader)
    return Decision(max(untried, key=lambda point: gains[point]), "highest expected improvement")


def _cheapest(
    goal: Goal, enough: float, observations: Observations, belief: Belief, untried: Sequence[int]
) -> Decision:
    reached = _reached(enough, observations)
    chances = belief.above_value(enough)
    if not reached:
        if not untried or max(chances[point] for point in untried) < CHANCE:
            leader = _leader(observations, belief)
            if observations.count(leader) < _REPEATS:
                return Decision(leader, "the best again, to check that it was not luck")
            return Decision(None, "no setting is expected to reach the utilisation")
        return Decision(max(untried, key=lambda point: chances[point]), "most likely to reach the utilisation")
    leader = min(reached, key=lambda point: (goal.costs[point], -observations.means()[point][0]))
    cheaper = [point for point in untried if goal.costs[point] < goal.costs[leader]]
    if not cheaper or max(chances[point] for point in cheaper) < CHANCE:
        if observations.count(leader) < _REPEATS:
            return Decision(leader, "the best again, to check that it was not luck")
        return Decision(
            None,
            "every cheaper setting was tried"
            if not cheaper
            else f"none of the {len(cheaper)} cheaper untried settings is expected to reach the utilisation",
        )
    saving = {point: 1 - goal.costs[point] / goal.costs[leader] for point in cheaper}
    return Decision(max(cheaper, key=lambda point: chances[point] * saving[point]), "cheaper, and may reach it")


def _farthest(space: Space, tried: Sequence[int], untried: Sequence[int]) -> int:
    """Returns the untried point whose nearest tried point is farthest away."""
    nearest = space.distances(untried, tried).sum(axis=0).min(axis=1)
    return untried[int(nearest.argmax())]


def _share(score: float) -> str:
    return percent(math.expm1(score))
