"""The search itself, on landscapes that cost nothing."""

import math
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from dlio_torch.study.strategies.search.acquisition import Goal, Observation, Observations, best, decide
from dlio_torch.study.strategies.search.confirmation import conclusive, order, paired_gain
from dlio_torch.study.strategies.search.surrogate import Space, believe

Point = dict[str, str]


def loader_points(cores: int) -> list[Point]:
    points = [{"loader": "main_process"}]
    for count in (1, 2, 4, 8)[: cores.bit_length()]:
        for ahead in (1, 2, 4):
            points.append({"loader": "workers", "loader.num_workers": str(count), "loader.prefetch_factor": str(ahead)})
            points.append(
                {"loader": "threads", "loader.read_threads": str(count), "loader.prefetch_batches": str(ahead)}
            )
    return points


def throughput(point: Point, read: float, hand_over: float, compute: float) -> float:
    """Samples a second of a loader whose read, hand-over and compute take so long."""
    if point["loader"] == "main_process":
        return 1 / (compute + read)
    if point["loader"] == "workers":
        count, ahead = int(point["loader.num_workers"]), int(point["loader.prefetch_factor"])
        return 1 / (max(compute + 0.2 * hand_over, (read + hand_over) / count) + 0.05 * read / ahead)
    count, ahead = int(point["loader.read_threads"]), int(point["loader.prefetch_batches"])
    return 1 / (max(compute, read / (1 + 0.4 * (count - 1))) + 0.1 * read / ahead)


def goal_of(points: Sequence[Point], **more: object) -> Goal:
    return Goal(Space(list(dict.fromkeys(key for point in points for key in point)), points), **more)  # type: ignore[arg-type]


def search(
    goal: Goal, value: Callable[[int], float | None], noise: float = 0.0, seed: int = 1, most: int = 200
) -> tuple[list[Observation], str]:
    random_ = random.Random(seed)
    outcomes: list[Observation] = []
    while len(outcomes) < most:
        decision = decide(goal, outcomes)
        if decision.point is None:
            return outcomes, decision.reason
        figure = value(decision.point)
        score = None if figure is None else math.log(figure) + random_.gauss(0, noise)
        outcomes.append(Observation(decision.point, score))
    raise AssertionError("no end")


@pytest.mark.parametrize("cores", [2, 8])
@pytest.mark.parametrize(
    ("read", "hand_over", "compute"), [(1.0, 0.05, 0.0), (3.0, 0.3, 2.0), (0.2, 1.0, 1.0), (10.0, 0.1, 1.0)]
)
def test_finds_the_best_of_the_grid_within_half_of_its_cost(
    cores: int, read: float, hand_over: float, compute: float
) -> None:
    points = loader_points(cores)
    goal = goal_of(points)
    values = [throughput(point, read, hand_over, compute) for point in points]
    for seed in range(3):
        outcomes, why = search(goal, values.__getitem__, noise=0.02, seed=seed)
        chosen = best(goal, outcomes)
        assert chosen is not None
        assert values[chosen] > 0.95 * max(values), why
        assert len(outcomes) + 6 <= 3 * len(points) / 2, why  # three pairs to confirm; a grid of three repeats
        tried = [outcome.point for outcome in outcomes]
        assert tried[0] == 0
        again = {point for point in tried if tried.count(point) > 1}
        leaders = sorted(again - {0}, key=lambda point: -values[point])
        assert all(values[point] > 0.85 * max(values) for point in leaders)  # only what leads is measured again


def test_a_search_is_a_function_of_its_outcomes() -> None:
    points = loader_points(4)
    values = [throughput(point, 3.0, 0.3, 1.0) for point in points]
    first, _ = search(goal_of(points), values.__getitem__, noise=0.02)
    second, _ = search(goal_of(points), values.__getitem__, noise=0.02)
    assert first == second


def test_failed_points_are_left_alone() -> None:
    points = loader_points(2)
    values = [throughput(point, 3.0, 0.1, 0.0) for point in points]
    broken = {i for i, point in enumerate(points) if point["loader"] == "workers"}
    goal = goal_of(points)
    outcomes, _ = search(goal, lambda i: None if i in broken else values[i], noise=0.01)
    chosen = best(goal, outcomes)
    assert chosen not in broken
    assert values[chosen or 0] == pytest.approx(max(values[i] for i in range(len(points)) if i not in broken), rel=0.03)
    failed = [outcome.point for outcome in outcomes if outcome.score is None]
    assert len(failed) == len(set(failed))

    outcomes, why = search(goal, lambda i: None)
    assert why == "every setting failed"
    assert best(goal, outcomes) is None


def test_ends_where_nothing_is_left_to_gain() -> None:
    goal = goal_of(loader_points(8))
    outcomes: list[Observation] = []
    while (decision := decide(goal, outcomes)).point is not None:
        outcomes.append(Observation(decision.point, 1.0 + 0.001 * len(outcomes), room=0.004))
    assert "leaves at most 0.4 % to gain" in decision.reason
    assert len(outcomes) <= 9


def test_the_cheapest_setting_that_is_good_enough() -> None:
    points = [{"loader.num_workers": str(count)} for count in (4, 0, 1, 2, 3, 6, 8, 12, 16)]
    costs = tuple(float(point["loader.num_workers"]) + 0.1 for point in points)
    au = [min(1.0, 0.2 + 0.2 * float(point["loader.num_workers"])) for point in points]
    goal = goal_of(points, enough=math.log(0.75), costs=costs)
    outcomes, why = search(goal, au.__getitem__, noise=0.01)
    assert best(goal, outcomes) == 4, why  # three workers reach 0.8, two 0.6
    assert len({outcome.point for outcome in outcomes}) < len(points)

    goal = goal_of(points, enough=math.log(0.99999), costs=costs)
    low = [0.5 * value for value in au]
    outcomes, why = search(goal, low.__getitem__, noise=0.01)
    assert why == "no setting is expected to reach the utilisation"
    assert low[best(goal, outcomes) or 0] == max(low)


def test_noise_comes_from_repetitions() -> None:
    quiet = Observations.of([Observation(0, 1.0), Observation(1, 2.0)])
    assert quiet.noise == pytest.approx(0.03)
    drawn = np.random.default_rng(1).normal(0, 0.2, 40)
    loud = Observations.of([Observation(i % 2, float(i % 2 + one)) for i, one in enumerate(drawn)])
    assert loud.noise == pytest.approx(0.2, rel=0.25)
    assert loud.margin == loud.noise


def test_belief_knows_what_it_has_seen_and_doubts_the_rest() -> None:
    points = [{"n": str(1 << i)} for i in range(9)]
    space = Space(["n"], points)
    belief = believe(space, {0: (0.0, 2), 1: (0.5, 2), 2: (1.0, 2)}, noise=0.01)
    assert belief.mean[:3] == pytest.approx([0.0, 0.5, 1.0], abs=0.05)
    chances = belief.above(2, 0.0)
    assert chances[0] < 0.001
    assert 0.05 < chances[8] < 0.95
    assert belief.improvement(2)[3] > belief.improvement(2)[1]
    assert belief.above_value(0.4)[0] < 0.01
    assert belief.above_value(0.4)[2] > 0.99


def test_words_none_and_numbers_have_their_distances() -> None:
    space = Space(["a", "b"], [{"a": "64KiB", "b": "x"}, {"a": "256KiB", "b": "y"}, {"a": "0"}])
    distances = space.distances(range(3), range(3))
    assert distances[0, 0, 1] == pytest.approx(2.0)  # two doublings
    assert distances[0, 0, 2] == pytest.approx(2.0)  # none is two below the least
    assert distances[1, 0, 1] == distances[1, 0, 2] == pytest.approx(2.0)


def test_gain_and_its_interval() -> None:
    found = paired_gain([(1.0, 1.2), (1.1, 1.3), (0.9, 1.1)])
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.gain <= found.high
    assert found.gain == pytest.approx(0.2)
    assert found.confirmed
    mixed = paired_gain([(1.0, 1.2), (1.1, 1.0), (0.9, 1.1), (1.0, 0.95)])
    assert mixed is not None
    assert not mixed.confirmed
    assert paired_gain([]) is None
    alone = paired_gain([(1.0, 2.0)])
    assert alone is not None
    assert not alone.confirmed
    assert conclusive([(1.0, 1.5)] * 3)
    assert not conclusive([(1.0, 1.5)] * 2)
    assert not conclusive([(1.0, 1.05)] * 3)
    assert not conclusive([(1.0, 1.5), (1.0, 1.1), (1.0, 1.3)])
    assert conclusive([(2.0, 1.0)] * 3)
    assert [order(pair) for pair in range(2)] == [(False, True), (True, False)]


def test_interval_holds_the_true_gain() -> None:
    random_ = random.Random(3)
    hits = 0
    for _ in range(100):
        found = paired_gain(
            [(math.exp(random_.gauss(0, 0.05)), 1.1 * math.exp(random_.gauss(0, 0.05))) for _ in range(5)]
        )
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= 0.1 <= found.high
    assert hits >= 85
