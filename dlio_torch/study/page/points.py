"""Points of a study: trials grouped by setting, their ranking, and the effect of each option."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Literal

from dlio_torch.analysis.repeats import Noise, Spread, apart, leaders, noise, spread
from dlio_torch.report.html.theme import clean
from dlio_torch.study.metrics import DEVICE_SHARE, THROUGHPUT, Metric
from dlio_torch.study.model import NOT_APPLICABLE, Axis, Trial
from dlio_torch.study.page.page_data import StudyData
from dlio_torch.study.page.point_trials import AxisSlice, Case, PointTrials
from dlio_torch.study.values import canonical, ordered, short_keys


@dataclass(frozen=True)
class StudyView:
    """A study's data with its points."""

    data: StudyData

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """The axes, each with all distinct values of its trials."""
        result = []
        for axis in self.data.axes:
            seen = [value for trial in self.data.trials for key, value in trial.values if key == axis.key]
            values = {canonical(value): value for value in reversed(axis.values) if value != NOT_APPLICABLE}
            given = tuple(dict.fromkeys(values[canonical(value)] for value in axis.values if value != NOT_APPLICABLE))
            more = ordered(value for value in seen if canonical(value) not in values and value != NOT_APPLICABLE)
            result.append(replace(axis, values=given + more))
        return tuple(result)

    @cached_property
    def _start_s(self) -> float:
        """Time at which the first trial started."""
        return min((_seconds(trial) for trial in self.data.trials if trial.started), default=0.0)

    def started_s(self, trial: Trial) -> float | None:
        """Seconds from the start of the first trial to the start of ``trial``; ``None``: only the order is known."""
        return _seconds(trial) - self._start_s if trial.started else None

    @cached_property
    def swept(self) -> tuple[Axis, ...]:
        """The axes with more than one value."""
        return tuple(axis for axis in self.axes if len(axis.values) > 1)

    @cached_property
    def names(self) -> dict[str, str]:
        """A short name of each axis' key."""
        return short_keys([axis.key for axis in self.data.axes])

    @cached_property
    def points(self) -> tuple[PointTrials, ...]:
        """The points by number, including failed points."""
        trials: dict[int, list[Trial]] = {}
        for trial in self.data.trials:
            trials.setdefault(trial.point, []).append(trial)
        return tuple(self._point(number, tuple(some)) for number, some in sorted(trials.items()))

    def _point(self, number: int, trials: tuple[Trial, ...]) -> PointTrials:
        known = {axis.key: {canonical(value): value for value in axis.values} for axis in self.axes}
        settings = {key: known.get(key, {}).get(canonical(value), value) for key, value in trials[0].values}
        done = [trial for trial in trials if not trial.failed]
        keys = dict.fromkeys(key for trial in done for key in trial.figures)
        spreads = {key: measured for key in keys if (measured := spread(trial.figures.get(key) for trial in done))}
        return PointTrials(number, settings, trials, spreads)

    @cached_property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics that any trial has, the objective first."""
        measured = {key for point in self.points for key in point.spreads}
        rest = [metric for metric in self.data.metrics if metric.key in measured and metric.key != self.objective.key]
        return (self.objective, *rest)

    @cached_property
    def objective(self) -> Metric:
        """The metric by which points are ranked."""
        named = [metric for metric in self.data.metrics if metric.key == self.data.objective]
        return named[0] if named else THROUGHPUT

    @property
    def better(self) -> Literal["higher", "lower"]:
        """The better direction of the objective."""
        return "lower" if self.objective.better == "lower" else "higher"

    @cached_property
    def scores(self) -> dict[int, Spread]:
        """The objective of each point that has this figure."""
        key = self.objective.key
        return {point.number: point.spreads[key] for point in self.points if key in point.spreads}

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """The workloads that have points with the objective, in the order of the axes' values."""
        keys = [axis.key for axis in self.swept if not axis.compared]
        groups: dict[tuple[str, ...], dict[int, Spread]] = {}
        for number, score in self.scores.items():
            settings = self.by_number[number].settings
            groups.setdefault(tuple(settings.get(key, NOT_APPLICABLE) for key in keys), {})[number] = score
        return tuple(
            Case(dict(zip(keys, place, strict=True)), leaders(scores, self.better), len(scores))
            for place, scores in groups.items()
        )

    @cached_property
    def best(self) -> frozenset[int]:
        """The points that are better than every other point of their workload beyond noise."""
        return frozenset(case.best for case in self.cases if case.best is not None)

    def case_of(self, point: PointTrials) -> Case | None:
        """The workload of a point; ``None`` if no point of the workload has the objective."""
        fits = (case for case in self.cases if all(point.settings.get(key) == item for key, item in case.fixed.items()))
        return next(fits, None)

    @cached_property
    def by_number(self) -> dict[int, PointTrials]:
        """The points by number."""
        return {point.number: point for point in self.points}

    @cached_property
    def ranked(self) -> tuple[PointTrials, ...]:
        """The points with a score, best first within each workload."""
        sign = -1 if self.better == "higher" else 1
        place = {id(case): index for index, case in enumerate(self.cases)}

        def rank(number: int) -> tuple[int, float, int]:
            return place[id(self.case_of(self.by_number[number]))], sign * self.scores[number].median, number

        return tuple(self.by_number[score] for score in sorted(self.scores, key=rank))

    @cached_property
    def default(self) -> PointTrials | None:
        """The point at which every option has the value that it has without the study."""
        if not self.axes or any(axis.default is None for axis in self.axes):
            return None
        wanted = {axis.key: canonical(axis.default or "") for axis in self.axes}
        for point in self.points:
            if all(_fits(point.settings.get(key, ""), value) for key, value in wanted.items()):
                return point
        return None

    @property
    def default_number(self) -> int | None:
        """Number of the default point."""
        return None if self.default is None else self.default.number

    @cached_property
    def device_shares(self) -> list[float]:
        """Share of the bytes read that came from the device, for each point that has it."""
        return [share.median for point in self.points if (share := point.spreads.get(DEVICE_SHARE.key))]

    @property
    def repeated(self) -> bool:
        """Whether any setting ran more than once, so that there is a measure of noise."""
        return any(score.count > 1 for score in self.scores.values())

    def gain(self, point: PointTrials, over: PointTrials) -> float:
        """Ratio of the objectives of two points, above 1 if the first point is better; NaN if unknown."""
        local, other = self.scores[point.number].median, self.scores[over.number].median
        first, second = (local, other) if self.better == "higher" else (other, local)
        return first / second if second > 0 else math.nan

    def differ(self, a: PointTrials, b: PointTrials) -> bool:
        """Whether the objectives of two points differ beyond noise."""
        return apart(self.scores[a.number], self.scores[b.number], self.scatter)

    @cached_property
    def scatter(self) -> Noise | None:
        """The scatter of single runs, over all settings together."""
        return noise(self.scores.values())

    def is_default(self, axis: Axis, value: str) -> bool:
        """Whether ``value`` is what the configuration sets for the option before the study changes it."""
        return axis.default is not None and canonical(axis.default) == canonical(value)

    def label(self, settings: Mapping[str, str]) -> str:
        """Formats settings: ``num_workers=4 prefetch_factor=2``."""
        shown = ((key, value) for key, value in settings.items() if value != NOT_APPLICABLE)
        return " ".join(f"{self.names.get(key, clean(key))}={clean(value)}" for key, value in shown)

    def contexts(self, axis: Axis) -> list[AxisSlice]:
        """Yields, for each setting of the other axes, the points with scores by the value of ``axis``.

        A point in which another option has no meaning stands in the contexts of all its values; one in which
        ``axis`` itself has none says nothing about it and is left out.
        """
        others = [other for other in self.swept if other.key != axis.key]
        groups: dict[tuple[str, ...], dict[str, PointTrials]] = {}
        anywhere: list[tuple[tuple[str, ...], PointTrials]] = []
        for point in self.points:
            if point.number not in self.scores or point.settings.get(axis.key, NOT_APPLICABLE) == NOT_APPLICABLE:
                continue
            place = tuple(point.settings.get(other.key, NOT_APPLICABLE) for other in others)
            if NOT_APPLICABLE in place:
                anywhere.append((place, point))
            else:
                groups.setdefault(place, {})[point.settings[axis.key]] = point
        for place, point in anywhere:
            fitting = [
                group for group in groups if all(a in (b, NOT_APPLICABLE) for a, b in zip(place, group, strict=True))
            ]
            for group in fitting or [place]:
                groups.setdefault(group, {}).setdefault(point.settings[axis.key], point)
        order = [{value: index for index, value in enumerate(other.values)} for other in others]
        result = []
        for place in sorted(
            groups, key=lambda values: [index.get(v, -1) for index, v in zip(order, values, strict=True)]
        ):
            members = groups[place]
            fixed = dict(zip((other.key for other in others), place, strict=True))
            result.append(AxisSlice(fixed, {value: members[value] for value in axis.values if value in members}))
        return result

    def effect(self, axis: Axis) -> float | None:
        """Ratio of the best to the worst value of an option, median over the settings of the other options."""
        ratios = []
        for context in self.contexts(axis):
            medians = [self.scores[point.number].median for point in context.points.values()]
            if len(medians) > 1 and min(medians) > 0:
                ratios.append(max(medians) / min(medians))
        return statistics.median(ratios) if ratios else None

    def favourites(self, axis: Axis) -> list[tuple[AxisSlice, tuple[str, ...]]]:
        """Best values of an option for each setting of the others, including values within noise of the best.

        As many comparisons are made at once as there are values in all settings, so a difference has to be large.
        """
        contexts = [context for context in self.contexts(axis) if len(context.points) > 1]
        comparisons = sum(len(context.points) - 1 for context in contexts)
        result = []
        for context in contexts:
            value_of = {point.number: value for value, point in context.points.items()}
            local = {number: self.scores[number] for number in value_of}
            first = leaders(local, self.better, self.scatter, comparisons)
            result.append((context, tuple(value_of[number] for number in first)))
        return result


def _fits(value: str, wanted: str) -> bool:
    return value == NOT_APPLICABLE or canonical(value) == wanted


def _seconds(trial: Trial) -> float:
    return datetime.fromisoformat(trial.started).timestamp()
