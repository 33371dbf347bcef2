"""Distances: against plain reference implementations, and at their ends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import strategies as st
from io_events import examples

from dlio_torch.iotrace.fidelity import distances

STRINGS = st.lists(st.integers(0, 3), max_size=30)
VALUES = st.lists(st.integers(-5, 5), min_size=1, max_size=20)


def levenshtein(a: Sequence[int], b: Sequence[int]) -> int:
    row = list(range(len(b) + 1))
    for i, one in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (one != other))
    return row[-1]


@examples(STRINGS, STRINGS, count=200)
def test_short_strings_are_compared_exactly(a: list[int], b: list[int]) -> None:
    expected = levenshtein(a, b) / max(len(a), len(b), 1)
    assert distances.edit(np.array(a, int), np.array(b, int)) == pytest.approx(expected)


def test_strings_of_some_thousand_operations_are_compared_exactly() -> None:
    rng = np.random.default_rng(1)
    a = rng.integers(0, 4, 700)
    b = np.delete(a, rng.integers(0, 700, 60))
    assert distances.edit(a, b) == levenshtein(a.tolist(), b.tolist()) / 700


def test_long_strings_are_estimated_from_windows() -> None:
    rng = np.random.default_rng(1)
    a = np.tile([0, 1, 1, 1, 1, 2], 50_000)  # 300,000 operations
    assert distances.edit(a, a) == 0
    assert distances.edit(a, a[:150_000]) == 0.5
    assert distances.edit(a, a[1:150_000], scale_free=True) == 0  # windows may start out of step
    changed = a.copy()
    changed[rng.choice(a.size, a.size // 10, replace=False)] = 3
    assert distances.edit(a, changed) == pytest.approx(0.1, abs=0.01)
    # Only its lengths tell a string of one letter from another one.
    assert distances.edit(np.zeros(300_000, int), np.zeros(240_000, int)) == pytest.approx(0.2)
    assert distances.edit(np.zeros(300_000, int), np.ones(300_000, int)) == 1


@examples(VALUES, VALUES, count=100)
def test_ks_is_the_largest_difference_of_the_distributions(a: list[int], b: list[int]) -> None:
    one, other = np.array(a), np.array(b)
    expected = max(abs((one <= x).mean() - (other <= x).mean()) for x in range(-6, 7))
    assert distances.ks(one, other) == pytest.approx(expected)


@examples(VALUES, VALUES, count=100)
def test_a_tolerance_takes_away_what_lies_within_it(a: list[int], b: list[int]) -> None:
    one, other = np.array(a, float), np.array(b, float)
    none = [np.zeros(len(a)), np.zeros(len(b))]
    assert distances.ks_within(one, other, *none) == pytest.approx(distances.ks(one, other))
    room = [np.full(len(a), 2.0), np.full(len(b), 1.0)]
    places = np.arange(-10, 10, 0.25)
    expected = max(
        max(0.0, ((left + 1.5) <= x).mean() - (right <= x).mean())
        for left, right in ((one, other), (other, one))
        for x in places
    )
    assert distances.ks_within(one, other, *room) == pytest.approx(expected)
    assert distances.ks_within(other, one, *room[::-1]) == pytest.approx(expected)
    assert distances.ks_within(one, one + 1.5, *[np.full(len(a), 1.5)] * 2) == 0


@examples(STRINGS, STRINGS, count=100)
def test_scale_free_a_string_is_like_any_part_of_another_one(a: list[int], b: list[int]) -> None:
    """Compared as one window: the longer string is less than three times as long."""
    short, long = sorted((a, b), key=len)
    if not short or len(long) > 2 * len(short):
        return
    parts = [long[i:j] for i in range(len(long) + 1) for j in range(i, len(long) + 1)]
    expected = min(levenshtein(short, part) for part in parts) / len(short)
    assert distances.edit(np.array(a), np.array(b), windows=1, scale_free=True) == pytest.approx(expected)


def test_ends_of_the_scale() -> None:
    none, some = np.zeros(0), np.array([1.0, 3.0])
    assert distances.relative(0, 0) == 0
    assert distances.relative(0, 5) == 1
    assert distances.relative(5, 10) == 0.5
    assert distances.edit(none, none) == 0
    assert distances.edit(none, some, scale_free=True) == 1
    assert distances.total_variation(some, some * 7) == 0
    assert distances.total_variation(some, none) == 1
    assert distances.total_variation(np.array([1.0, 0]), np.array([0, 1.0])) == 1
    assert distances.jaccard(0, 0) == 0
    assert distances.jaccard(1, 4) == 0.75
    assert distances.cosine(some, some * 100) == pytest.approx(1)
    assert distances.cosine(np.zeros(2), some) is None


def test_floors_are_what_chance_does() -> None:
    rng = np.random.default_rng(1)
    ks, shares, variations = [], [], []
    for _ in range(200):
        a, b = rng.integers(0, 1000, 300), rng.integers(0, 1000, 500)
        ks.append(distances.ks(a, b))
        shares.append(abs((a < 100).mean() - (b < 100).mean()))
        variations.append(distances.total_variation(*(np.bincount(one // 100, minlength=10) for one in (a, b))))
    assert np.mean(np.array(ks) > distances.ks_floor(300, 500)) <= 0.02
    assert np.mean(np.array(shares) > distances.share_floor(0.1, 300, 0.1, 500)) <= 0.03
    floor = distances.variation_floor(np.full(10, 30.0), np.full(10, 50.0))
    assert np.mean(variations) == pytest.approx(floor / 2, rel=0.1)
    assert distances.share_floor(1.0, 3, 1.0, 5) == 0
    assert distances.ks_floor(1, 1) == 1
