"""Estimates of the time left against times that studies really took."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dlio_torch.study.model import Trial
from dlio_torch.study.time_left import time_left


def done(point: int, wall_s: float, **about: object) -> Trial:
    return Trial(("recipe=minimal",), point, figures={"trial.wall_s": wall_s}, **about)  # type: ignore[arg-type]


# Point and duration of each trial, and when its line was printed: a sweep of cosmic_tagger at scale=tiny over workers
# and batch size, on two cores that other programs used, too.
BUSY = [
    (3, 12.4, 767.557),
    (1, 5.69, 779.157),
    (4, 8.38, 787.625),
    (5, 7.96, 795.772),
    (6, 10.6, 806.529),
    (2, 7.74, 814.489),
    (3, 9.27, 823.961),
    (2, 7.52, 831.716),
    (4, 10.3, 842.221),
    (6, 10.6, 852.998),
    (5, 8.18, 861.364),
    (1, 6.62, 868.301),
]


def test_the_time_left_is_within_a_third_of_what_it_was() -> None:
    trials = [done(point, wall_s) for point, wall_s, _ in BUSY]
    for count in range(1, len(BUSY)):
        estimate = time_left([point for point, _, _ in BUSY[count:]], trials[:count], {})
        if count < 3:
            assert estimate is None
        else:
            assert estimate == pytest.approx(BUSY[-1][2] - BUSY[count - 1][2], rel=1 / 3)


@pytest.mark.parametrize(
    ("durations", "left", "expected"),
    [
        ([(1, 9.0), (1, 1.0), (1, 1.2)], [1, 1], 2.2),  # what a point took before, without the first trial
        ([(1, 9.0), (1, 1.0), (2, 3.0)], [3], 0.5 + 1.5),  # another point's compute, and what all took beside theirs
        ([(1, 9.0), (1, 1.0), (2, 3.0)], [], 0.0),
    ],
)
def test_compute_is_known_and_the_rest_is_as_it_was(
    durations: Sequence[tuple[int, float]], left: Sequence[int], expected: float
) -> None:
    trials = [done(*duration) for duration in durations]
    assert time_left(left, trials, {1: 0.0, 2: 1.0, 3: 0.5}) == pytest.approx(expected)


def test_failed_trials_do_not_count() -> None:
    trials = [done(1, 9.0), done(1, 1.0), done(2, 0.1, status="failed")]
    assert time_left([1], trials, {}) is None
    assert time_left([1], [*trials, done(2, 3.0)], {}) == pytest.approx(1.0)
