"""Ranks of a job: their order, and that their shards are each parameter exactly once in each copy."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
import torch
from described_jobs import LLAMA3_405B, MIXTRAL, jobs
from hypothesis import given, settings
from hypothesis import strategies as st

from dlio_torch.checkpoint.job.ranks import (
    Shard,
    chunk,
    fsdp_ranks,
    job_ranks,
    model_shards,
    place,
    rank_shards,
    stage_layers,
)
from dlio_torch.config.schema_model import ModelConfig, ParallelConfig


def test_ranks_are_numbered_in_the_order_of_megatron() -> None:
    # The example of initialize_model_parallel: 16 ranks, tensor 2, pipeline 4.
    parallel = ParallelConfig(tensor=2, pipeline=4, data=2)
    places = [place(parallel, rank) for rank in range(job_ranks(parallel))]
    assert [p.rank for p in places if (p.pipeline, p.data) == (0, 0)] == [0, 1]
    assert [p.rank for p in places if (p.pipeline, p.tensor) == (0, 0)] == [0, 2]
    assert [p.rank for p in places if (p.data, p.tensor) == (0, 0)] == [0, 4, 8, 12]
    with pytest.raises(ValueError, match="rank 16"):
        place(parallel, 16)


def test_layers_that_do_not_divide_go_to_the_first_stages() -> None:
    stages = [stage_layers(126, 32, stage) for stage in range(32)]
    assert [len(layers) for layers in stages] == [4] * 30 + [3] * 2
    assert [layer for layers in stages for layer in layers] == list(range(126))


def test_the_first_stage_has_the_embeddings_and_the_last_one_the_output() -> None:
    parallel = ParallelConfig(tensor=8, pipeline=32, data=2, zero=1)
    outside = [
        [shard.parameter.name for shard in rank_shards(LLAMA3_405B, parallel, rank) if shard.parameter.layer is None]
        for rank in (0, 16, 511)
    ]
    assert outside == [["tok_embeddings.weight"], [], ["norm.weight", "output.weight"]]


def test_experts_are_consecutive_and_sharded_over_the_ranks_that_hold_the_same() -> None:
    parallel = ParallelConfig(data=16, expert=4, fsdp="full")
    shards = rank_shards(MIXTRAL, parallel, 6)  # the third of four ranks with experts, in the second group
    experts = [shard for shard in shards if shard.parameter.expert is not None and shard.parameter.layer == 0]
    assert [shard.parameter.expert for shard in experts] == [4, 4, 4, 5, 5, 5]
    assert [shard.local_shape for shard in experts[:2]] == [(3584, 4096), (1024, 14336)]
    assert [shard.offsets for shard in experts[:2]] == [(3584, 0), (1024, 0)]
    gate = next(shard for shard in rank_shards(MIXTRAL, parallel, 15) if ".gate." in shard.parameter.name)
    assert (gate.local_shape, gate.offsets) == ((0, 4096), (8, 0))  # 8 rows for 16 ranks


@given(st.integers(1, 40), st.integers(1, 12))
def test_parts_of_a_dimension_are_those_of_torch_chunk(size: int, parts: int) -> None:
    rows = list(torch.arange(size).chunk(parts))
    rows += [rows[0][:0]] * (parts - len(rows))
    assert [list(range(a, a + n)) for a, n in (chunk(size, parts, i) for i in range(parts))] == [
        part.tolist() for part in rows
    ]


def block(shard: Shard) -> tuple[slice, ...]:
    return tuple(slice(a, a + n) for a, n in zip(shard.offsets, shard.local_shape, strict=True))


def tiled(shards: list[Shard]) -> None:
    """Asserts that the shards of each replica number cover each parameter exactly once."""
    copies: dict[tuple[str, int], np.ndarray] = {}
    for shard in shards:
        name = shard.parameter.name
        count = copies.setdefault((name, shard.replica), np.zeros(shard.global_shape, int))
        count[block(shard)] += 1
    assert all((count == 1).all() for count in copies.values())
    numbers = defaultdict(set)
    for name, replica in copies:
        numbers[name].add(replica)
    assert all(replicas == set(range(len(replicas))) for replicas in numbers.values())


@settings(max_examples=60, deadline=None)
@given(jobs())
def test_shards_of_all_ranks_are_each_parameter_once_per_copy(job: tuple[ModelConfig, ParallelConfig]) -> None:
    model, parallel = job
    ranks = range(job_ranks(parallel))
    tiled([shard for rank in ranks for shard in rank_shards(model, parallel, rank)])
    tiled([shard for rank in ranks for shard in model_shards(model, parallel, rank)])


@settings(max_examples=30, deadline=None)
@given(jobs())
def test_a_shard_is_what_torch_cuts_for_tensor_parallelism_and_then_for_fsdp(
    job: tuple[ModelConfig, ParallelConfig],
) -> None:
    model, parallel = job
    for rank in range(job_ranks(parallel)):
        here = place(parallel, rank)
        for shard in rank_shards(model, parallel, rank):
            if shard.parameter.expert is not None:
                continue
            whole = torch.arange(shard.parameter.elements).reshape(shard.global_shape)
            if shard.parameter.split is not None:
                whole = whole.chunk(parallel.tensor, shard.parameter.split)[here.tensor]
            rows = whole.chunk(fsdp_ranks(parallel))
            index = here.data % fsdp_ranks(parallel)
            held = rows[index] if index < len(rows) else whole[:0]
            whole = torch.arange(shard.parameter.elements).reshape(shard.global_shape)
            assert torch.equal(whole[block(shard)], held)
