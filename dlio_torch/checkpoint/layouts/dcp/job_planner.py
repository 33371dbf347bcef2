"""Planner of a save: PyTorch's own, with the plans of the ranks of the job that no process was started for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan
from torch.distributed.checkpoint.storage import WriteResult

from dlio_torch.checkpoint.layouts.dcp.job_plans import absent_plans, absent_results
from dlio_torch.checkpoint.layouts.dcp.part_times import PartTimes
from dlio_torch.config.schema_model import ModelConfig, ParallelConfig


@dataclass(frozen=True)
class LaunchedRanks:
    """Ranks of the described job that processes were started for.

    Attributes:
        model: the model and its optimizer.
        parallel: ranks of the job.
        count: number of started ranks, the first ones.
    """

    model: ModelConfig
    parallel: ParallelConfig
    count: int

    def absent(self) -> tuple[SavePlan, ...]:
        """Local plans of the other ranks; made once in a process."""
        if self.count == self.parallel.world_size:
            return ()
        return absent_plans(self.model, self.parallel, self.count)

    def absent_results(self) -> tuple[list[WriteResult], ...]:
        """Entries of what the other ranks would have written; made once in a process."""
        if self.count == self.parallel.world_size:
            return ()
        return absent_results(self.model, self.parallel, self.count)


class JobSavePlanner(DefaultSavePlanner):
    """``DefaultSavePlanner`` whose global plan is that of the whole job, so that it costs and holds as much.

    Args:
        ranks: the started ranks; None: all ranks plan for themselves, without collectives.
        times: gets the time of planning.
        options: of ``DefaultSavePlanner``.
    """

    def __init__(self, ranks: LaunchedRanks | None, times: PartTimes, **options: Any) -> None:
        super().__init__(**options)
        self._ranks = ranks
        self._times = times

    def set_up_planner(self, state_dict: Any, storage_meta: Any = None, is_coordinator: bool = False) -> None:
        """Begin the plan of this rank; other ranks' plans are made before, which is no part of a save's time."""
        if is_coordinator and self._ranks is not None:
            self._ranks.absent_results()
        self._times.begin_plan()
        super().set_up_planner(state_dict, storage_meta, is_coordinator)

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """Returns the final plans of the started ranks, and the description of the whole checkpoint."""
        absent = () if self._ranks is None else self._ranks.absent()
        if not any(getattr(plan, "usable", True) for plan in all_plans):
            absent = tuple(replace(all_plans[0]) for _ in absent)  # with a cache: theirs have not changed, either
        plans, metadata = super().create_global_plan([*all_plans, *absent])
        return plans[: len(all_plans)], metadata

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        """Returns the final plan of this rank."""
        plan = super().finish_plan(new_plan)
        self._times.end_plan()
        return plan
