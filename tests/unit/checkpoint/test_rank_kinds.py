"""Groups of ranks that hold equal amounts, and kinds of ranks by the sizes of their files."""

from __future__ import annotations

from dataclasses import replace

import pytest
from described_jobs import LLAMA3_8B, LLAMA3_70B, LLAMA3_405B, jobs
from hypothesis import given, settings
from hypothesis import strategies as st

from dlio_torch.checkpoint.base import Layout, Saver, SaverSetup
from dlio_torch.checkpoint.job.rank_classes import rank_classes
from dlio_torch.checkpoint.job.saved_state import rank_bytes, rank_state
from dlio_torch.checkpoint.rank_kinds import RankKind, grouped, rank_kinds
from dlio_torch.checkpoint.saves import total_bytes
from dlio_torch.config.schema import CheckpointConfig, Config
from dlio_torch.config.schema_model import ModelConfig, ParallelConfig

FULL = ParallelConfig(data=8, fsdp="full")


class WholeState(Layout):
    """A file of the weights and one of the optimizer's state, on each rank."""

    needs_model = True

    def file_names(self, config: Config) -> list[str]:
        return []

    def saved_bytes(self, config: Config, rank: int) -> int:
        return sum(self.file_sizes(config, rank))

    def file_sizes(self, config: Config, rank: int) -> list[int]:
        state = rank_state(config.model, config.parallel, rank)
        weights = sum(tensor.bytes for tensor in state if not tensor.name.startswith("optimizer."))
        return [weights, sum(tensor.bytes for tensor in state) - weights]

    def held_bytes(self, config: Config, rank: int) -> int:
        return 0

    def open(self, setup: SaverSetup) -> Saver:
        raise NotImplementedError


def described(config: Config, model: ModelConfig, parallel: ParallelConfig) -> Config:
    return replace(config, model=model, parallel=parallel)


@settings(max_examples=50, deadline=None)
@given(st.one_of(jobs(), jobs(zero=st.integers(0, 3))))
def test_ranks_of_a_class_hold_the_same_shapes(job: tuple[ModelConfig, ParallelConfig]) -> None:
    model, parallel = job
    classes = rank_classes(model, parallel, parallel.world_size)
    assert sorted(rank for ranks in classes for rank in ranks) == list(range(parallel.world_size))
    for ranks in classes:
        states = [rank_state(model, parallel, rank) for rank in ranks]
        shapes = {tuple((part.local_shape, part.dtype, part.replica == 0) for part in state) for state in states}
        assert len(shapes) == 1


@pytest.mark.parametrize(
    ("model", "parallel", "count"),
    [
        (LLAMA3_8B, replace(FULL, data=1024), 4),  # the first; rows of the vocabulary: 126, the rest, none
        (LLAMA3_70B, ParallelConfig(tensor=8, data=32, fsdp="full"), 3),  # the first; with and without the norms
        (
            LLAMA3_405B,
            ParallelConfig(tensor=8, pipeline=32, data=2, zero=1),
            128,
        ),  # of a stage: norms and copies or not
    ],
)
def test_a_thousand_ranks_are_few_classes(model: ModelConfig, parallel: ParallelConfig, count: int) -> None:
    assert len(rank_classes(model, parallel, parallel.world_size)) == count


def test_kinds_are_ordered_by_size_and_name_their_ranks() -> None:
    kinds = grouped([(0, [5, 10]), (1, [3]), (2, [10, 5]), (3, [])])
    assert kinds == [RankKind((0, 2), (10, 5)), RankKind((1,), (3,)), RankKind((3,), ())]


def test_equal_ranks_are_one_kind_and_the_last_may_have_less() -> None:
    model = replace(LLAMA3_8B, num_layers=1)
    equal = rank_kinds(WholeState(), described(Config(), model, FULL), 8)
    assert [kind.ranks for kind in equal] == [tuple(range(8))]
    assert sum(equal[0].sizes) * 8 == sum(rank_bytes(model, FULL, rank) for rank in range(8))
    uneven = rank_kinds(WholeState(), described(Config(), model, replace(FULL, data=3)), 3)
    assert [kind.ranks for kind in uneven] == [(0, 1), (2,)]


@settings(max_examples=30, deadline=None)
@given(jobs())
def test_kinds_together_have_the_bytes_of_all_ranks(job: tuple[ModelConfig, ParallelConfig]) -> None:
    model, parallel = job
    kinds = rank_kinds(WholeState(), described(Config(), model, parallel), parallel.world_size)
    expected = sum(rank_bytes(model, parallel, rank) for rank in range(parallel.world_size))
    assert sum(len(kind.ranks) * sum(kind.sizes) for kind in kinds) == expected


def test_bytes_of_layouts_without_a_model_are_those_of_the_ranks_that_save() -> None:
    saved = CheckpointConfig(layout="torch_save", state_bytes=100)
    assert total_bytes(replace(Config(), checkpoint=saved), 4) == 100
    assert total_bytes(replace(Config(), checkpoint=replace(saved, ranks="all")), 4) == 400
    assert total_bytes(Config(), 4) == 0
