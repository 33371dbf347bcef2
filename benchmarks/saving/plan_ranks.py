"""Ranks, each a process, that plan saves of a described job over gloo and write ``.metadata``, but no tensor."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_saver import save

from benchmarks.saving.plan_steps import BROADCAST, EntriesWriter, StepTimes, TimedPlanner
from benchmarks.saving.rank_processes import in_ranks
from dlio_torch.checkpoint.layouts.dcp.job_state import job_state
from dlio_torch.config.schema_model import ModelConfig, ParallelConfig


def step_times(model: ModelConfig, parallel: ParallelConfig, saves: int) -> list[dict[str, float]]:
    """Seconds of the steps of each save on the coordinator, with cached plans.

    Args:
        model: the model and its optimizer.
        parallel: ranks of the job; each is a process.
        saves: number of saves.

    Raises:
        Unavailable: a rank failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        return in_ranks(_saves, parallel.world_size, Path(folder), model, parallel, saves)


def _saves(rank: int, folder: Path, model: ModelConfig, parallel: ParallelConfig, saves: int) -> list[dict[str, float]]:
    state, times = job_state(model, parallel, rank, device="meta"), []
    for number in range(saves):
        steps = StepTimes()
        dist.barrier()
        save(state, storage_writer=EntriesWriter(folder / str(number), steps), planner=TimedPlanner(steps))
        steps.end(BROADCAST)
        times.append(steps.seconds)
    return times
