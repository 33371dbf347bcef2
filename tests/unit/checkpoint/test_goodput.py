"""Share of time lost to saves and failures: the formula against simulated events, limits and published results."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlio_torch.checkpoint.goodput import (
    Goodput,
    assumptions,
    best_interval_s,
    curve,
    figures,
    lost_share,
    no_figures,
    steps_interval_s,
)

SYNC = Goodput(stall_s=4.0, durable_s=4.0, slowdown=None, step_s=0.5, mtbf_s=1000.0, start_s=20.0, read_s=5.0)
SYNC_LONG = replace(SYNC, step_s=20.0)
ASYNC = Goodput(stall_s=1.0, durable_s=30.0, slowdown=0.25, step_s=0.5, mtbf_s=600.0, start_s=15.0, read_s=5.0)
ASYNC_LONG = replace(ASYNC, step_s=5.0)

seconds = st.floats(0.01, 100)
jobs = st.builds(
    lambda stall, background, slowdown, step, mtbf, restart: Goodput(
        stall, stall + background, slowdown, step, mtbf, restart, 0.0
    ),
    seconds,
    st.floats(0, 100),
    st.floats(0, 2),
    st.floats(0.01, 1),
    st.floats(100, 1e6),
    st.floats(0, 1000),
)


class Job:
    """A training with saves and failures, event by event: it knows times and steps, and no formula."""

    def __init__(self, inputs: Goodput, steps: int, seed: int) -> None:
        self.inputs, self.steps, self.random = inputs, steps, np.random.default_rng(seed)
        self.now = 0.0
        self.done = self.durable = 0  # steps
        self.pending: tuple[float, int] | None = None  # time at which a save becomes durable, and its steps
        self.stalled_until = 0.0
        self.failure = self.random.exponential(inputs.mtbf_s)

    def pass_time(self, seconds: float) -> bool:
        """Moves on, and completes the save that becomes durable meanwhile; False if a failure comes first."""
        end = min(self.now + seconds, self.failure)
        if self.pending is not None and self.pending[0] <= end + 1e-9:
            self.durable, self.pending = self.pending[1], None
        self.now = end
        return end < self.failure

    def recover(self) -> None:
        while True:
            self.now, self.pending, self.done = self.failure, None, self.durable
            self.failure = self.now + self.random.exponential(self.inputs.mtbf_s)
            if self.pass_time(self.inputs.start_s + (self.inputs.read_s or 0.0)):
                return

    def step(self) -> bool:
        """One step, part by part: slow until the save is durable."""
        left = self.inputs.step_s
        while left > 1e-12:
            slow = 1 + (self.inputs.slowdown or 0.0) if self.pending is not None else 1.0
            spent = left * slow if self.pending is None else min(left * slow, self.pending[0] - self.now)
            if not self.pass_time(spent):
                return False
            left -= spent / slow
        self.done += 1
        return True

    def save(self) -> bool:
        """A save, whose state is that of its beginning."""
        assert self.pending is None
        self.pending = (self.now + self.inputs.durable_s, self.done)
        return self.pass_time(self.inputs.stall_s)

    def advance(self) -> bool:
        """One step, and the save that is due after it; False after a failure."""
        return self.step() and (self.done % self.steps != 0 or self.save())

    def lost(self, failures: int) -> tuple[float, float]:
        """Lost share of time until a number of failures, and its standard error."""
        marks = [(self.now, self.durable)]
        for _ in range(failures):
            while self.advance():
                pass
            marks.append((self.now, self.durable))
            self.recover()
        seconds, steps = np.diff(np.array(marks), axis=0).T
        kept = steps.sum() * self.inputs.step_s / seconds.sum()
        scatter = np.std(steps * self.inputs.step_s - kept * seconds) / seconds.mean()
        return 1 - kept, scatter / math.sqrt(failures)


@pytest.mark.parametrize(
    ("inputs", "steps"),
    [
        *((SYNC_LONG, steps) for steps in (2, 9, 80)),
        *((ASYNC_LONG, steps) for steps in (6, 30, 200)),
        (replace(ASYNC_LONG, mtbf_s=60.0), 6),
        (replace(ASYNC_LONG, stall_s=0.0), 6),
    ],
)
def test_a_simulation_of_events_loses_the_same_share(inputs: Goodput, steps: int) -> None:
    simulated, error = Job(inputs, steps, seed=1).lost(failures=4000)
    assert error < 0.015
    assert simulated == pytest.approx(lost_share(inputs, steps_interval_s(inputs, steps)), abs=4 * error)


@given(seconds, st.floats(10, 1e5), st.floats(0, 1000), st.floats(1.01, 500))
def test_a_synchronous_save_gives_dalys_result(stall: float, mtbf: float, restart: float, ratio: float) -> None:
    inputs = Goodput(stall, stall, None, 0.01, mtbf, restart, 0.0)
    interval = stall * ratio
    if interval + restart > 500 * mtbf:
        return  # beyond floating point
    wall_per_work = mtbf * math.exp(restart / mtbf) * math.expm1(interval / mtbf) / (interval - stall)
    assert 1 - lost_share(inputs, interval) == pytest.approx(1 / wall_per_work, rel=1e-6, abs=1e-12)


@given(jobs, st.floats(1, 100), st.floats(1.01, 100))
def test_rarer_failures_lose_less(inputs: Goodput, times: float, rarer: float) -> None:
    interval = inputs.shortest_interval_s * times
    share = lost_share(inputs, interval)
    assert 0 <= share <= 1
    assert lost_share(replace(inputs, mtbf_s=inputs.mtbf_s * rarer), interval) <= share


@given(jobs, st.floats(1, 100))
def test_without_failures_only_the_cost_of_saves_is_lost(inputs: Goodput, times: float) -> None:
    interval = inputs.shortest_interval_s * times
    rare = lost_share(replace(inputs, mtbf_s=1e13), interval)
    assert rare == pytest.approx(inputs.cost_s / interval, rel=1e-6, abs=1e-6)
    assert lost_share(replace(inputs, mtbf_s=interval / 700), interval) == pytest.approx(1, abs=1e-12)


@given(jobs, st.floats(1.001, 1000))
def test_no_other_interval_loses_less_than_the_best(inputs: Goodput, factor: float) -> None:
    best = best_interval_s(inputs)
    assert best >= inputs.durable_s
    for interval in (best * factor, max(best / factor, inputs.shortest_interval_s)):
        assert lost_share(inputs, interval) >= lost_share(inputs, best) - 1e-9


@given(st.floats(0.01, 10), st.floats(1e5, 1e8))
def test_the_best_interval_is_youngs_where_saves_are_short(stall: float, mtbf: float) -> None:
    inputs = Goodput(stall, stall, None, 1e-3, mtbf, 0.0)
    assert best_interval_s(inputs) == pytest.approx(math.sqrt(2 * stall * mtbf), rel=0.02)


@given(jobs)
def test_the_best_interval_does_not_depend_on_the_restart(inputs: Goodput) -> None:
    assert best_interval_s(replace(inputs, start_s=0.0, read_s=None)) == best_interval_s(inputs)


def test_a_save_in_the_background_is_better_by_its_stall_and_worse_by_late_durability() -> None:
    blocking = replace(ASYNC, stall_s=30.0)
    assert lost_share(ASYNC, 120) < lost_share(blocking, 120)
    assert lost_share(ASYNC, 120) > lost_share(replace(ASYNC, stall_s=6.8, durable_s=6.8), 120)


def test_a_save_waits_until_the_last_is_durable() -> None:
    slow = replace(ASYNC, stall_s=0.01, slowdown=0.0, durable_s=500.0)
    assert best_interval_s(slow) == 500
    with pytest.raises(ValueError, match="before the last one is durable, which takes 8 min 20 s; save after 1000 ste"):
        lost_share(slow, 499.0)
    part = figures(replace(slow, interval_s=499.0))
    assert part["lost_share_at_interval"] is None
    assert part["lost_share"] == lost_share(slow, 500.0)
    assert "save after 1000 steps or more" in part["why"]


@given(jobs)
@settings(max_examples=30)
def test_the_curve_spans_the_best_interval_on_a_logarithmic_axis(inputs: Goodput) -> None:
    points, best = curve(replace(inputs, interval_s=1e4)), best_interval_s(inputs)
    intervals = np.array([point.interval_s for point in points])
    assert intervals[0] <= best * (1 + 1e-9) <= intervals[-1]
    assert intervals[0] <= 1e4 <= intervals[-1] * (1 + 1e-9)
    assert np.diff(np.log(intervals)) == pytest.approx(np.log(intervals[-1] / intervals[0]) / (len(points) - 1))
    assert all(0 <= point.lost_share <= 1 and point.save_share < 1 for point in points)


def test_what_is_not_known_is_null_with_the_reason() -> None:
    assert set(figures(SYNC)) == set(no_figures("a reason"))
    part = figures(replace(SYNC, mtbf_s=0.0, interval_s=60.0))
    assert (part["lost_share"], part["best_interval_s"], part["lost_share_at_interval"]) == (None, None, None)
    assert part["interval_s"] == 60
    assert "checkpoint.mtbf_s=3h" in part["why"]
    for call in (best_interval_s, curve, lambda inputs: lost_share(inputs, 60)):
        with pytest.raises(ValueError, match=r"checkpoint\.mtbf_s"):
            call(replace(SYNC, mtbf_s=0.0))
    assert figures(replace(SYNC, interval_s=60.0))["why"] is None
    assert "lower bounds" in figures(replace(SYNC, read_s=None, interval_s=60.0))["why"]
    assert "no fixed interval" in figures(SYNC)["why"]


def test_assumptions_name_the_times_and_what_was_not_measured() -> None:
    text = " ".join(assumptions(ASYNC))
    assert "every 10 min 0 s on average" in text
    assert "Steps take 25.0 % longer while a save is written." in text
    assert "15 s to detect the failure and to start the job (checkpoint.restart_s), and 5 s to read" in text
    text = " ".join(assumptions(replace(ASYNC, slowdown=None, read_s=None)))
    assert "their slowdown was not measured" in text
    assert "the time to read the checkpoint was not measured" in text
    assert "while a save is written" not in " ".join(assumptions(SYNC))


@pytest.mark.parametrize(
    "values", [{"durable_s": 1.0}, {"stall_s": -1.0}, {"step_s": 0.0}, {"mtbf_s": -1.0}, {"slowdown": -0.1}]
)
def test_times_that_cannot_be_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"takes? "):
        replace(SYNC, **values)
