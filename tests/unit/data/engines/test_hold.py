"""Batches that serve several steps: fetched once, counted in each step."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pattern_data import CountingFormat, configured, flat, loaders, numbers

from dlio_torch.data.order.held_plan import HeldPlan
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import SamplerSpec
from dlio_torch.errors import ConfigError

ACCESS: dict[str, Any] = {"order": "shuffled", "partition": "none"}


@settings(deadline=None)
@given(st.integers(1, 20), st.integers(1, 6), st.integers(1, 4), st.integers(0, 2))
def test_each_batch_serves_its_steps(steps: int, hold: int, batch_size: int, epoch: int) -> None:
    fmt = CountingFormat([100])
    made = loaders(configured({**ACCESS, "hold_steps": hold}, {"batch_size": batch_size, "steps": steps}), fmt)
    assert len(made.train) == len(made.sampler) == steps
    batches = list(made.train.epoch(epoch))
    assert len(batches) == steps
    for step, batch in enumerate(batches):
        assert batch is batches[step // hold * hold]
        assert np.array_equal(batch["index"].numpy(), made.sampler.batch(epoch, step))
    assert len({id(batch) for batch in batches}) == -(-steps // hold)
    assert len(fmt.seen.reads) == -(-steps // hold) * batch_size
    seen = np.bincount(flat([batch["index"].tolist() for batch in batches]), minlength=100)
    assert np.array_equal(np.bincount(made.sampler.expected(epoch), minlength=made.sampler.num_samples), seen)


def test_without_steps_each_batch_of_the_data_is_held() -> None:
    made = loaders(configured({"hold_steps": 3}, {"batch_size": 2}), CountingFormat([8]))
    assert len(made.train) == 12
    assert numbers(made, 0) == [[n, n + 1] for n in (0, 2, 4, 6) for _ in range(3)]


def test_steps_that_the_data_cannot_give_are_refused() -> None:
    access = {"hold_steps": 3}
    assert len(loaders(configured(access, {"batch_size": 2, "steps": 12}), CountingFormat([8])).train) == 12
    with pytest.raises(ConfigError, match="the data suffice only for 4 step"):
        loaders(configured(access, {"batch_size": 2, "steps": 13}), CountingFormat([8]))
    with pytest.raises(ValueError, match="5 steps need 3 batches, but the plan has 4"):
        HeldPlan(BatchSampler(SamplerSpec(batch_size=1), num_samples=4), 2, 5)


@pytest.mark.parametrize(
    ("loader", "steps"),
    [
        ({}, 1),
        ({"read_threads": 1, "prefetch_batches": 1}, 2),
        ({"read_threads": 2, "prefetch_batches": 3}, 4),
    ],
)
def test_read_ahead_goes_by_batches_and_not_by_steps(loader: dict[str, Any], steps: int) -> None:
    fmt = CountingFormat([40])
    made = loaders(configured({"hold_steps": 4}, {"batch_size": 1}, loader), fmt)
    numbers(made, 0, steps=4)
    made.train.close()  # waits for reads that are under way
    assert len(fmt.seen.reads) <= steps


@pytest.mark.parametrize("pattern", ["samples", "stream", "repeat", "lanes"])
def test_holds_whatever_the_pattern_and_resumes_at_a_batch(pattern: str) -> None:
    access: dict[str, Any] = {**ACCESS, "hold_steps": 3}
    if pattern != "samples":
        access |= {"pattern": "lanes" if pattern == "lanes" else "stream", "lane_rows": 2}
        access |= {"repeat": pattern == "repeat"}
    config = configured(access, {"batch_size": 2, "steps": 10})

    def fresh() -> Any:
        return loaders(config, CountingFormat([4, 4], [5] * 8))

    whole = fresh()
    expected = [numbers(whole, epoch) for epoch in range(2)]
    for steps in expected:
        assert steps == [steps[step // 3 * 3] for step in range(10)]
    for epoch in range(2):
        seen = np.bincount(flat(expected[epoch]), minlength=8)
        assert np.array_equal(np.bincount(whole.sampler.expected(epoch), minlength=whole.sampler.num_samples), seen)
    before, after = fresh(), fresh()
    numbers(before, 0)
    numbers(before, 1, steps=6)
    after.train.load_state_dict(before.train.state_dict())
    assert [batch["index"].tolist() for batch in islice(after.train.epoch(1), 99)] == expected[1][6:]
