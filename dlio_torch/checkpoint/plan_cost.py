"""Cost of planning a checkpoint of many ranks, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dlio_torch.config.schema_model import ParallelConfig


@dataclass(frozen=True)
class PlanCost:
    """Plans of ranks of the job, made by the real planner in one process; times are measured here.

    Attributes:
        ranks: number of ranks that were planned.
        data: data parallelism of the planned job; fewer than the job's where it has too many ranks.
        tensors: entries of all their plans.
        local_s: time in which a rank makes its plan, median of the ranks, s.
        global_s: time in which the coordinator makes the plan of all ranks, s.
        plan_bytes: size of all plans of the ranks as they are sent to the coordinator.
        metadata_bytes: size of the file that describes the checkpoint.
        sizes: of the files of each planned rank, bytes.
    """

    ranks: int
    data: int
    tensors: int
    local_s: float
    global_s: float
    plan_bytes: int
    metadata_bytes: int
    sizes: tuple[tuple[int, ...], ...]


def planned_job(parallel: ParallelConfig, most: int) -> tuple[ParallelConfig, int]:
    """A part of the job with about ``most`` ranks that is a valid checkpoint by itself, and its number of ranks.

    Its ranks hold as many tensors as those of the job: it has whole pipeline stages, or in one stage fewer
    data-parallel ranks, with larger shards.

    Args:
        parallel: ranks of the job.
        most: number of ranks that it is to have; a rank for each tensor-parallel and each expert part is the least.
    """
    stage = parallel.tensor * parallel.data
    if most >= stage:
        return parallel, min(most // stage, parallel.pipeline) * stage
    unit = parallel.fsdp_ranks if parallel.fsdp == "hybrid" else parallel.expert
    if unit * parallel.tensor > most and parallel.fsdp == "hybrid":
        unit, parallel = parallel.expert, replace(parallel, fsdp="full", fsdp_ranks=0)
    data = max(unit, most // parallel.tensor // unit * unit)
    return replace(parallel, data=data), parallel.tensor * data
