"""Lanes: rows of variable-length samples, step by step, refilled on demand."""

from __future__ import annotations

import doctest
from itertools import cycle, islice, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pattern_data import CountingFormat, configured, flat, loaders, numbers, planned

from dlio_torch.data.dataset.map_dataset import SampleDataset
from dlio_torch.data.order.access_patterns import filled_lanes
from dlio_torch.data.order.lanes_plan import LanesPlan
from dlio_torch.data.order.specification import LanesSpec
from dlio_torch.data.pipeline import pattern_pipes
from dlio_torch.data.pipeline.lanes import LanesStart
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core.batch import INDEX

LENGTHS = [9, 4, 12, 5, 7, 20, 4, 6]
ACCESS: dict[str, Any] = {"pattern": "lanes", "partition": "none", "order": "shuffled", "lane_rows": 4}


def shots(missing: int = -1, lengths: list[int] | None = None) -> CountingFormat:
    lengths = lengths or LENGTHS
    return CountingFormat([1] * len(lengths), lengths, missing)


@settings(deadline=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=8), st.integers(1, 4), st.integers(1, 6))
def test_lanes_are_the_model(lengths: list[int], lanes: int, rows: int) -> None:
    """Each lane, looked at alone, steps through its shots; shots are taken in order, by the first lane in need."""
    if max(lengths) < rows:
        return
    order = list(islice(cycle(range(len(lengths))), 400))
    steps = list(islice(filled_lanes(iter(order), lanes, rows, lengths.__getitem__), 12))
    assert all(first + rows <= lengths[shot] for step in steps for shot, first in step)
    fresh = [shot for step in steps for shot, first in step if first == lengths[shot] % rows]
    assert fresh == [shot for shot in order if lengths[shot] >= rows][: len(fresh)]
    for lane in range(lanes):
        for before, after in pairwise(steps):
            shot, first = before[lane]
            if first + rows < lengths[shot]:
                assert after[lane] == (shot, first + rows)
            else:
                assert after[lane][1] == lengths[after[lane][0]] % rows


def by_buffer(lengths: list[int], lanes: int, rows: int, cuts: list[int], steps: int) -> list[list[tuple[int, int]]]:
    """Lanes as plasma's loader keeps them: a buffer of rows for each lane, filled where it is empty.

    A shot loses the rows before its cut and then, at its begin, those that make no whole step.
    """
    order, left = cycle(range(len(lengths))), iter(cuts)
    buffers: list[list[tuple[int, int]]] = [[] for _ in range(lanes)]
    made = []
    for _ in range(steps):
        while not all(buffers):
            shot = next(order)
            content = [(shot, row) for row in range(lengths[shot])][next(left) :]
            whole = len(content) // rows * rows
            buffers[buffers.index([])] = content[-whole:]
        made.append([content[0] for content in buffers])
        buffers = [content[rows:] for content in buffers]
    return made


@settings(deadline=None)
@given(
    st.lists(st.integers(3, 12), min_size=1, max_size=8), st.integers(1, 4), st.integers(1, 3), st.integers(0, 9),
    st.integers(0, 5),
)  # fmt: skip
def test_shots_are_cut_at_random_in_the_first_steps_only(
    lengths: list[int], lanes: int, rows: int, random_steps: int, seed: int
) -> None:
    steps: list[list[tuple[int, int]]] = []
    began: list[int] = []
    begins: list[tuple[int, int]] = []
    order = (began.append(len(steps)) or shot for shot in cycle(range(len(lengths))))  # type: ignore[func-returns-value]
    filled = filled_lanes(order, lanes, rows, lengths.__getitem__, random_steps=random_steps, key=[seed])
    for _ in range(12):
        before = dict(enumerate(steps[-1])) if steps else {}
        steps.append(next(filled))
        for lane, (shot, first) in enumerate(steps[-1]):
            old = before.get(lane)
            if old is None or old[1] + rows == lengths[old[0]]:
                begins.append((shot, first))
    cuts = [first if step < random_steps else 0 for step, (_, first) in zip(began, begins, strict=True)]
    assert steps == by_buffer(lengths, lanes, rows, cuts, 12)
    late = [(shot, first) for step, (shot, first) in zip(began, begins, strict=True) if step >= random_steps]
    assert all(first == lengths[shot] % rows for shot, first in late)


def test_the_random_row_is_any_that_leaves_a_step() -> None:
    begins = {next(filled_lanes([10], 1, 4, int, random_steps=1, key=[seed]))[0][1] for seed in range(200)}
    assert begins == {2, 6}  # whole steps end with the last row
    assert {next(filled_lanes([3], 1, 1, int, random_steps=1, key=[seed]))[0][1] for seed in range(99)} == {0, 1, 2}


@pytest.mark.parametrize("loader", [{}, {"num_workers": 2}, {"read_threads": 2}], ids=["main", "workers", "threads"])
def test_random_begins_are_those_of_the_plan(loader: dict[str, Any]) -> None:
    made = loaders(configured({**ACCESS, "lane_random_steps": 3}, {"batch_size": 3, "steps": 6}, loader), shots())
    assert [numbers(made, epoch) for epoch in range(3)] == planned(made, 3)
    made.close()
    plain = loaders(configured(ACCESS, {"batch_size": 3, "steps": 6}), shots())
    assert planned(made, 3) != planned(plain, 3)


def test_the_first_sample_is_read_for_its_shape_before_the_first_batch() -> None:
    fmt = shots()
    made = loaders(configured({**ACCESS, "lane_probe": True}, {"batch_size": 3, "steps": 4}), fmt)
    assert fmt.seen.opens == []
    first = numbers(made, 0, steps=1)
    assert fmt.seen.opens == [0, *first[0]]
    assert first == planned(made, 1)[0][:1]


def test_a_lane_takes_the_next_shot_when_the_step_needs_it() -> None:
    read: list[int] = []

    def source() -> Any:
        for shot in cycle([0, 1, 2]):
            read.append(shot)
            yield shot

    steps = filled_lanes(source(), 2, 3, [7, 3, 5].__getitem__)
    assert read == []
    assert next(steps) == [(0, 1), (1, 0)]
    assert read == [0, 1]
    assert next(steps) == [(0, 4), (2, 2)]
    assert read == [0, 1, 2]
    assert next(steps) == [(0, 1), (1, 0)]
    assert read == [0, 1, 2, 0, 1]


def test_one_sample_that_is_long_enough_suffices_wherever_it_stands_in_the_shuffles() -> None:
    made = loaders(configured(ACCESS, {"batch_size": 1, "steps": 99}), shots(lengths=[4, 1, 1, 1]))
    assert numbers(made, 0) == [[0]] * 99


def test_lanes_end_with_their_source_and_give_up_on_short_shots() -> None:
    assert list(filled_lanes([2, 2], 2, 1, int)) == [[(2, 0), (2, 0)], [(2, 1), (2, 1)]]
    with pytest.raises(
        DataError, match=r"4 consecutive samples have fewer rows than the 9 rows of a lane; lower access\.lane_rows"
    ):
        next(filled_lanes(cycle([2, 3, 8]), 1, 9, int, patience=3))


def test_examples_of_the_docstrings() -> None:
    tried = doctest.testmod(pattern_pipes)
    assert tried.attempted
    assert not tried.failed


@pytest.mark.parametrize(
    "loader", [{}, {"read_threads": 2, "prefetch_batches": 3}, {"num_workers": 2}], ids=["main", "threads", "workers"]
)
def test_loaders_deliver_the_plan_through_all_epochs(loader: dict[str, Any]) -> None:
    made = loaders(configured(ACCESS, {"batch_size": 3, "steps": 6}, loader), shots())
    assert [numbers(made, epoch) for epoch in range(3)] == planned(made, 3)
    counts = [np.bincount(flat(batches), minlength=len(LENGTHS)) for batches in planned(made, 3)]
    assert all(
        np.array_equal(counts[epoch], np.bincount(made.sampler.expected(epoch), minlength=made.sampler.num_samples))
        for epoch in range(3)
    )
    made.close()


def test_batches_hold_the_rows_of_each_lane() -> None:
    fmt = shots()
    made = loaders(configured(ACCESS, {"batch_size": 3, "steps": 25}), fmt)
    at: dict[int, tuple[int, int]] = {}
    for batch in islice(made.train.epoch(0), 25):
        assert batch["rows"].shape == (3, 4, 3)
        assert batch["x"].shape == (3, 2)
        for lane, sample in enumerate(batch[INDEX].tolist()):
            first = int(batch["rows"][lane, 0, 0])
            content = fmt.expected(sample)
            assert np.array_equal(batch["rows"][lane].numpy(), content["rows"][first : first + 4])
            assert np.array_equal(batch["x"][lane].numpy(), content["x"])
            before = at.get(lane)
            goes_on = before is not None and before[1] + 4 <= LENGTHS[before[0]]
            assert (sample, first) == before if goes_on else first == LENGTHS[sample] % 4
            at[lane] = sample, first + 4


def test_the_first_step_reads_a_sample_for_each_lane_and_later_ones_what_runs_out() -> None:
    fmt = shots()
    made = loaders(configured(ACCESS, {"batch_size": 5, "steps": 4}), fmt)
    numbers(made, 0, steps=1)
    assert len(fmt.seen.opens) == 5
    over = [LENGTHS[sample] < 8 for sample in planned(made, 1)[0][0]]
    batches = made.train.epoch(0)  # from the start: only a whole epoch goes on in the next
    next(batches)
    before = len(fmt.seen.opens)
    next(batches)
    assert len(fmt.seen.opens) - before == sum(over)
    assert fmt.seen.most_open == 1


def test_epochs_go_on_and_only_the_first_fills_the_lanes() -> None:
    fmt = shots(lengths=[1000] * 6)
    made = loaders(configured(ACCESS, {"batch_size": 4, "steps": 5}), fmt)
    first, second = numbers(made, 0), numbers(made, 1)
    assert first == second
    assert len(fmt.seen.opens) == 4


@given(st.integers(1, 20), st.integers(0, 3), st.integers(0, 5))
def test_the_list_is_endless_and_each_pass_holds_every_sample(samples: int, part: int, seed: int) -> None:
    plan = LanesPlan(samples, LanesSpec(rows=1, batch_size=1, steps=1, seed=seed, parts=4))
    order = list(islice(plan.samples(part), 3 * samples))
    assert all(sorted(order[at : at + samples]) == list(range(samples)) for at in range(0, 3 * samples, samples))


def test_ranks_workers_seeds_and_passes_have_shuffles_of_their_own() -> None:
    def order(part: int = 0, **options: Any) -> tuple[int, ...]:
        given = {"rows": 1, "batch_size": 1, "steps": 1, "world_size": 2, "parts": 2}
        return tuple(islice(LanesPlan(30, LanesSpec(**{**given, **options})).samples(part), 60))

    plain = order()
    assert plain == order()
    assert len({plain, order(rank=1), order(part=1), order(seed=1)}) == 4
    assert plain[:30] != plain[30:]
    assert order(order="sequential") == (*range(30), *range(30))


@pytest.mark.parametrize("loader", [{}, {"num_workers": 2}], ids=["main", "workers"])
def test_resumes_where_it_was(loader: dict[str, Any]) -> None:
    config = configured(ACCESS, {"batch_size": 3, "steps": 7}, loader)
    before = loaders(config, shots())
    numbers(before, 0)
    numbers(before, 1, steps=3)
    state = before.train.state_dict()
    before.close()
    after = loaders(config, shots())
    after.train.load_state_dict(state)
    assert numbers(after, 1, steps=4) == planned(after, 2)[1][3:]
    after.close()


def test_errors_name_what_to_change() -> None:
    with pytest.raises(ConfigError, match=r"train\.steps=0 cannot be used with access\.pattern=lanes"):
        LanesPlan(4, LanesSpec(rows=1, batch_size=1, steps=0))
    fixed = CountingFormat([1, 1])
    plan = LanesPlan(2, LanesSpec(rows=1, batch_size=1, steps=1))
    with pytest.raises(ConfigError, match="needs samples with a variable-length array"):
        LanesStart(plan, SampleDataset(fixed, fixed.manifest(), None), fixed.specs())  # type: ignore[arg-type]
    made = loaders(configured(ACCESS, {"batch_size": 8, "steps": 2}), shots(missing=5))
    with pytest.raises(DataError, match=r"5\.none does not exist"):
        numbers(made, 0)
    short = loaders(configured(ACCESS, {"batch_size": 2, "steps": 2}), shots(lengths=[3, 2, 1]))
    with pytest.raises(DataError, match="7 consecutive samples have fewer rows than the 4 rows of a lane"):
        numbers(short, 0)
