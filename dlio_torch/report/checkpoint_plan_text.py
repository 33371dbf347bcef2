"""Console text on the checkpoints of a described job with all its ranks: files, plans, memory and disk space."""

from __future__ import annotations

from collections.abc import Iterator

from dlio_torch.checkpoint.base import Layout
from dlio_torch.checkpoint.job.ranks import job_ranks
from dlio_torch.checkpoint.job.saved_state import rank_bytes
from dlio_torch.checkpoint.plan_cost import PlanCost
from dlio_torch.checkpoint.rank_kinds import RankKind, grouped, rank_kinds
from dlio_torch.checkpoint.registry import layout_of
from dlio_torch.config.schema import Config
from dlio_torch.config.schema_model import ParallelConfig
from dlio_torch.units import counted, format_duration, format_size

_MOST_KINDS = 6  # lines of kinds of ranks


def checkpoint_plan_lines(config: Config) -> Iterator[str]:
    """Lines on one checkpoint of the whole job; none if the layout saves no described model.

    Plans are made by the library's own planner, for about ``checkpoint.planned_ranks`` ranks.

    Args:
        config: the experiment, with its scale applied.
    """
    layout = layout_of(config.checkpoint.layout)
    if layout is None or not layout.needs_model:
        return
    ranks = job_ranks(config.parallel)
    cost = layout.plan_cost(config)
    yield from _files(config, layout, cost, ranks)
    if cost is not None:
        yield from _plans(cost, config.parallel)
    yield from _needs(config, layout, ranks)


def _files(config: Config, layout: Layout, cost: PlanCost | None, ranks: int) -> Iterator[str]:
    """Lines on kinds of ranks; as planned where all ranks are, else by the layout's own sizes."""
    if cost is not None and cost.ranks == ranks:
        kinds = grouped((rank, list(sizes)) for rank, sizes in enumerate(cost.sizes))
    else:
        kinds = rank_kinds(layout, config, ranks)
    files = sum(len(kind.ranks) * len(kind.sizes) for kind in kinds)
    size = sum(len(kind.ranks) * sum(kind.sizes) for kind in kinds)
    yield f"checkpoint of the job: {counted(ranks, 'rank')}, {counted(files, 'file')}, {format_size(size)}"
    for kind in kinds[:_MOST_KINDS]:
        yield f"  {_kind(kind)}"
    if rest := kinds[_MOST_KINDS:]:
        smaller = sum(len(kind.ranks) for kind in rest)
        largest = format_size(sum(rest[0].sizes))
        yield f"  {counted(smaller, 'more rank')} in {counted(len(rest), 'kind')}: up to {largest} each"


def _kind(kind: RankKind) -> str:
    numbers = {size: kind.sizes.count(size) for size in kind.sizes}
    files = ", ".join(f"{counted(number, 'file')} of {format_size(size)}" for size, number in numbers.items())
    return f"{counted(len(kind.ranks), 'rank')}: {files or 'no files'}"


def _plans(cost: PlanCost, parallel: ParallelConfig) -> Iterator[str]:
    ranks = job_ranks(parallel)
    yield (
        f"checkpoint plan, measured here for {_planned(cost, parallel)}: {format_duration(cost.local_s)} for the plan "
        f"of a rank, {format_duration(cost.global_s)} for the plan of all, {format_size(cost.plan_bytes)} of plans to "
        f"gather, {format_size(cost.metadata_bytes)} of .metadata"
    )
    if cost.ranks < ranks:
        factor = ranks / cost.ranks
        yield (
            f"  estimated for {ranks} ranks, in proportion to their number: {format_duration(factor * cost.global_s)} "
            f"for the plan of all, {format_size(factor * cost.plan_bytes)} of plans, "
            f"{format_size(factor * cost.metadata_bytes)} of .metadata; checkpoint.planned_ranks={ranks} measures them"
        )


def _planned(cost: PlanCost, parallel: ParallelConfig) -> str:
    """Ranks whose plans were made."""
    if cost.ranks == job_ranks(parallel):
        return counted(cost.ranks, "rank")
    if cost.data < parallel.data:
        smaller = f"data parallelism {cost.data} instead of {parallel.data}"
        return f"{counted(cost.ranks, 'rank')} of one stage of a smaller job ({smaller})"
    return f"the first {cost.ranks} ranks of the job, in whole stages"


def _needs(config: Config, layout: Layout, ranks: int) -> Iterator[str]:
    """Memory of the rank that holds most, and space of a checkpoint with its temporary copies."""
    first_ranks = range(0, ranks, config.parallel.tensor * config.parallel.data)
    held, largest = max((layout.held_bytes(config, rank), rank) for rank in first_ranks)
    state = min(held, rank_bytes(config.model, config.parallel, largest))
    copies = f" and {format_size(held - state)} of copies for saving" if held > state else ""
    yield f"checkpoint memory: up to {format_size(state)} of state{copies} per rank"
    if temporary := layout.temporary_bytes(config, ranks):
        yield f"checkpoint disk space: {format_size(temporary)} of temporary copies besides the files above"
