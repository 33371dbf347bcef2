"""The points of a study: trials of one setting put together, ranked, and asked what each option does."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from dlio_torch.analysis.repeats import Noise, Spread, apart, leaders, noise, spread
from dlio_torch.report.html.study.data import NO_MEANING, THROUGHPUT, Axis, Metric, StudyData, Trial
from dlio_torch.report.html.study.values import canonical, ordered, short_keys
from dlio_torch.report.html.theme import clean


@dataclass(frozen=True)
class Point:
    """A setting with all its trials.

    Args:
        number: its number in the study.
        settings: value of each axis' key.
        trials: in the order of time.
        spreads: of each metric that was measured, by key.
    """

    number: int
    settings: Mapping[str, str]
    trials: tuple[Trial, ...]
    spreads: Mapping[str, Spread]

    @property
    def failed(self) -> bool:
        """Whether no trial was finished."""
        return all(trial.failed for trial in self.trials)


@dataclass(frozen=True)
class Context:
    """The points in which one option changes and all others stay.

    Args:
        fixed: value of each other axis' key.
        points: by the value of the option, in the axis' order.
    """

    fixed: Mapping[str, str]
    points: Mapping[str, Point]


@dataclass(frozen=True)
class Case:
    """The points of one workload, which may be compared with each other.

    Args:
        fixed: value of each axis' key whose values are workloads; empty where there is one workload.
        leaders: numbers of the best point and of those that do not differ from it beyond noise, best first.
        count: of its points that have the objective.
    """

    fixed: Mapping[str, str]
    leaders: tuple[int, ...]
    count: int

    @property
    def best(self) -> int | None:
        """The point that is better than every other beyond noise."""
        return self.leaders[0] if len(self.leaders) == 1 and self.count > 1 else None


@dataclass(frozen=True)
class Study:
    """A study's data with its points."""

    data: StudyData

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """The axes, each with all values that its trials have, each value once."""
        found = []
        for axis in self.data.axes:
            seen = [trial.settings[axis.key] for trial in self.data.trials if axis.key in trial.settings]
            values = {canonical(value): value for value in reversed(axis.values) if value != NO_MEANING}
            given = tuple(dict.fromkeys(values[canonical(one)] for one in axis.values if one != NO_MEANING))
            more = ordered(value for value in seen if canonical(value) not in values and value != NO_MEANING)
            found.append(replace(axis, values=given + more))
        return tuple(found)

    @cached_property
    def swept(self) -> tuple[Axis, ...]:
        """The axes with more than one value."""
        return tuple(axis for axis in self.axes if len(axis.values) > 1)

    @cached_property
    def names(self) -> dict[str, str]:
        """A short name of each axis' key."""
        return short_keys([axis.key for axis in self.data.axes])

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """The points by number, those that failed too."""
        trials: dict[int, list[Trial]] = {}
        for trial in self.data.trials:
            trials.setdefault(trial.point, []).append(trial)
        return tuple(self._point(number, tuple(some)) for number, some in sorted(trials.items()))

    def _point(self, number: int, trials: tuple[Trial, ...]) -> Point:
        known = {axis.key: {canonical(value): value for value in axis.values} for axis in self.axes}
        settings = {key: known.get(key, {}).get(canonical(value), value) for key, value in trials[0].settings.items()}
        done = [trial for trial in trials if not trial.failed]
        keys = dict.fromkeys(key for trial in done for key in trial.figures)
        spreads = {key: found for key in keys if (found := spread(trial.figures.get(key) for trial in done))}
        return Point(number, settings, trials, spreads)

    @cached_property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics that any trial has, the objective first."""
        measured = {key for point in self.points for key in point.spreads}
        rest = [one for one in self.data.metrics if one.key in measured and one.key != self.objective.key]
        return (self.objective, *rest)

    @cached_property
    def objective(self) -> Metric:
        """The metric by which points are ranked."""
        named = [one for one in self.data.metrics if one.key == self.data.objective]
        return named[0] if named else THROUGHPUT

    @property
    def better(self) -> Literal["higher", "lower"]:
        """The better direction of the objective."""
        return "lower" if self.objective.better == "lower" else "higher"

    @cached_property
    def scores(self) -> dict[int, Spread]:
        """The objective of each point that has it."""
        key = self.objective.key
        return {point.number: point.spreads[key] for point in self.points if key in point.spreads}

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """The workloads that have points with the objective, in the order of the axes' values."""
        keys = [axis.key for axis in self.swept if not axis.compared]
        groups: dict[tuple[str, ...], dict[int, Spread]] = {}
        for number, one in self.scores.items():
            settings = self.by_number[number].settings
            groups.setdefault(tuple(settings.get(key, NO_MEANING) for key in keys), {})[number] = one
        return tuple(
            Case(dict(zip(keys, place, strict=True)), leaders(scores, self.better), len(scores))
            for place, scores in groups.items()
        )

    @cached_property
    def best(self) -> frozenset[int]:
        """The points that are better than every other of their workload beyond noise."""
        return frozenset(case.best for case in self.cases if case.best is not None)

    def case_of(self, point: Point) -> Case | None:
        """The workload of a point; ``None`` where that has no point with the objective."""
        fits = (case for case in self.cases if all(point.settings.get(key) == one for key, one in case.fixed.items()))
        return next(fits, None)

    @cached_property
    def by_number(self) -> dict[int, Point]:
        """The points by number."""
        return {point.number: point for point in self.points}

    @cached_property
    def ranked(self) -> tuple[Point, ...]:
        """The points with a score, best first; workload by workload where there are several."""
        sign = -1 if self.better == "higher" else 1
        place = {id(case): at for at, case in enumerate(self.cases)}

        def rank(number: int) -> tuple[int, float, int]:
            return place[id(self.case_of(self.by_number[number]))], sign * self.scores[number].median, number

        return tuple(self.by_number[one] for one in sorted(self.scores, key=rank))

    @cached_property
    def default(self) -> Point | None:
        """The point at which every option has the value that it has without the study."""
        if not self.axes or any(axis.default is None for axis in self.axes):
            return None
        wanted = {axis.key: canonical(axis.default or "") for axis in self.axes}
        for point in self.points:
            if all(_fits(point.settings.get(key, ""), value) for key, value in wanted.items()):
                return point
        return None

    @property
    def repeated(self) -> bool:
        """Whether any setting ran more than once, so that there is a measure of noise."""
        return any(one.count > 1 for one in self.scores.values())

    def gain(self, point: Point, over: Point) -> float:
        """How many times as good the objective of a point is as that of another; NaN where it cannot be told."""
        own, other = self.scores[point.number].median, self.scores[over.number].median
        first, second = (own, other) if self.better == "higher" else (other, own)
        return first / second if second > 0 else math.nan

    def differ(self, a: Point, b: Point) -> bool:
        """Whether the objectives of two points differ beyond noise."""
        return apart(self.scores[a.number], self.scores[b.number], self.scatter)

    @cached_property
    def scatter(self) -> Noise | None:
        """The scatter of single runs, of all settings together."""
        return noise(self.scores.values())

    def is_default(self, axis: Axis, value: str) -> bool:
        """Whether ``value`` is what the option has without the study."""
        return axis.default is not None and canonical(axis.default) == canonical(value)

    def label(self, settings: Mapping[str, str], *, short: bool = True) -> str:
        """``num_workers=4 prefetch_factor=2``."""
        names = self.names if short else {key: clean(key) for key in settings}
        return " ".join(
            f"{names.get(key, clean(key))}={clean(value)}" for key, value in settings.items() if value != NO_MEANING
        )

    def at(self, settings: Mapping[str, str]) -> Point | None:
        """The point of these values of all swept options; one in which some of them have no meaning stands for all."""
        exact = tuple(settings[axis.key] for axis in self.swept)
        if exact in self._places:
            return self._places[exact]
        for place, point in self._places.items():
            if _stands_for(place, exact):
                return point
        return None

    @cached_property
    def _places(self) -> dict[tuple[str, ...], Point]:
        return {tuple(one.settings.get(axis.key, NO_MEANING) for axis in self.swept): one for one in self.points}

    def contexts(self, axis: Axis) -> list[Context]:
        """For each setting of the other axes that has points with scores: these points by the value of ``axis``.

        A point in which another option has no meaning stands in the contexts of all its values; one in which
        ``axis`` itself has none says nothing about it and is left out.
        """
        others = [other for other in self.swept if other.key != axis.key]
        groups: dict[tuple[str, ...], dict[str, Point]] = {}
        anywhere: list[tuple[tuple[str, ...], Point]] = []
        for point in self.points:
            if point.number not in self.scores or point.settings.get(axis.key, NO_MEANING) == NO_MEANING:
                continue
            place = tuple(point.settings.get(other.key, NO_MEANING) for other in others)
            if NO_MEANING in place:
                anywhere.append((place, point))
            else:
                groups.setdefault(place, {})[point.settings[axis.key]] = point
        for place, point in anywhere:
            fitting = [
                group for group in groups if all(a in (b, NO_MEANING) for a, b in zip(place, group, strict=True))
            ]
            for group in fitting or [place]:
                groups.setdefault(group, {}).setdefault(point.settings[axis.key], point)
        order = [{value: at for at, value in enumerate(other.values)} for other in others]
        found = []
        for place in sorted(groups, key=lambda one: [at.get(v, -1) for at, v in zip(order, one, strict=True)]):
            members = groups[place]
            fixed = dict(zip((other.key for other in others), place, strict=True))
            found.append(Context(fixed, {value: members[value] for value in axis.values if value in members}))
        return found

    def effect(self, axis: Axis) -> float | None:
        """How many times as good the best value of an option is as its worst, middle over the other settings."""
        ratios = []
        for context in self.contexts(axis):
            medians = [self.scores[point.number].median for point in context.points.values()]
            if len(medians) > 1 and min(medians) > 0:
                ratios.append(max(medians) / min(medians))
        return statistics.median(ratios) if ratios else None

    def favourites(self, axis: Axis) -> list[tuple[Context, tuple[str, ...]]]:
        """For each setting of the others: the best values of an option, those within noise of the best included.

        As many comparisons are made at once as there are values in all settings, so a difference has to be large.
        """
        contexts = [context for context in self.contexts(axis) if len(context.points) > 1]
        comparisons = sum(len(context.points) - 1 for context in contexts)
        found = []
        for context in contexts:
            value_of = {point.number: value for value, point in context.points.items()}
            own = {number: self.scores[number] for number in value_of}
            first = leaders(own, self.better, self.scatter, comparisons)
            found.append((context, tuple(value_of[number] for number in first)))
        return found


def _fits(value: str, wanted: str) -> bool:
    return value == NO_MEANING or canonical(value) == wanted


def _stands_for(place: tuple[str, ...], exact: tuple[str, ...]) -> bool:
    return all(a in (b, NO_MEANING) for a, b in zip(place, exact, strict=True))
