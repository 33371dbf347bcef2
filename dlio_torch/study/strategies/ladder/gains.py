"""Gain of removing a cost, from ratios of runs of the same round.

A round runs every rung once, so the machine's drift is nearly the same for all of them and cancels in the ratio of
two rungs in a round.  Of the logarithms of n such ratios (time of a step before / after), with mean m and standard
deviation s,

    interval = exp(m +- t(n - 1) s / sqrt(n))

holds the true ratio with a confidence of 95 % (Student's paired t test; t is the 97.5 % quantile).  The gain is
*beyond noise* where the interval leaves out 1; with a single round nothing is.

Where the first rounds cannot tell, there are more, and then a second look.  Whoever looks twice is wrong more often;
so each of the two intervals is one of 97.5 %, and both together hold the true ratio with a confidence of 95 % at the
least (Bonferroni), whichever of them it is that ends the study.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dlio_torch.analysis.repeats import student

METHOD = (
    "geometric mean of the ratios of runs of the same round; 95 % interval by Student's t, "
    "of 97.5 % at each of two looks where more rounds may follow"
)
_LEVEL = 0.05
_MOST = 20.0


@dataclass(frozen=True)
class Gain:
    """Gain of one rung over another, with its interval.

    Attributes:
        ratio: throughput after / before.
        low: lower end of its 95 % interval; ``None`` with a single round.
        high: upper end.
        before_s: time of a step before, geometric mean of these rounds.
        rounds: rounds that had both.
    """

    ratio: float
    low: float | None
    high: float | None
    before_s: float
    rounds: int

    @property
    def beyond_noise(self) -> bool:
        """Whether the interval excludes 1."""
        return self.low is not None and self.high is not None and (self.low > 1 or self.high < 1)

    @property
    def seconds(self) -> float:
        """The gain in seconds of a step; negative if the later rung is slower."""
        return self.before_s * (1 - 1 / self.ratio)

    @property
    def interval_s(self) -> tuple[float, float] | None:
        """The interval in seconds of a step."""
        if self.low is None or self.high is None:
            return None
        return self.before_s * (1 - 1 / self.low), self.before_s * (1 - 1 / self.high)


def gain(before: Mapping[int, float], after: Mapping[int, float], looks: int = 1) -> Gain | None:
    """Gain of a rung over another; ``None`` if no round has both.

    Args:
        before: seconds of a step by round.
        after: the same of the other rung.
        looks: how often the rounds are looked at before the study ends, at the most.
    """
    rounds = sorted(before.keys() & after.keys())
    if not rounds:
        return None
    ratios = [math.log(before[item] / after[item]) for item in rounds]
    mean, base = statistics.fmean(ratios), geometric_mean(before[item] for item in rounds)
    if len(rounds) == 1:
        return Gain(math.exp(mean), None, None, base, 1)
    quantile = student(1 - _LEVEL / (2 * looks), len(rounds) - 1)
    # Powers beyond any machine say no more than "unbounded", and must stay numbers.
    margin = min(quantile * statistics.stdev(ratios) / math.sqrt(len(rounds)), _MOST)
    return Gain(math.exp(mean), math.exp(mean - margin), math.exp(mean + margin), base, len(rounds))


def geometric_mean(values: Iterable[float]) -> float:
    """Geometric mean. The ratio of two such means is the mean of the ratios, so printed values add up and divide.

    Raises:
        statistics.StatisticsError: there is no value, or one is not positive.
    """
    return statistics.geometric_mean(values)
