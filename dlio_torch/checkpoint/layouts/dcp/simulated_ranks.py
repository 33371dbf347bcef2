"""Ranks of the described job in one process: their plans and the sizes of their files, by the real library.

Tensors are meta tensors in DTensors, the planner and the writer are those of ``torch.distributed.checkpoint``; only
the content of the tensors is left out, and files are counted instead of written.
"""

from __future__ import annotations

import logging
import pickle
import statistics
import time
from collections import ChainMap, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import default_planner
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner, create_default_global_save_plan
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, WriteItem, WriteItemType
from torch.distributed.checkpoint.storage import WriteResult
from torch.serialization import skip_data

from dlio_torch.checkpoint.layouts.dcp.counted_files import CountedFiles, PlainStream
from dlio_torch.checkpoint.layouts.dcp.job_plans import save_planner
from dlio_torch.checkpoint.plan_cost import PlanCost
from dlio_torch.config.schema_model import ModelConfig, ParallelConfig


class SimulatedRanks:
    """The first ranks of a job that save one checkpoint.

    Args:
        model: the model and its optimizer.
        parallel: ranks of the job.
        ranks: number of ranks.

    Attributes:
        plans: the local plan of each rank.
        local_s: seconds in which each rank made its plan.
        values: all values that are no tensors, by name.
    """

    def __init__(self, model: ModelConfig, parallel: ParallelConfig, ranks: int) -> None:
        self.plans: list[SavePlan] = []
        self.local_s: list[float] = []
        self.values: dict[str, Any] = {}
        for rank in range(ranks):
            planner = save_planner(model, parallel, rank)
            start = time.perf_counter()
            self.plans.append(planner.create_local_plan())
            self.local_s.append(time.perf_counter() - start)
            self.values |= {key: value for key, value in planner.state_dict.items() if not torch.is_tensor(value)}

    def cost(self, directory: Path, writer_options: dict[str, Any]) -> PlanCost:
        """Plans the checkpoint of all ranks.

        Args:
            directory: folder of the checkpoint; its name is part of the metadata.
            writer_options: arguments of ``FileSystemWriter``.
        """
        files = CountedFiles()
        writer, planner = _CountingWriter(directory, files, writer_options), _FirstRanksPlanner()
        plan_bytes = sum(len(pickle.dumps(plan)) for plan in self.plans)
        start = time.perf_counter()
        plans, metadata = planner.create_global_plan(self.plans)
        plans = writer.prepare_global_plan(plans)
        seconds = time.perf_counter() - start - planner.repeated_s
        writer.finish(metadata, [writer.results(plan, self.values) for plan in plans])
        metadata_bytes = files.sizes.pop(".metadata")
        return PlanCost(
            ranks=len(plans),
            tensors=sum(len(plan.items) for plan in self.plans),
            local_s=statistics.median(self.local_s),
            global_s=seconds,
            plan_bytes=plan_bytes,
            metadata_bytes=metadata_bytes,
            sizes=_by_rank(files.sizes, len(plans), metadata_bytes),
        )


class _FirstRanksPlanner(DefaultSavePlanner):
    """Makes the plan of the first ranks of a job, also where the other ranks hold the rest of each tensor.

    The library refuses such a plan when it is complete, after all the work.

    Attributes:
        repeated_s: seconds in which the plan was made again, because the library had refused it.
    """

    repeated_s = 0.0

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        log = logging.getLogger(default_planner.__name__)
        level = log.level
        log.setLevel(logging.ERROR)  # a warning for each tensor
        try:
            return super().create_global_plan(all_plans)
        except ValueError:
            start = time.perf_counter()
            plans, metadata = create_default_global_save_plan(self._dedup_save_plans(all_plans))
            mappings = dict(ChainMap(*(plan.planner_data for plan in plans)))
            self.repeated_s = time.perf_counter() - start
            return plans, replace(metadata, planner_data=mappings)
        finally:
            log.setLevel(level)


class _ItemData(DefaultSavePlanner):
    """Gives the writer tensors without content, and the values of the ranks."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__()
        self._values = values

    def resolve_data(self, write_item: WriteItem) -> Any:
        if write_item.type == WriteItemType.BYTE_IO:
            return self.transform_object(write_item, self._values[write_item.index.fqn])
        data = write_item.tensor_data
        assert data is not None  # it is a tensor
        return torch.empty(data.chunk.sizes, dtype=data.properties.dtype)  # pages that nobody touches


class _CountingWriter(FileSystemWriter):
    """The real writer, on files that are counted; one thread writes what several would."""

    def __init__(self, directory: Path, files: CountedFiles, options: dict[str, Any]) -> None:
        super().__init__(directory, **{**options, "sync_files": False})
        self.fs = files
        self.transforms = PlainStream()  # type: ignore[assignment]
        self.set_up_storage_writer(is_coordinator=True)

    def results(self, plan: SavePlan, values: dict[str, Any]) -> list[WriteResult]:
        """Entries of all that the rank of a plan would write."""
        threads = self.thread_count
        try:
            with skip_data():  # holds for this thread alone, see _write_data
                return self.write_data(plan, _ItemData(values)).wait()
        finally:
            self.thread_count = threads

    def _write_data(self, planner: Any, file_queue: Any) -> Any:
        self.thread_count = 1  # the files of all threads are in the queue
        return super()._write_data(planner, file_queue)


def _by_rank(sizes: dict[str, int], ranks: int, metadata_bytes: int) -> tuple[tuple[int, ...], ...]:
    """Sizes of the files of each rank; the first one writes the metadata, too."""
    files: dict[int, list[int]] = defaultdict(list)
    for name, size in sizes.items():
        files[int(name.removeprefix("__").partition("_")[0])].append(size)
    files[0].append(metadata_bytes)
    return tuple(tuple(files[rank]) for rank in range(ranks))
