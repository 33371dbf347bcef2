"""Trials of a setting, and the groups of settings that are compared: those of one option, and those of one workload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dlio_torch.analysis.repeats import Spread
from dlio_torch.study.model import Trial


@dataclass(frozen=True)
class PointTrials:
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
class AxisSlice:
    """The points in which one option changes and all other options stay the same.

    Args:
        fixed: value of each other axis' key.
        points: by the value of the option, in the axis' order.
    """

    fixed: Mapping[str, str]
    points: Mapping[str, PointTrials]


@dataclass(frozen=True)
class Case:
    """The points of one workload, which can be compared with each other.

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
        """The point that is better than every other point beyond noise, or ``None``."""
        return self.leaders[0] if len(self.leaders) == 1 and self.count > 1 else None
