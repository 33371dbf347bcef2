"""Plans of the ranks of the described job by the real planner, without their processes and memory (meta tensors)."""

from __future__ import annotations

import functools

from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.planner import SavePlan

from dlio_torch.checkpoint.layouts.dcp.job_state import job_state
from dlio_torch.config.schema_model import ModelConfig, ParallelConfig


def local_plan(model: ModelConfig, parallel: ParallelConfig, rank: int) -> SavePlan:
    """The local plan of a rank, before the coordinator removes what several ranks hold.

    It needs no process group.

    Args:
        model: the model and its optimizer.
        parallel: ranks of the job.
        rank: number of the rank in the job.
    """
    return save_planner(model, parallel, rank).create_local_plan()


def save_planner(model: ModelConfig, parallel: ParallelConfig, rank: int) -> DefaultSavePlanner:
    """The planner of a rank with the rank's state, which takes no memory; arguments are those of :func:`local_plan`."""
    planner = DefaultSavePlanner()
    planner.set_up_planner(job_state(model, parallel, rank, device="meta"), None, is_coordinator=rank == 0)
    return planner


@functools.lru_cache(maxsize=1)
def absent_plans(model: ModelConfig, parallel: ParallelConfig, launched: int) -> tuple[SavePlan, ...]:
    """The local plans of the ranks of the job that no process was started for.

    Args:
        model: the model and its optimizer.
        parallel: ranks of the job.
        launched: number of ranks that were started, the first ones of the job.
    """
    return tuple(local_plan(model, parallel, rank) for rank in range(launched, parallel.world_size))
