"""Gain of a setting over the default, from pairs of consecutive runs, so that drift affects both equally."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dlio_torch.study.strategies.search.search_request import LEAST_PAIRS

METHOD = (
    "median of the ratios of pairs of runs, the order changing from pair to pair; "
    "95 % interval by bootstrap (percentiles of the medians of 10,000 samples drawn from the ratios)"
)
_SAMPLES = 10_000
_CLEAR = 3.0  # times the scatter of the ratios
_FIRST_SCATTER = 0.03
_FIRST_WEIGHT = 2.0
_SEED = 1


@dataclass(frozen=True)
class PairedGain:
    """Gain of the second of two settings over the first, with its interval.

    Attributes:
        pairs: figure of the default and of the setting, pair by pair.
        gain: relative, 0.25: 25 % higher.
        low: lower end of the interval; ``None`` with fewer than two pairs.
        high: upper end.
    """

    pairs: tuple[tuple[float, float], ...]
    gain: float
    low: float | None
    high: float | None

    @property
    def confirmed(self) -> bool:
        """Whether the whole interval is above 0, by enough pairs."""
        return len(self.pairs) >= LEAST_PAIRS and self.low is not None and self.low > 0


def paired_gain(pairs: Sequence[tuple[float, float]]) -> PairedGain | None:
    """Computes the gain from ``pairs`` of positive figures; ``None`` without pairs."""
    if not pairs:
        return None
    ratios = np.array([second / first for first, second in pairs])
    low = high = None
    if len(ratios) > 1:
        drawn = np.random.default_rng(_SEED).choice(ratios, (_SAMPLES, len(ratios)))
        low, high = (float(value) - 1 for value in np.percentile(np.median(drawn, axis=1), [2.5, 97.5]))
    return PairedGain(tuple(pairs), float(np.median(ratios)) - 1, low, high)


def conclusive(pairs: Sequence[tuple[float, float]]) -> bool:
    """Whether more pairs would not change the verdict.

    They would not where the ratios of all pairs are on one side of 1 by three times their own scatter, for which
    3 % counts as two pairs until there are more.
    """
    if len(pairs) < LEAST_PAIRS:
        return False
    ratios = np.log([second / first for first, second in pairs])
    squares = float(((ratios - ratios.mean()) ** 2).sum())
    scatter = math.sqrt((_FIRST_WEIGHT * _FIRST_SCATTER**2 + squares) / (_FIRST_WEIGHT + len(pairs) - 1))
    return bool(ratios.min() > _CLEAR * scatter or ratios.max() < -_CLEAR * scatter)


def order(pair: int) -> tuple[bool, bool]:
    """Whether the first and the second run of a pair (from 0) are of the recommended setting."""
    return (False, True) if pair % 2 == 0 else (True, False)
