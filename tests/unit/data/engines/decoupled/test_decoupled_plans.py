"""Plans of many groups at a time are those of one group after another, and one bad file costs its batches only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from decoupled_data import LAYOUTS, data_of, decoupled, faithful
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.engines.decoupled import engine
from dlio_torch.data.engines.decoupled.copy_plan import CopyPlan, by_group
from dlio_torch.data.engines.decoupled.epoch_plans import Plans
from dlio_torch.data.engines.decoupled.group_plan import Planner, ReadPlan
from dlio_torch.data.engines.decoupled.open_files import Files
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import SamplerSpec
from dlio_torch.errors import DataError
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.core.layout import Extents
from dlio_torch.iotrace.recorder.spans import NULL

JOINED = {
    "npy", "npz", "npz, not small", "npy, not small", "binary", "binary, rows", "binary, no index",
    "binary, documents", "tfrecord", "tfrecord, index", "tfrecord, unchecked", "hdf5", "hdf5, large chunks",
    "hdf5, select, contiguous", "npy, one a file, not small",
}  # fmt: skip
"""Layouts that are known from a file's own tables: nothing of a sample is read, decoded or kept for them."""


class CountingPlanner(Planner):
    """Counts its plans, and how many of them were made together with others."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.together = 0

    def several(self, groups: Sequence[Sequence[Any]]) -> list[ReadPlan]:
        plans = super().several(groups)
        self.together += len(plans) if self.joins else 0
        return plans


def planner_of(fmt: Format, manifest: Manifest, limit: int = 64) -> CountingPlanner:
    return CountingPlanner(fmt.specs(), manifest, Files(fmt, manifest, NULL, limit))


def plain(value: Any) -> Any:
    """A plan, or a part of one, as values that can be compared; without files, readers and addresses."""
    if isinstance(value, ReadPlan):
        return {
            one.name: plain(getattr(value, one.name))
            for one in fields(value)
            if one.name not in ("files", "paths", "row")
        }
    if isinstance(value, np.ndarray):
        return value.tolist()
    if is_dataclass(value):
        return {
            one.name: plain(getattr(value, one.name))
            for one in fields(value)
            if one.name not in ("layout", "spec", "sources")
        }
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value


@pytest.mark.parametrize("layout", LAYOUTS)
def test_groups_that_are_planned_together_are_as_if_planned_alone(layout: str, tmp_path: Path) -> None:
    fmt, manifest = data_of(tmp_path, layout)
    planner = planner_of(fmt, manifest)

    @settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        st.lists(
            st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=4), min_size=1, max_size=3),
            min_size=2,
            max_size=5,
        )
    )
    def check(groups: list[list[list[int]]]) -> None:
        batches = [[np.array(batch, np.int64) for batch in group] for group in groups]
        alone = [planner(group) for group in batches]
        assert planner.joins or layout not in JOINED
        together = planner.several(batches)
        for one, other in zip(together, alone, strict=True):
            mine, its = plain(one), plain(other)
            # Samples that a group holds twice have equal offsets: either may come first.
            for name in ("extents", "descriptors"):
                mine[name], its[name] = by_piece(one), by_piece(other)
            assert mine == its
            assert set(one.descriptors.tolist()) <= set(one.paths)

    check()


def by_piece(plan: ReadPlan) -> list[tuple[int, ...]]:
    """Extents that can be compared; and makes sure that they are in the order of files and bytes."""
    extents = plan.extents
    found = list(zip(plan.descriptors.tolist(), extents.offsets.tolist(), extents.lengths.tolist(), strict=True))
    assert all(one[:2] <= other[:2] for one, other in pairwise(found))
    return sorted((*one, to) for one, to in zip(found, extents.to.tolist(), strict=True))


def batches_of(loader: Any, epoch: int = 0) -> list[Any]:
    """Batches of an epoch, an error in the place of one that cannot be read."""
    found: list[Any] = []
    batches = loader.epoch(epoch)
    while True:
        try:
            found.append({name: tensor.clone() for name, tensor in next(batches).items()})
        except StopIteration:
            return found
        except DataError as error:
            found.append(error)


@pytest.mark.parametrize("layout", sorted(JOINED))
def test_batches_of_small_groups_are_those_of_the_library(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_GROUP_BYTES", 1)  # a batch each
    monkeypatch.setattr(engine, "Planner", CountingPlanner)
    fmt, manifest = data_of(tmp_path, layout)
    sampler = BatchSampler(SamplerSpec(batch_size=2, order="shuffled", seed=3), num_samples=21)
    loader = decoupled(fmt, manifest, sampler)
    for epoch in range(2):
        want, got = batches_of(faithful(fmt, manifest, sampler), epoch), batches_of(loader, epoch)
        assert [list(one) for one in got] == [list(one) for one in want]
        assert all(torch.equal(one[name], other[name]) for one, other in zip(got, want, strict=True) for name in one)
    assert loader._engine._planner.together > 9
    loader.close()


def test_a_missing_file_costs_the_batches_that_need_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_GROUP_BYTES", 1)
    fmt, manifest = data_of(tmp_path, "npy")
    path = manifest.path(1)  # samples 7 to 13
    next(iter(fmt.files(path))).unlink()
    sampler = BatchSampler(SamplerSpec(batch_size=2), num_samples=21)
    loader = decoupled(fmt, manifest, sampler)
    found = batches_of(loader)
    loader.close()
    bad = [step for step, batch in enumerate(found) if isinstance(batch, DataError)]
    assert bad == [3, 4, 5, 6]
    assert all(str(path.name) in str(found[step]) for step in bad)
    good = [batch["index"].tolist() for batch in found if not isinstance(batch, DataError)]
    assert good == [[0, 1], [2, 3], [4, 5], [14, 15], [16, 17], [18, 19]]


def test_more_files_than_may_be_open_are_planned_group_by_group(tmp_path: Path) -> None:
    fmt, manifest = data_of(tmp_path, "npy")
    planner = planner_of(fmt, manifest, limit=2)
    planner([np.arange(3)])
    assert not planner.joins


def test_groups_whose_samples_are_all_empty_have_nothing_to_read(tmp_path: Path) -> None:
    nothing = np.zeros(0, np.int64)
    moves = CopyPlan([nothing.astype(np.int32)], [Extents(nothing, nothing, nothing)], paths={3: tmp_path})
    assert by_group(moves, 2) == [CopyPlan(), CopyPlan()]


def test_a_plan_that_was_looked_at_is_taken_once(tmp_path: Path) -> None:
    fmt, manifest = data_of(tmp_path, "npy")
    planner = planner_of(fmt, manifest)
    asked: list[int] = []

    def batches(number: int) -> list[Any]:
        asked.append(number)
        return [np.array([number], np.int64)]

    plans = Plans(planner, batches, 21)
    assert plans.take(0).indices.tolist() == [0]
    looked = plans.peek(3)
    assert looked is not None
    assert plans.peek(0) is None, "its turn has come already"
    assert plans.take(1).indices.tolist() == [1]  # with those behind it
    assert [plans.take(number).indices.tolist() for number in (2, 3, 4)] == [[2], [3], [4]]
    assert max(asked) == 16
    assert plans.take(20).indices.tolist() == [20]
