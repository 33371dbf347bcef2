"""Plans of the ranks of the described job by the real planner, without their processes and memory (meta tensors)."""

from __future__ import annotations

import functools
from dataclasses import replace

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan
from torch.distributed.checkpoint.storage import WriteResult

from dlio_torch.checkpoint.layouts.dcp.job_state import job_state
from dlio_torch.config.schema_model import ModelConfig, ParallelConfig
from dlio_torch.environment.private_names import place_in_checkpoint


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


@functools.lru_cache(maxsize=1)
def absent_results(model: ModelConfig, parallel: ParallelConfig, launched: int) -> tuple[list[WriteResult], ...]:
    """Entries of the tensors that these ranks would have written, a list for each rank; their offsets are negative.

    So the description is as large as that of the whole job, and a load knows what it cannot find.  The plans of all
    saves of a job are equal, and so are the entries.  Arguments are those of :func:`absent_plans`.
    """
    present = [local_plan(model, parallel, rank) for rank in range(launched)]
    final, _ = DefaultSavePlanner().create_global_plan([*present, *absent_plans(model, parallel, launched)])
    return tuple(_results(rank, plan) for rank, plan in enumerate(final[launched:], launched))


def _results(rank: int, plan: SavePlan) -> list[WriteResult]:
    results, end, name = [], 1, f"__{rank}_0.distcp"
    for item in plan.items:
        size = item.tensor_storage_size() or 1
        results.append(WriteResult(_sent(item.index), size, place_in_checkpoint(name, -end, size)))
        end += size
    return results


def _sent(index: MetadataIndex) -> MetadataIndex:
    """A copy that shares no objects with the plan, as if its rank had sent it: pickle stores equal objects once."""
    offset = None if index.offset is None else torch.Size(list(index.offset))
    return replace(index, fqn=index.fqn.encode().decode(), offset=offset)
