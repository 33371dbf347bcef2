"""The state of a rank: names, types and bytes, and that all ranks together hold it once."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest
from described_jobs import LLAMA3_8B, LLAMA3_405B, MLPERF_1T, MLPERF_70B, jobs
from hypothesis import given, settings
from hypothesis import strategies as st

from dlio_torch.checkpoint.job.ranks import job_ranks
from dlio_torch.checkpoint.job.saved_state import (
    StateTensor,
    bytes_per_parameter,
    fitting_layers,
    job_bytes,
    largest_rank_bytes,
    rank_bytes,
    rank_optimizer,
    rank_state,
    rank_weights,
)
from dlio_torch.config.schema_model import ModelConfig, ParallelConfig

GIB = 1 << 30


def test_tensors_of_fsdp_and_adam_are_named_for_their_parameters() -> None:
    tensors = rank_state(LLAMA3_8B, ParallelConfig(data=8, fsdp="full"), 0)
    assert len(tensors) == 873  # 291 parameters and two states of each
    assert {tensor.dtype for tensor in tensors} == {"float32"}
    assert tensors[291].name == "optimizer.state.tok_embeddings.weight.exp_avg"
    assert tensors[292].name == "optimizer.state.tok_embeddings.weight.exp_avg_sq"
    assert tensors[292].local_shape == (16032, 4096)


@pytest.mark.parametrize(
    ("change", "names", "size"),
    [
        ({"optimizer_states": 0}, [], 4),
        ({"optimizer_states": 1}, ["momentum_buffer"], 8),
        ({"dtype": "bfloat16", "optimizer_dtype": "bfloat16"}, ["exp_avg", "exp_avg_sq"], 6),
        ({"dtype": "bfloat16", "master_weights": True}, ["exp_avg", "exp_avg_sq", "master_param"], 14),
    ],
)
def test_precision_and_optimizer_decide_on_the_tensors(change: dict[str, object], names: list[str], size: int) -> None:
    model = replace(LLAMA3_8B, **change)  # type: ignore[arg-type]
    states = rank_optimizer(model, ParallelConfig(), 0)
    assert [tensor.name.rpartition(".")[2] for tensor in states[: len(names)]] == names
    assert bytes_per_parameter(model) == size
    assert rank_bytes(model, ParallelConfig(), 0) == job_bytes(model) == size * 8_030_261_248


# The published sizes of MLPerf Storage: bytes of the optimizer and of the model of a rank, and of all, in GiB.
@pytest.mark.parametrize(
    ("model", "parallel", "optimizer", "weights", "total"),
    [
        (LLAMA3_8B, ParallelConfig(data=8, zero=3), 11.22, 1.87, 104.7),
        (MLPERF_70B, ParallelConfig(tensor=8, data=8, zero=3), 12.20, 2.03, 911.2),
        (LLAMA3_405B, ParallelConfig(tensor=8, pipeline=32, data=2, zero=1), 10.37, 3.46, 5291.7),
        (MLPERF_1T, ParallelConfig(tensor=8, pipeline=64, data=2, zero=1), 15.16, 5.05, 15427.1),
    ],
)
def test_bytes_of_mlperf(
    model: ModelConfig, parallel: ParallelConfig, optimizer: float, weights: float, total: float
) -> None:
    model = replace(model, dtype="bfloat16", master_weights=True)
    assert sum(tensor.bytes for tensor in rank_optimizer(model, parallel, 0)) / GIB == pytest.approx(
        optimizer, abs=0.01
    )
    assert sum(tensor.bytes for tensor in rank_weights(model, parallel, 0)) / GIB == pytest.approx(weights, abs=0.01)
    assert job_bytes(model) / GIB == pytest.approx(total, abs=0.1)


def first_copies(model: ModelConfig, parallel: ParallelConfig) -> list[StateTensor]:
    tensors = [tensor for rank in range(job_ranks(parallel)) for tensor in rank_state(model, parallel, rank)]
    return [tensor for tensor in tensors if tensor.replica == 0]


@settings(max_examples=60, deadline=None)
@given(jobs())
def test_all_ranks_hold_the_state_once(job: tuple[ModelConfig, ParallelConfig]) -> None:
    model, parallel = job
    assert sum(tensor.bytes for tensor in first_copies(model, parallel)) == job_bytes(model)
    assert largest_rank_bytes(model, parallel) == max(
        rank_bytes(model, parallel, rank) for rank in range(job_ranks(parallel))
    )


@settings(max_examples=60, deadline=None)
@given(jobs(zero=st.integers(1, 3)))
def test_zero_cuts_rows_without_gaps(job: tuple[ModelConfig, ParallelConfig]) -> None:
    model, parallel = job
    assert sum(tensor.bytes for tensor in first_copies(model, parallel)) == job_bytes(model)
    for tensor_rank in range(parallel.tensor):
        rows: dict[tuple[str, int], list[StateTensor]] = defaultdict(list)
        for data in range(parallel.data):
            rank = data * parallel.tensor + tensor_rank
            for tensor in rank_optimizer(model, parallel, rank):
                expert = data % parallel.expert if ".experts." in tensor.name else 0
                rows[tensor.name, expert].append(tensor)
        for parts in rows.values():
            ends = [part.offsets[0] + part.local_shape[0] for part in parts]
            assert [part.offsets[0] for part in parts] == [0, *ends[:-1]]
            assert ends[-1] == parts[0].global_shape[0]


def test_layers_are_left_out_until_the_largest_rank_fits() -> None:
    parallel = ParallelConfig(data=8, fsdp="full")
    limit = 3_000_000_000
    layers = fitting_layers(LLAMA3_8B, parallel, limit)
    assert layers == 4
    assert largest_rank_bytes(replace(LLAMA3_8B, num_layers=layers), parallel) <= limit
    assert largest_rank_bytes(replace(LLAMA3_8B, num_layers=layers + 1), parallel) > limit
    assert fitting_layers(LLAMA3_8B, parallel, 1) == 1
    assert fitting_layers(LLAMA3_8B, parallel, 10**15) == 32


def test_each_pipeline_stage_keeps_a_layer() -> None:
    assert fitting_layers(LLAMA3_405B, ParallelConfig(tensor=8, pipeline=32, data=2), 1) == 32
