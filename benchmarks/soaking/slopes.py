"""Tests whether a figure grows: the Theil-Sen slope of its samples, and its confidence interval.

The slope is the median of the slopes of all pairs of samples, which a few odd samples do not move.  Its interval of
95 % is Sen's: the slopes at the ranks that Kendall's statistic leaves open.  (P. K. Sen, "Estimates of the regression
coefficient based on Kendall's tau", JASA 63, 1968.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_MOST = 800  # samples of which all pairs are taken
_Z = 1.96


@dataclass(frozen=True)
class Slope:
    """A straight line through samples.

    Attributes:
        per_s: what a second adds.
        low: lower end of the interval of 95 %, likewise.
        high: its upper end.
        median: of the samples.
        last: the last sample.
    """

    per_s: float
    low: float
    high: float
    median: float
    last: float


def slope(times: Sequence[float], values: Sequence[float]) -> Slope | None:
    """The line through the samples; ``None`` for fewer than eight samples."""
    if len(times) < 8:
        return None
    some = np.unique(np.linspace(0, len(times) - 1, min(len(times), _MOST)).round().astype(int))
    at, of = np.asarray(times, float)[some], np.asarray(values, float)[some]
    first, second = np.triu_indices(len(some), 1)
    apart = at[second] - at[first]
    slopes = np.sort((of[second] - of[first])[apart > 0] / apart[apart > 0])
    count = len(some)
    open_ranks = _Z * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    low, high = (len(slopes) - open_ranks) / 2, (len(slopes) + open_ranks) / 2
    ends = [slopes[max(0, min(len(slopes) - 1, round(rank)))] for rank in (low - 1, high)]
    return Slope(float(np.median(slopes)), float(ends[0]), float(ends[1]), float(np.median(of)), float(of[-1]))
