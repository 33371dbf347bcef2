"""Writer of a save: PyTorch's own, with times, and with the other ranks of the job in the description."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from dlio_torch.checkpoint.layouts.dcp.job_planner import LaunchedRanks
from dlio_torch.checkpoint.layouts.dcp.part_times import PartTimes
from dlio_torch.checkpoint.layouts.dcp.save_process import tell_trainer


class JobWriter(FileSystemWriter):
    """``FileSystemWriter`` of a rank.

    Args:
        folder: of the checkpoint.
        ranks: the started ranks of the job; None: each describes its own files.
        times: gets the time of writing.
        options: of ``FileSystemWriter``.
    """

    def __init__(self, folder: Path, ranks: LaunchedRanks | None, times: PartTimes, **options: Any) -> None:
        super().__init__(folder, **options)
        self._ranks = ranks
        self._times = times

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write this rank's files."""
        start = time.perf_counter_ns()
        written = super().write_data(plan, planner)
        self._times.add_data(time.perf_counter_ns() - start)
        tell_trainer(self._times)
        return written

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write the description of all ranks' files, on the coordinator."""
        start = time.perf_counter_ns()
        absent = () if self._ranks is None else self._ranks.absent_results()
        super().finish(metadata, [*results, *absent])
        self._times.add_data(time.perf_counter_ns() - start)
        tell_trainer(self._times)
