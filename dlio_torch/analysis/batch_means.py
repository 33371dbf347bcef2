"""Confidence intervals of 95 % from the durations of steps, which may depend on those of their neighbours.

The method of batch means (Law and Kelton, Simulation Modeling and Analysis): the steps are cut into ten batches of
neighbours, and the figures of the batches are taken for independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEAST_STEPS = 20
"""Fewest steps that have an interval."""

_S = 1e-9
_BATCHES = 10  # of steps
_T_95 = 2.262  # Student's t for a confidence of 95 % and nine degrees of freedom


def ratio_interval(computed: Sequence[NDArray[Any]], spent: Sequence[NDArray[Any]], mean: float) -> list[float] | None:
    """Confidence interval (95 %) of a mean utilisation, by batch means; None for fewer than 20 steps of some rank.

    Args:
        computed: for each rank, the requested compute time of each step, s.
        spent: for each rank, the duration of each step, s.
        mean: the mean utilisation.
    """
    if min(steps.size for steps in spent) < LEAST_STEPS:
        return None
    ratios = []
    for done, took in zip(computed, spent, strict=True):
        first = np.linspace(0, took.size, _BATCHES, endpoint=False).astype(int)
        ratios.append(np.add.reduceat(done, first) / np.maximum(np.add.reduceat(took, first), _S))
    half = _T_95 * _error(np.mean(ratios, axis=0))
    return [max(0.0, mean - half), mean + half]


def median_ratio_interval(values: NDArray[Any], base: NDArray[Any]) -> list[float] | None:
    """Confidence interval (95 %) of median(``values``) / median(``base``), by the logarithms of batch medians.

    Two sets of ten batches have at least nine degrees of freedom, which are assumed.  Of simulated log-normal steps the
    interval holds the true ratio in 93 % of all cases for 20 independent steps, in 83 % if neighbours correlate by 0.5;
    in 95 % for 100 steps of either sort.

    Args:
        values: durations of steps, neighbours after each other; at least ten.
        base: durations that they are compared with, likewise.

    Returns:
        Lower and upper end; None if the median of a batch is 0.
    """
    medians = [_medians(values), _medians(base)]
    if min(each.min() for each in medians) <= 0:
        return None
    factor = math.exp(_T_95 * math.hypot(*(_error(np.log(each)) for each in medians)))
    ratio = float(np.median(values) / np.median(base))
    return [ratio / factor, ratio * factor]


def _medians(steps: NDArray[Any]) -> NDArray[Any]:
    """Median of each batch."""
    return np.array([np.median(batch) for batch in np.array_split(steps, _BATCHES)])


def _error(batches: NDArray[Any]) -> float:
    """Standard error of the mean of the figures of batches."""
    return float(batches.std(ddof=1)) / math.sqrt(_BATCHES)
