"""The page cache of a recorded training, by the time of the first read of each file."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hand_made_trainings import NO_FILES, TrainingTimes

from dlio_torch.fit.cached_data import fit_cache
from dlio_torch.fit.finding import Findings
from dlio_torch.fit.recorded_training import RecordedTraining

FILES = tuple(f"/data/{number}" for number in range(8))
DATA = replace(NO_FILES, files=FILES)


def reading(first_us: int, later_us: int) -> RecordedTraining:
    """A training whose first read of each file takes another time than the second one."""
    times = TrainingTimes()
    for path in FILES:
        for length in (first_us, later_us):
            times.add("read", length * 1000, file=path, bytes=4096, layer="posix")
    times.epoch(4)
    return times.training()


@pytest.mark.parametrize(("first_us", "later_us", "state"), [(3, 3, "warm"), (200, 3, "cold"), (3, 900, "warm")])
def test_the_first_reads_decide(first_us: int, later_us: int, state: str) -> None:
    assert fit_cache(reading(first_us, later_us), DATA).value("cache.state") == state


def test_nothing_follows_without_reads_or_with_times_of_a_tracer() -> None:
    times = TrainingTimes()
    times.epoch(4)
    assert fit_cache(times.training(), DATA) == Findings()
    traced = reading(3, 3)
    traced = replace(traced, recording=replace(traced.recording, trusted_times=False))
    assert fit_cache(traced, DATA) == Findings()
