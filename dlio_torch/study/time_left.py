"""Estimates the time that the remaining trials of a study take."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from dlio_torch.study.model import Trial


def time_left(points: Sequence[int], trials: Sequence[Trial], compute_s: Mapping[int, float]) -> float | None:
    """Returns the seconds that the remaining trials take if no trial fails.

    A point that has run takes the median of its trials again.  Another point takes its emulated compute, and on top of
    that as much as the mean of the points that have run.  The first trial of a study does not count: it measures the
    limits of the storage, and imports what later trials inherit.

    Args:
        points: number of the point of each remaining trial.
        trials: all trials so far, in the order of time.
        compute_s: seconds of emulated compute of one trial of each point; 0 for a point that is not among them.

    Returns:
        The seconds; ``None`` as long as fewer than two trials count: one says nothing about other points.
    """
    took: dict[int, list[float]] = {}
    for trial in trials[1:]:
        seconds = trial.figures.get("trial.wall_s")
        if trial.status == "done" and seconds is not None:
            took.setdefault(trial.point, []).append(seconds)
    if sum(map(len, took.values())) < 2:
        return None
    medians = {point: statistics.median(seconds) for point, seconds in took.items()}
    others_s = statistics.mean(max(0.0, seconds - compute_s.get(point, 0.0)) for point, seconds in medians.items())
    return sum(medians.get(point, compute_s.get(point, 0.0) + others_s) for point in points)
