"""Cost of planning a checkpoint of many ranks, as plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PlanCost:
    """Plans of the first ranks of the job, made by the real planner in one process; times are measured here.

    Attributes:
        ranks: number of ranks that were planned.
        tensors: entries of all their plans.
        local_s: time in which a rank makes its plan, median of the ranks, s.
        global_s: time in which the coordinator makes the plan of all ranks, s.
        plan_bytes: size of all plans of the ranks as they are sent to the coordinator.
        metadata_bytes: size of the file that describes the checkpoint.
        sizes: of the files of each planned rank, bytes.
    """

    ranks: int
    tensors: int
    local_s: float
    global_s: float
    plan_bytes: int
    metadata_bytes: int
    sizes: tuple[tuple[int, ...], ...]
