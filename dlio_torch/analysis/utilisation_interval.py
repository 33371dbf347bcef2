"""Confidence interval of a utilisation, from the durations of steps, which may depend on those of their neighbours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    if min(steps.size for steps in spent) < 2 * _BATCHES:
        return None
    ratios = []
    for done, took in zip(computed, spent, strict=True):
        first = np.linspace(0, took.size, _BATCHES, endpoint=False).astype(int)
        ratios.append(np.add.reduceat(done, first) / np.maximum(np.add.reduceat(took, first), _S))
    half = _T_95 * float(np.mean(ratios, axis=0).std(ddof=1)) / math.sqrt(_BATCHES)
    return [max(0.0, mean - half), mean + half]
