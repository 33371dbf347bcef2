"""Length of the runs of a combination: steps, warm-up, repeats, and a shortened step time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from node_records import demand, limits

from dlio_torch.node.run_length import RunLength, run_length


@pytest.mark.parametrize(
    ("rate", "seconds", "available", "ahead", "expected"),
    [
        (None, 3.0, 100, 0, (22, 2, 3)),  # 10 samples in 0.1 s: 20 steps in 2 s, and 2 of warm-up
        (20.0, 3.0, 100, 0, (6, 2, 3)),  # the loader gives 2 batches a second
        (20.0, 3.0, 100, 5, (8, 2, 3)),  # one more than were read ahead
        (20.0, 3.0, 100, 8, (7, 1, 1)),  # 11 steps would take 5.5 s: a single run
        (5.0, 3.0, 100, 0, (4, 1, 1)),  # 2 s a step: 3 measured steps
        (None, 30.0, 100, 0, (100, 2, 3)),  # no more than the data give
        (None, 3.0, 1, 0, (1, 0, 3)),
    ],
)
def test_a_run_has_as_many_steps_as_fit_into_the_time(
    rate: float | None, seconds: float, available: int, ahead: int, expected: tuple[int, int, int]
) -> None:
    slowest = None if rate is None else limits(decode=rate)[0]
    length = run_length(demand(1), slowest, seconds, available, ahead)
    assert (length.steps, length.warmup, length.repeats) == expected
    assert length.step_s is None


def test_compute_is_no_longer_than_the_measurement() -> None:
    length = run_length(demand(1, step_s=20.0), None, 3.0, 100)
    assert length == RunLength(steps=4, warmup=1, repeats=1, run_s=12.0, step_s=3.0)
    assert length.settings == ("train.steps=4", "train.warmup_steps=1", "compute.step_s=3")
    assert run_length(demand(1), None, 3.0, 100).settings == ("train.steps=22", "train.warmup_steps=2")


def test_steps_that_share_a_batch_are_shorter_than_a_batch() -> None:
    held = replace(demand(1, step_s=1.0), hold_steps=10)
    assert run_length(held, None, 3.0, 100).steps == 22  # of 0.1 s each


def test_without_demand_and_limits_a_run_has_a_fixed_number_of_steps() -> None:
    length = run_length(demand(1, step_s=0.0), None, 3.0, 5000)
    assert (length.steps, length.run_s) == (102, 0.0)
