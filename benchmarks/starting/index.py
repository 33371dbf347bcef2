"""Measures the index of a rank (its samples, their files and order): bytes and seconds."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.own.index import memory
from dlio_torch.config.schema import Config
from dlio_torch.data.dataset.manifest import generated_manifests
from dlio_torch.data.order.held_plan import HeldPlan
from dlio_torch.data.order.pipe_plan import PipePlan
from dlio_torch.data.order.planning import train_sampler
from dlio_torch.formats.core.format import Format


def index(config: Config, fmt: Format, rank: int, world_size: int) -> Any:
    """The manifest and plan of a rank, with its first epoch begun: the first batch of sample numbers was taken."""
    manifest = generated_manifests(config, fmt)["train"]
    plan = train_sampler(config, manifest, rank, world_size, fmt)
    plan = plan.fetched if isinstance(plan, HeldPlan) else plan
    if isinstance(plan, PipePlan):
        # A part of it, as a worker has: pipes know their files, and lengths are asked for where batches are dealt.
        batches = plan.part_batches(0, 0)
        next(batches)
        return manifest, plan, plan.part_lengths(0), batches
    order = iter(plan)
    next(order)
    return manifest, plan, order


def index_of(config: Config, fmt: Format, rank: int, world_size: int) -> dict[str, Any]:
    """Seconds, bytes kept, and peak bytes of the index."""
    began = time.perf_counter()
    index(config, fmt, rank, world_size)
    seconds = time.perf_counter() - began
    kept, peak = memory(lambda: index(config, fmt, rank, world_size))
    return {"index_s": seconds, "index_bytes": kept, "index_peak_bytes": peak}
