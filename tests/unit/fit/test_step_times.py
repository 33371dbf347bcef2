"""Times between fetches: their distribution, and outliers."""

from __future__ import annotations

import numpy as np
import pytest
from hand_made_trainings import MS, NO_FILES, TrainingTimes

from dlio_torch.compute.distributions import Distribution, StepTime
from dlio_torch.fit.step_times import best_distribution, fit_steps, step_times


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


def test_steps_end_with_the_last_batch_and_exclude_saves_and_evaluations() -> None:
    times = TrainingTimes()
    times.step(0, step_ms=40)
    for batch in range(1, 10):
        times.step(batch)
    times.save("/out/1.pt")
    times.add("compute", MS, file="loader 0", step=9)  # the rest of the last step
    times.end_epoch(10, exhausted=True)
    times.epoch(2, loader=1, step_ms=3)
    training = times.training(evaluation=True)
    assert training.training is not None
    steps = step_times(training, training.training)
    assert steps.first == pytest.approx(0.040)
    assert steps.usual.tolist() == pytest.approx([0.009] * 8 + [0.010])
    result = fit_steps(training, NO_FILES)
    assert any(gap.startswith("the first step took 40 ms") for gap in result.gaps)


def test_an_outlier_is_named_and_left_out() -> None:
    times = TrainingTimes()
    for batch in range(40):
        times.step(batch, step_ms=500 if batch == 20 else 9)
    times.end_epoch(40, exhausted=True)
    result = fit_steps(times.training(), NO_FILES)
    assert result.value("compute.step_s") == pytest.approx(0.009)
    assert any("1 step of 39 took far longer" in gap for gap in result.gaps)


def test_waits_for_a_core_are_no_part_of_a_step() -> None:
    times = TrainingTimes()
    for batch in range(20):
        times.step(batch, step_ms=9 + batch)
        start = times.now
        times.now = times.spans[-1].start
        times.add("run_delay", batch * MS, file="loader 0", step=batch)
        times.now = start
    times.end_epoch(20, exhausted=True)
    result = fit_steps(times.training(), NO_FILES)
    assert (result.value("compute.step_s"), result.value("compute.distribution")) == (0.009, "constant")
