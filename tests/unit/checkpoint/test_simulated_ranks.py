"""Simulated ranks: sizes of files, metadata and plans are those of a real save of as many ranks."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch.distributed.checkpoint as dcp
from described_jobs import jobs
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter

from dlio_torch.checkpoint.job.saved_state import job_bytes
from dlio_torch.checkpoint.layouts.dcp.job_state import job_state
from dlio_torch.checkpoint.layouts.dcp.simulated_ranks import SimulatedRanks
from dlio_torch.checkpoint.plan_cost import PlanCost
from dlio_torch.config.schema_model import ModelConfig, ParallelConfig

MODEL = ModelConfig(hidden_size=16, num_layers=3, num_heads=4, num_kv_heads=2, ffn_hidden_size=40, vocab_size=50)
ONE = ParallelConfig(data=1, fsdp="full")
TWO = ParallelConfig(data=2, fsdp="full")
FOUR = ParallelConfig(tensor=2, data=2, fsdp="full")
STAGES = ParallelConfig(pipeline=2, data=2, fsdp="hybrid", fsdp_ranks=1)
WITHOUT_FSDP = ParallelConfig(data=3)


def simulated(parallel: ParallelConfig, directory: Path, model: ModelConfig = MODEL, **options: Any) -> PlanCost:
    return SimulatedRanks(model, parallel, parallel.world_size).cost(directory, options)


def saved(parallel: ParallelConfig, directory: Path, **options: Any) -> None:
    """All ranks of a job save with the real writer and with content, one after another."""
    ranks = range(parallel.world_size)
    planners = [DefaultSavePlanner() for _ in ranks]
    writers = [FileSystemWriter(directory, sync_files=False, **options) for _ in ranks]
    for rank in ranks:
        state = job_state(MODEL, parallel, rank, seed=1)
        planners[rank].set_up_planner(state, None, is_coordinator=rank == 0)
        writers[rank].set_up_storage_writer(rank == 0)
    plans, metadata = planners[0].create_global_plan([planner.create_local_plan() for planner in planners])
    plans = writers[0].prepare_global_plan(plans)
    directory.mkdir()
    results = [writers[rank].write_data(planners[rank].finish_plan(plans[rank]), planners[rank]) for rank in ranks]
    writers[0].finish(metadata, [result.wait() for result in results])


def sizes(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in directory.iterdir()}


def files_of_rank(directory: Path, rank: int) -> list[int]:
    first = [".metadata"] if rank == 0 else []
    return sorted(size for name, size in sizes(directory).items() if name.startswith(f"__{rank}_") or name in first)


@pytest.mark.parametrize("parallel", [TWO, FOUR, STAGES, WITHOUT_FSDP])
@pytest.mark.parametrize("options", [{}, {"thread_count": 2}, {"single_file_per_rank": False}], ids=str)
def test_files_are_as_large_as_those_of_a_save(
    parallel: ParallelConfig, options: dict[str, Any], tmp_path: Path
) -> None:
    saved(parallel, tmp_path / "step", **options)
    cost = simulated(parallel, tmp_path / "step", **options)
    assert [sorted(sizes) for sizes in cost.sizes] == [
        files_of_rank(tmp_path / "step", rank) for rank in range(parallel.world_size)
    ]
    assert cost.metadata_bytes == sizes(tmp_path / "step")[".metadata"]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_one_rank_is_as_saved_by_the_library(tmp_path: Path) -> None:
    state = job_state(MODEL, ONE, 0, seed=1)
    dcp.save(state, storage_writer=FileSystemWriter(tmp_path / "step", sync_files=False), no_dist=True)
    cost = simulated(ONE, tmp_path / "step")
    assert sorted(cost.sizes[0]) == sorted(sizes(tmp_path / "step").values())


def test_nothing_is_written(tmp_path: Path) -> None:
    simulated(TWO, tmp_path / "step")
    assert list(tmp_path.iterdir()) == []


def test_plans_are_those_that_ranks_send(tmp_path: Path) -> None:
    ranks = SimulatedRanks(MODEL, TWO, 2)
    cost = ranks.cost(tmp_path, {})
    assert cost.plan_bytes == sum(len(pickle.dumps(plan)) for plan in ranks.plans)
    assert cost.tensors == sum(len(plan.items) for plan in ranks.plans)
    assert len(ranks.local_s) == cost.ranks == 2


def test_large_tensors_take_no_memory(tmp_path: Path) -> None:
    model = ModelConfig(hidden_size=4096, num_layers=1, num_heads=32, ffn_hidden_size=14336, vocab_size=128256)
    cost = simulated(TWO, tmp_path, model)
    total = sum(map(sum, cost.sizes))
    assert job_bytes(model) < total < 1.001 * job_bytes(model)


@settings(max_examples=25, deadline=None)
@given(jobs(), st.integers(1, 4))
def test_the_first_ranks_of_a_job_are_planned_as_in_the_whole_job(
    job: tuple[ModelConfig, ParallelConfig], ranks: int
) -> None:
    model, parallel = job
    ranks = min(ranks, parallel.world_size)
    part = SimulatedRanks(model, parallel, ranks)
    whole = SimulatedRanks(model, parallel, parallel.world_size)
    assert part.plans == whole.plans[:ranks]
    cost = part.cost(Path("step"), {})
    assert cost.ranks == ranks == len(cost.sizes)
    assert cost.global_s > 0


def test_nothing_is_said_about_holes_of_other_ranks(caplog: pytest.LogCaptureFixture) -> None:
    part = SimulatedRanks(MODEL, FOUR, 2).cost(Path("step"), {})
    whole = simulated(FOUR, Path("step"))
    assert part.plan_bytes < whole.plan_bytes
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
