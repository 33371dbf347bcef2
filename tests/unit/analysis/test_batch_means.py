"""Confidence interval of a ratio of medians: how often it holds the true ratio of simulated steps."""

from __future__ import annotations

import numpy as np
import pytest

from dlio_torch.analysis.batch_means import LEAST_STEPS, median_ratio_interval


@pytest.mark.parametrize("count", [LEAST_STEPS, 33, 200])
def test_the_interval_holds_the_true_ratio_in_about_95_of_100_cases(count: int) -> None:
    random = np.random.default_rng(count)
    inside = 0
    for _ in range(500):
        during, undisturbed = (random.lognormal(0, 0.2, count) for _ in range(2))
        interval = median_ratio_interval(1.3 * during, undisturbed)
        assert interval is not None
        inside += interval[0] <= 1.3 <= interval[1]
    assert 0.9 * 500 <= inside <= 0.99 * 500


def test_times_of_nothing_have_no_ratio() -> None:
    assert median_ratio_interval(np.zeros(20), np.ones(20)) is None
    assert median_ratio_interval(np.ones(20), np.array([*[0] * 2, *[1] * 18])) is None
