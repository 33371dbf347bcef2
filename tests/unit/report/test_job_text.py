"""The lines of a plan on the described job."""

from __future__ import annotations

from dataclasses import replace

from described_jobs import LLAMA3_8B, MIXTRAL

from dlio_torch.config.schema import Config
from dlio_torch.config.schema_model import ParallelConfig
from dlio_torch.report.job_text import job_lines


def test_a_plan_names_model_ranks_and_state() -> None:
    config = Config(model=LLAMA3_8B, parallel=ParallelConfig(data=8, fsdp="full"))
    assert list(job_lines(config, 8)) == [
        "model: 32 layers of 32 heads (8 for keys and values), 8,030,261,248 parameters in 291 tensors, 12 bytes of "
        "state for each, 89.7 GiB in all",
        "job: 8 ranks (tensor 1, pipeline 1, data 8, full sharding by FSDP), up to 11.2 GiB of state each",
    ]


def test_fewer_ranks_stand_for_the_first_ones_of_the_job() -> None:
    config = Config(model=replace(MIXTRAL, num_kv_heads=0), parallel=ParallelConfig(tensor=2, data=4, expert=4, zero=1))
    model, job = job_lines(config, 2)
    assert "of 32 heads, " in model
    assert " of them for a token)" in model
    assert "8 ranks (tensor 2, pipeline 1, data 4, expert 4, ZeRO 1)" in job
    assert job.endswith("; the 2 ranks of this run stand for ranks 0 to 1")
    assert list(job_lines(config, 1))[1].endswith("; the rank of this run stands for rank 0")


def test_a_run_without_a_model_has_no_lines() -> None:
    assert list(job_lines(Config(), 1)) == []
