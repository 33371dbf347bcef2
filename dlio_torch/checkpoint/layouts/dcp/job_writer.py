"""Writer of a save: PyTorch's own, with times, and with the other ranks of the job in the description."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from dlio_torch.checkpoint.layouts.dcp.job_planner import JobSavePlanner
from dlio_torch.checkpoint.layouts.dcp.part_times import PartTimes
from dlio_torch.checkpoint.layouts.dcp.save_process import tell_trainer


class JobWriter(FileSystemWriter):
    """``FileSystemWriter`` of a rank.

    Args:
        folder: of the checkpoint.
        planner: of the save.
        times: gets the time of writing.
        options: of ``FileSystemWriter``.
    """

    def __init__(self, folder: Path, planner: JobSavePlanner, times: PartTimes, **options: Any) -> None:
        super().__init__(folder, **options)
        self._planner = planner
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
        samples = itertools.chain.from_iterable(results)
        absent = self._planner.absent_final_plans()
        super().finish(metadata, [*results, *_absent_results(absent, next(samples, None))])
        self._times.add_data(time.perf_counter_ns() - start)
        tell_trainer(self._times)


def _absent_results(plans: dict[int, SavePlan], sample: WriteResult | None) -> Iterator[list[WriteResult]]:
    """Entries of the tensors that ranks without a process would have written; their offsets are negative.

    So the description is as large as that of the whole job, and a load knows what it cannot find.

    Args:
        plans: final plans of these ranks.
        sample: an entry of a tensor that was written.
    """
    if sample is None:
        return
    for rank, plan in plans.items():
        entries, end, name = [], 1, f"__{rank}_0.distcp"
        for item in plan.items:
            size = item.tensor_storage_size() or 1
            place: Any = replace(sample.storage_data, relative_path=name, offset=-end, length=size)
            entries.append(WriteResult(_sent(item.index), size, place))
            end += size
        yield entries


def _sent(index: MetadataIndex) -> MetadataIndex:
    """A copy that shares no objects with the plan, as if its rank had sent it: pickle stores equal objects once."""
    offset = None if index.offset is None else torch.Size(list(index.offset))
    return replace(index, fqn=index.fqn.encode().decode(), offset=offset)
