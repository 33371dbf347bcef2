"""Checkpoints at any number of ranks: bytes of each rank, the cost of planning, and the time on a described storage.

A save ends when the bytes of all ranks are durable::

    plan_s     the plan of a rank and the plan of all ranks, as measured on this machine
    gather_s   plans of all ranks on the network link of the coordinator, to it and back
    write_s    all ranks that save write at once
    fsync_s    one more request for each file of the rank that has most, if files are flushed
    stall_s    the whole of it, or of a save in the background the measured stall, in proportion to the bytes of the
               largest rank, which are copied meanwhile
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dlio_torch.checkpoint.plan_cost import PlanCost
from dlio_torch.checkpoint.rank_kinds import rank_kinds
from dlio_torch.checkpoint.registry import layout_of
from dlio_torch.config.schema import Config
from dlio_torch.config.schema_model import ParallelConfig
from dlio_torch.config.schema_run import SystemConfig
from dlio_torch.prediction.cluster import Cluster


@dataclass(frozen=True)
class JobSaves:
    """Checkpoints of a described job.

    Attributes:
        config: the experiment of the measured run.
        cost: of planning, measured on this machine; None: the layout needs no plans.
    """

    config: Config
    cost: PlanCost | None

    def files(self, ranks: int) -> list[list[int]]:
        """Sizes of the files of each rank that saves, bytes, with ``ranks`` ranks."""
        config = replace(self.config, parallel=grown(self.config.parallel, ranks))
        layout = layout_of(config.checkpoint.layout)
        assert layout is not None, "a run that saves has a layout"
        kinds = rank_kinds(layout, config, min(ranks, config.parallel.world_size))
        sizes = {rank: list(kind.sizes) for kind in kinds for rank in kind.ranks}
        return [sizes[rank] for rank in sorted(sizes)]


@dataclass(frozen=True)
class Checkpoint:
    """Size and interval of checkpoints.

    Attributes:
        bytes: of one checkpoint of one rank that saves.
        every_steps: steps from one to the next; 0: by epochs alone.
        every_epochs: epochs from one to the next; 0: by steps alone.
        all_ranks: whether every rank saves, or the first alone.
        job: the described job whose ranks save amounts of their own; None: all save as many bytes.
        flushed: whether files are flushed to the device.
        cached: whether only the first save is planned by all ranks.
        stall_s: measured time in which training stands still for a save in the background; None: until it is durable.
    """

    bytes: float
    every_steps: int
    every_epochs: int
    all_ranks: bool
    job: JobSaves | None = None
    flushed: bool = False
    cached: bool = False
    stall_s: float | None = None

    @property
    def plans(self) -> PlanCost | None:
        """Cost of the plan of all ranks; None: they need none."""
        return None if self.job is None else self.job.cost

    def files(self, ranks: int) -> list[list[float]]:
        """Sizes of the files of each rank that saves, bytes, with ``ranks`` ranks."""
        if self.job is not None:
            return [[float(size) for size in sizes] for sizes in self.job.files(ranks)]
        return [[self.bytes]] * (ranks if self.all_ranks else 1)


@dataclass(frozen=True)
class PredictedSave:
    """One checkpoint at one number of ranks; times as in the module's text.

    Attributes:
        ranks: that save.
        bytes: of all of them.
        largest_bytes: of the rank that saves most.
    """

    ranks: int
    bytes: float
    largest_bytes: float
    plan_s: float
    gather_s: float
    write_s: float
    fsync_s: float
    stall_s: float | None = None

    @property
    def seconds(self) -> float:
        """Time until the checkpoint is durable."""
        return self.plan_s + self.gather_s + self.write_s + self.fsync_s

    def paused_s(self, between_s: float) -> float:
        """Time in which training stands still; a save waits for the one before.

        Args:
            between_s: training time from one save to the next.
        """
        return self.seconds if self.stall_s is None else max(self.stall_s, self.seconds - between_s)


def checkpoint_of(config: Config, summary: Mapping[str, Any]) -> Checkpoint | None:
    """Checkpoints of a finished run; None if it saved none, or not in intervals.

    Args:
        config: its resolved configuration.
        summary: content of its ``summary.json``.
    """
    saved, options = summary["saved"], config.checkpoint
    layout = layout_of(options.layout)
    if layout is None or not (options.every_steps or options.every_epochs) or not saved["checkpoints"]:
        return None
    job = None
    if layout.saves_job(config):
        job = JobSaves(config, layout.plan_cost(config))
    return Checkpoint(
        bytes=saved["bytes"] / saved["checkpoints"],
        every_steps=options.every_steps,
        every_epochs=options.every_epochs,
        all_ranks=layout.saving_ranks(config, 2) > 1,
        job=job,
        flushed=layout.flushes(config),
        cached=options.plan_cache,
        stall_s=None if options.async_save == "none" else _stall_s(summary["checkpoints"]),
    )


def _stall_s(measured: Mapping[str, Any]) -> float:
    """Mean time in which a save kept the training from its next step; 0 where no save was in a measured step."""
    times = (measured.get("save") or {}).get("stall_s") or measured.get("duration_s") or {}
    return float(times.get("mean", 0.0))


def predicted_save(saved: Checkpoint, system: SystemConfig, ranks: int, seed: int) -> PredictedSave:
    """Predicts one checkpoint that all ranks begin at once.

    Args:
        saved: the checkpoints.
        system: what the ranks are to run on.
        ranks: number of ranks.
        seed: of the places that files go to.
    """
    from dlio_torch.prediction.synchronous_phases import checkpoint_s

    files = saved.files(ranks)
    sizes = [sum(sizes) for sizes in files]
    # Files of checkpoints are spread over the targets by their own size, not by that of the data.
    largest = max((size for sizes in files for size in sizes), default=0.0)
    cluster = Cluster(system, ranks=ranks, files=1, file_bytes=largest, request_bytes=0, seed=seed)
    cost = saved.plans
    share = 0.0 if cost is None or saved.cached else len(files) / cost.ranks
    rate = system.network_bytes_per_s
    return PredictedSave(
        ranks=len(files),
        bytes=sum(sizes),
        largest_bytes=max(sizes),
        plan_s=0.0 if cost is None else cost.local_s + share * cost.global_s,
        gather_s=2 * share * cost.plan_bytes / rate if cost is not None and rate else 0.0,
        write_s=checkpoint_s(cluster, sizes),
        fsync_s=max(map(len, files)) * system.request_latency_s if saved.flushed else 0.0,
        stall_s=None if saved.stall_s is None else saved.stall_s * max(sizes) / saved.bytes,
    )


def grown(parallel: ParallelConfig, ranks: int) -> ParallelConfig:
    """The job with as much data parallelism as ``ranks`` ranks permit; at least as much as it has.

    Args:
        parallel: ranks of the described job.
        ranks: number of ranks to predict.
    """
    unit = parallel.fsdp_ranks if parallel.fsdp == "hybrid" else parallel.expert
    data = ranks // (parallel.tensor * parallel.pipeline) // unit * unit
    return replace(parallel, data=max(data, parallel.data))
