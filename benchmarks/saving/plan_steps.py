"""Steps of a save of ``torch.distributed.checkpoint`` other than writing tensors, each with its time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from dlio_torch.environment.private_names import place_in_checkpoint

LOCAL, GATHER, GLOBAL, SCATTER = "plan of a rank, s", "gather, s", "plan of all, s", "scatter, s"
RESULTS, METADATA, BROADCAST = "results, s", ".metadata, s", "broadcast, s"
STEPS = (LOCAL, GATHER, GLOBAL, SCATTER, RESULTS, METADATA, BROADCAST)
"""All steps but writing tensors, in their order."""


class StepTimes:
    """Seconds of the steps of one save.

    Args:
        clock: tells the time, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds: dict[str, float] = {}
        self._clock, self._last = clock, clock()

    def begin(self) -> None:
        """Takes the time: the next step begins."""
        self._last = self._clock()

    def end(self, step: str) -> None:
        """Takes the time: a step ends, and the next one begins."""
        now = self._clock()
        self.seconds[step], self._last = now - self._last, now


class TimedPlanner(DefaultSavePlanner):
    """The library's planner with cached plans.

    Ranks that share a machine compete for its cores.  Therefore the plan of a rank counts the processor time of its
    thread, and gathering begins when all ranks have their plan.

    Args:
        times: gets the times.
    """

    def __init__(self, times: StepTimes) -> None:
        super().__init__(enable_plan_caching=True)
        self._times, self._began = times, 0.0

    def set_up_planner(self, state_dict: Any, storage_meta: Any = None, is_coordinator: bool = False) -> None:
        """Begins the plan of this rank."""
        self._began = time.thread_time()
        super().set_up_planner(state_dict, storage_meta, is_coordinator)

    def create_local_plan(self) -> SavePlan:
        """Returns the plan of this rank."""
        plan = super().create_local_plan()
        self._times.seconds[LOCAL] = time.thread_time() - self._began
        dist.barrier()
        self._times.begin()
        return plan

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """Returns the plans of all ranks; they have been gathered."""
        self._times.end(GATHER)
        return super().create_global_plan(all_plans)

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        """Returns the final plan of this rank, which it has received."""
        plan = super().finish_plan(new_plan)
        self._times.end(SCATTER)
        return plan


class EntriesWriter(FileSystemWriter):
    """The library's writer without tensors: it only makes their entries, and writes ``.metadata``.

    Args:
        folder: of the checkpoint.
        times: gets the times.
    """

    def __init__(self, folder: Path, times: StepTimes) -> None:
        super().__init__(folder)
        self._times = times

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Returns the plans of all ranks with the names of their files."""
        prepared: list[SavePlan] = super().prepare_global_plan(plans)
        self._times.end(GLOBAL)
        return prepared

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Returns the entries of the tensors, when all ranks have theirs."""
        written: Future[list[WriteResult]] = Future()
        written.set_result(entries(plan, f"{plan.storage_data.prefix}0.distcp"))
        dist.barrier()
        self._times.begin()
        return written

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Writes ``.metadata``; the entries of all ranks have been gathered."""
        self._times.end(RESULTS)
        super().finish(metadata, results)
        self._times.end(METADATA)


def entries(plan: SavePlan, file: str) -> list[WriteResult]:
    """Entries of the tensors of a rank, as if they had been written to ``file``."""
    sizes = [item.tensor_storage_size() or 1 for item in plan.items]
    return [
        WriteResult(item.index, size, place_in_checkpoint(file, 0, size))
        for item, size in zip(plan.items, sizes, strict=True)
    ]
