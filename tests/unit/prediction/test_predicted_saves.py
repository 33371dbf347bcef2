"""Checkpoints of a described job at other numbers of ranks, and their time on a described storage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dlio_torch.checkpoint.job.saved_state import job_bytes, rank_bytes
from dlio_torch.checkpoint.plan_cost import PlanCost
from dlio_torch.config.schema import CheckpointConfig, Config
from dlio_torch.config.schema_model import ModelConfig, ParallelConfig
from dlio_torch.config.schema_run import SystemConfig
from dlio_torch.prediction.predicted_saves import (
    Checkpoint,
    JobSaves,
    PredictedSave,
    checkpoint_of,
    grown,
    predicted_save,
)

MODEL = ModelConfig(hidden_size=64, num_layers=4, num_heads=4, ffn_hidden_size=160, vocab_size=512)
FULL = ParallelConfig(data=4, fsdp="full")
COST = PlanCost(ranks=4, tensors=100, local_s=0.5, global_s=2.0, plan_bytes=8_000_000, metadata_bytes=1, sizes=())
MB = 1_000_000


def config(layout: str, parallel: ParallelConfig, **options: Any) -> Config:
    saved = CheckpointConfig(layout=layout, every_steps=10, **options)  # type: ignore[arg-type]
    return replace(Config(), model=MODEL, parallel=parallel, checkpoint=saved)


def saves(layout: str, parallel: ParallelConfig, cost: PlanCost | None = None, **options: Any) -> Checkpoint:
    job = JobSaves(config(layout, parallel), cost)
    return Checkpoint(float(rank_bytes(MODEL, parallel, 0)), 10, 0, True, job, **options)


def predicted(saved: Checkpoint, ranks: int, **described: Any) -> PredictedSave:
    system = SystemConfig(name="test", read_bytes_per_s=100.0 * MB, **described)
    return predicted_save(saved, system, ranks, seed=1)


@pytest.mark.parametrize(
    ("parallel", "ranks", "data"),
    [
        (FULL, 2, 4),
        (FULL, 4, 4),
        (FULL, 64, 64),
        (ParallelConfig(tensor=2, pipeline=4, data=2), 64, 8),
        (ParallelConfig(tensor=2, pipeline=4, data=2), 65, 8),
        (ParallelConfig(data=4, fsdp="hybrid", fsdp_ranks=2), 7, 6),
        (ParallelConfig(data=4, expert=4), 15, 12),
    ],
)
def test_more_ranks_are_more_data_parallelism(parallel: ParallelConfig, ranks: int, data: int) -> None:
    assert grown(parallel, ranks) == replace(parallel, data=data)


def test_the_same_state_is_divided_among_more_ranks() -> None:
    saved = saves("dcp", FULL)
    for ranks in (4, 8, 16):
        save = predicted(saved, ranks)
        assert (save.ranks, save.bytes) == (ranks, job_bytes(MODEL))
        assert save.largest_bytes == rank_bytes(MODEL, replace(FULL, data=ranks), 0)


def test_of_fewer_ranks_the_first_ones_of_the_job_save() -> None:
    save = predicted(saves("dcp", FULL), 2)
    assert (save.ranks, save.bytes) == (2, 2 * rank_bytes(MODEL, FULL, 0))


def test_all_ranks_share_the_storage_with_their_own_bytes() -> None:
    parallel = ParallelConfig(data=4)  # the first data-parallel rank saves all
    save = predicted(saves("megatron_deepspeed", parallel), 4, write_bytes_per_s=10.0 * MB)
    assert save.bytes == save.largest_bytes == job_bytes(MODEL)
    assert save.write_s == pytest.approx(job_bytes(MODEL) / (10 * MB))
    even = predicted(saves("dcp", FULL), 4, write_bytes_per_s=10.0 * MB)
    assert even.write_s == pytest.approx(save.write_s)


def test_a_large_file_is_spread_over_its_targets() -> None:
    spread = {"write_bytes_per_s": 10.0 * MB, "targets": 10, "stripe_bytes": 1000}
    parallel = ParallelConfig(data=4)
    assert predicted(saves("megatron_deepspeed", parallel), 4, **spread).write_s == pytest.approx(
        job_bytes(MODEL) / (10 * MB)
    )
    one = predicted(saves("megatron_deepspeed", parallel), 4, **spread, stripe_count=1)
    assert one.write_s == pytest.approx(job_bytes(MODEL) / MB)


def test_plans_grow_with_the_ranks_and_pass_one_link() -> None:
    saved = saves("dcp", FULL, COST)
    four, eight = (predicted(saved, ranks, network_bytes_per_s=100.0 * MB) for ranks in (4, 8))
    assert (four.plan_s, four.gather_s) == (pytest.approx(2.5), pytest.approx(0.16))
    assert (eight.plan_s, eight.gather_s) == (pytest.approx(4.5), pytest.approx(0.32))
    assert predicted(saved, 4).gather_s == 0
    assert eight.seconds == pytest.approx(4.5 + 0.32 + eight.write_s)
    cached = predicted(replace(saved, cached=True), 8, network_bytes_per_s=100.0 * MB)
    assert (cached.plan_s, cached.gather_s) == (0.5, 0.0)


def test_flushing_takes_a_request_for_each_file() -> None:
    stages = ParallelConfig(pipeline=2, data=2, zero=1)
    files = 2 + 2 + 1  # of the last stage: two layers, norm and head, optimizer
    flushed = predicted(saves("megatron_deepspeed", stages, flushed=True), 4, request_latency_s=0.25)
    plain = predicted(saves("megatron_deepspeed", stages), 4, request_latency_s=0.25)
    assert (flushed.fsync_s, plain.fsync_s) == (files * 0.25, 0)
    assert flushed.write_s == plain.write_s


def test_a_save_in_the_background_stops_training_for_its_copy_or_for_the_one_before() -> None:
    save = predicted(saves("dcp", FULL, COST, stall_s=0.5), 8, write_bytes_per_s=10.0 * MB)
    assert save.stall_s == pytest.approx(0.25, rel=0.01)  # half the bytes of a rank
    assert save.paused_s(1000.0) == save.stall_s
    assert save.paused_s(1.0) == pytest.approx(save.seconds - 1)
    assert predicted(saves("dcp", FULL), 8).paused_s(1000.0) > 0


def test_a_run_says_what_it_saved() -> None:
    summary = {"saved": {"checkpoints": 2, "bytes": 2000}, "checkpoints": {"duration_s": {"mean": 0.25}}}
    settings = config("dcp", FULL, planned_ranks=2, async_save="thread", plan_cache=True)
    saved = checkpoint_of(settings, summary)
    assert saved is not None
    assert (saved.bytes, saved.stall_s, saved.cached, saved.flushed, saved.all_ranks) == (1000, 0.25, True, True, True)
    assert saved.plans is not None
    assert saved.plans.ranks == 2
    told = checkpoint_of(settings, {**summary, "checkpoints": {"save": {"stall_s": {"mean": 0.125}}}})
    assert told is not None
    assert told.stall_s == 0.125
    sized = CheckpointConfig(layout="torch_save", every_steps=1, state_bytes=7)
    plain = checkpoint_of(replace(settings, checkpoint=sized), summary)
    assert plain is not None
    assert (plain.job, plain.all_ranks, plain.stall_s) == (None, False, None)
    assert checkpoint_of(Config(), summary) is None
