import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlio_torch.compute.distributions import BLOCK_STEPS, Durations, StepTime
from dlio_torch.errors import ConfigError

SPREAD = ["normal", "lognormal", "uniform", "gamma", "exponential"]


@pytest.mark.parametrize(
    ("name", "mean", "stdev"),
    [
        ("constant", 0.4, 0.0),
        ("normal", 0.4, 0.05),
        ("normal", 0.4, 0.4),  # 16 % of the Gaussian lies below 0
        ("normal", 0.1, 1.0),
        ("lognormal", 0.4, 0.3),
        ("uniform", 0.4, 0.2),
        ("gamma", 0.4, 0.6),
        ("exponential", 0.4, 0.0),
        ("exponential", 0.4, 0.1),
    ],
)
def test_draws_have_the_moments_that_are_said(name, mean, stdev):
    step = StepTime(mean, stdev, name)
    draws = step.draw(np.random.default_rng(5), 200_000)
    said_mean, said_stdev = step.moments()
    assert draws.min() >= 0
    assert draws.mean() == pytest.approx(said_mean, rel=0.01)
    assert draws.std() == pytest.approx(said_stdev, rel=0.03)
    if name != "normal":
        assert said_mean == mean


def test_truncation_of_the_normal_is_as_documented():
    assert StepTime(3.0, 1.0, "normal").moments()[0] == pytest.approx(3 + 0.0044, abs=1e-4)
    assert StepTime(1.0, 1.0, "normal").moments()[0] == pytest.approx(1.29, abs=5e-3)


@given(
    seed=st.integers(0, 2**40),
    rank=st.integers(0, 5000),
    steps=st.lists(st.integers(0, 5 * BLOCK_STEPS), max_size=12),
    name=st.sampled_from(SPREAD),
)
def test_a_step_time_depends_on_seed_rank_and_step_alone(seed, rank, steps, name):
    step_time = StepTime(1e-3, 4e-4, name)
    walked = Durations(step_time, seed=seed, rank=rank)
    values = [walked.ns(step) for step in steps]
    assert values == [Durations(step_time, seed=seed, rank=rank).ns(step) for step in steps]
    assert all(isinstance(value, int) and value >= 0 for value in values)


@pytest.mark.parametrize("name", SPREAD)
def test_ranks_seeds_streams_and_blocks_differ(name):
    step_time = StepTime(1.0, 0.2, name)
    walks = {
        tuple(Durations(step_time, seed=seed, rank=rank, stream=stream).ns(step) for step in range(start, start + 8))
        for seed in (1, 2)
        for rank in (0, 1)
        for stream in (0, 1)
        for start in (0, BLOCK_STEPS)
    }
    assert len(walks) == 16


def test_constant_needs_no_draws():
    durations = Durations(StepTime(0.0123), seed=1, rank=0)
    assert {durations.ns(step) for step in (0, 1, 10**12)} == {12_300_000}
    assert Durations(StepTime(0.0, 0.0, "exponential"), seed=1, rank=0).ns(3) == 0


def test_negative_step_is_refused():
    with pytest.raises(ValueError, match="count from 0"):
        Durations(StepTime(1.0, 0.1, "gamma"), seed=1, rank=0).ns(-1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1.0, 0.1, "constant"), r"compute\.stdev_s=0\.1 has no effect"),
        ((0.0, 0.1, "normal"), "needs a mean"),
        ((1.0, 0.6, "uniform"), r"to 0\.57735 at most"),
        ((1.0, 1.1, "exponential"), "to 1 at most"),
        ((-1.0, 0.0, "constant"), r"compute\.step_s=-1\.0 is not a valid time"),
        ((1.0, float("nan"), "normal"), r"compute\.stdev_s=nan"),
        ((1.0, 0.1, "cauchy"), "use one of constant, normal"),
    ],
)
def test_impossible_distributions_are_named(arguments, message):
    with pytest.raises(ConfigError, match=message):
        StepTime(*arguments)
