"""Local plans of the ranks of a described job: the blocks of the described state, by DTensor and the real planner."""

from __future__ import annotations

from described_jobs import jobs
from hypothesis import given, settings
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

from dlio_torch.checkpoint.job.saved_state import StateTensor, rank_state
from dlio_torch.checkpoint.layouts.dcp.job_plans import absent_plans, local_plan
from dlio_torch.config.schema_model import ModelConfig, ParallelConfig


@settings(max_examples=25, deadline=None)
@given(jobs())
def test_blocks_are_those_of_the_described_state(job: tuple[ModelConfig, ParallelConfig]) -> None:
    model, parallel = job
    for rank in range(parallel.world_size):
        chunks = {
            item.index.fqn: item.tensor_data.chunk
            for item in local_plan(model, parallel, rank).items
            if item.tensor_data is not None
        }
        for tensor in rank_state(model, parallel, rank):
            chunk = chunks.pop(saved_name(tensor))
            assert chunk is not None
            assert tuple(chunk.sizes) == tensor.local_shape
            # DTensor places an empty block at the end of the tensor.
            assert 0 in tensor.local_shape or tuple(chunk.offsets) == tensor.offsets
        assert {name.rpartition(".")[2] for name in chunks} <= {"step"}


@settings(max_examples=25, deadline=None)
@given(jobs())
def test_together_they_are_a_valid_checkpoint(job: tuple[ModelConfig, ParallelConfig]) -> None:
    model, parallel = job
    plans = [local_plan(model, parallel, 0), *absent_plans(model, parallel, 1)]
    planner = DefaultSavePlanner()
    final, metadata = planner.create_global_plan(plans)  # raises ValueError if blocks overlap or leave holes
    assert len(final) == parallel.world_size
    names = {saved_name(tensor) for rank in range(parallel.world_size) for tensor in rank_state(model, parallel, rank)}
    assert names <= metadata.state_dict_metadata.keys()


def test_the_coordinator_is_rank_0_and_options_of_the_optimizer_are_values() -> None:
    model = ModelConfig(hidden_size=8, num_layers=2, num_heads=2, ffn_hidden_size=16, vocab_size=16)
    whole = names_of(model, ParallelConfig(data=2, fsdp="full"))
    assert {"optim.param_groups.0.lr", "optim.param_groups.0.params"} <= whole
    staged = names_of(model, ParallelConfig(pipeline=2, data=2, fsdp="full"))
    assert "optim.param_groups.tok_embeddings.weight.lr" in staged
    assert not any(name.startswith("optim.param_groups.0.") for name in staged)


def saved_name(tensor: StateTensor) -> str:
    prefix, _, rest = tensor.name.partition(".")
    return f"optim.{rest}" if prefix == "optimizer" else f"model.{tensor.name}"


def names_of(model: ModelConfig, parallel: ParallelConfig) -> set[str]:
    return {item.index.fqn for item in local_plan(model, parallel, 0).items}
