"""Times between fetches: their distribution, and outliers."""

from __future__ import annotations

import numpy as np
import pytest

from dlio_torch.compute.distributions import Distribution, StepTime
from dlio_torch.fit.step_times import best_distribution


@pytest.mark.parametrize(
    ("name", "stdev"),
    [("normal", 0.001), ("lognormal", 0.006), ("uniform", 0.004), ("gamma", 0.006), ("exponential", 0.008)],
)
def test_the_distribution_of_many_times_is_told(name: Distribution, stdev: float) -> None:
    times = StepTime(0.010, stdev, name).draw(np.random.default_rng(5), 5000)
    best, distance = best_distribution(times)
    chosen = StepTime(float(times.mean()), float(times.std()), best).draw(np.random.default_rng(6), 5000)
    assert distance < 0.03
    # A gamma and a lognormal of small spread are alike: what counts is that the draws are.
    assert np.allclose(np.quantile(times, [0.1, 0.5, 0.9]), np.quantile(chosen, [0.1, 0.5, 0.9]), rtol=0.1)
