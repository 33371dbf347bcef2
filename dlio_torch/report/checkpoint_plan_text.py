"""Console text on the checkpoints of a described job with all its ranks: files, plans, memory and disk space."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from dlio_torch.checkpoint.base import Layout
from dlio_torch.checkpoint.job.ranks import job_ranks
from dlio_torch.checkpoint.job.saved_state import rank_bytes
from dlio_torch.checkpoint.plan_cost import PlanCost
from dlio_torch.checkpoint.rank_kinds import grouped, rank_kinds
from dlio_torch.checkpoint.registry import layout_of
from dlio_torch.config.check import ConfigCheck
from dlio_torch.config.schema import Config
from dlio_torch.units import counted, format_duration, format_size

_MOST_KINDS = 6  # lines of kinds of ranks


def checkpoint_plan_lines(config: Config, peak_bytes: int) -> Iterator[str]:
    """Lines on one checkpoint of the whole job; none if the layout saves no described model.

    Plans are made by the library's own planner, for at most ``checkpoint.planned_ranks`` ranks.

    Args:
        config: the experiment, with its scale applied.
        peak_bytes: most bytes that checkpoints of all ranks of the job take at one time.
    """
    layout = layout_of(config.checkpoint.layout)
    if layout is None or not layout.saves_job(config):
        return
    ranks = job_ranks(config.parallel)
    cost = layout.plan_cost(config)
    yield from _files(config, layout, cost, ranks)
    if cost is not None:
        yield from _plans(cost, ranks)
    yield from _needs(config, layout, ranks, peak_bytes)


def undue_line(config: Config, steps: int, sources: Mapping[str, str]) -> str:
    """Line on a run whose options describe checkpoints, of which none is due: why, and which command saves one.

    Args:
        config: the experiment, with its scale applied.
        steps: steps of an epoch.
        sources: where each value was set.
    """
    check, options = ConfigCheck(config, sources), config.checkpoint
    due = [f"checkpoint.{name}" for name in ("every_steps", "every_epochs") if getattr(options, name)]
    amount = f"{counted(config.train.epochs, 'epoch')} of {counted(steps, 'step')}"
    return (
        f"checkpoints: none is due in {amount} with {' and '.join(map(check.text, due))}; the verb checkpoint saves "
        "one without training: python -m dlio_torch checkpoint, with the same options"
    )


def _files(config: Config, layout: Layout, cost: PlanCost | None, ranks: int) -> Iterator[str]:
    """Lines on kinds of ranks; as planned where all ranks are, else by the layout's own sizes."""
    tensors = ""
    if cost is not None and cost.ranks == ranks:
        kinds = grouped((rank, list(sizes)) for rank, sizes in enumerate(cost.sizes))
    else:
        kinds = rank_kinds(layout, config, ranks)
        tensors = " of tensors, without headers"
    files = sum(len(kind.ranks) * len(kind.sizes) for kind in kinds)
    size = sum(len(kind.ranks) * sum(kind.sizes) for kind in kinds)
    yield f"checkpoint of the job: {counted(ranks, 'rank')}, {counted(files, 'file')}, {format_size(size)}{tensors}"
    # Kinds that differ by headers alone look alike.
    alike: dict[str, int] = defaultdict(int)
    for kind in kinds:
        alike[_file_text(kind.sizes)] += len(kind.ranks)
    lines = [f"{counted(number, 'rank')}: {text}" for text, number in alike.items()]
    yield from (f"  {line}" for line in lines[:_MOST_KINDS])
    if rest := list(alike.values())[_MOST_KINDS:]:
        yield f"  {counted(sum(rest), 'more rank')} of {counted(len(rest), 'other kind')}, which save less"


def _file_text(sizes: Sequence[int]) -> str:
    """Number and size of files, largest first."""
    numbers = Counter(map(format_size, sizes))
    return ", ".join(f"{counted(number, 'file')} of {size}" for size, number in numbers.items()) or "no files"


def _plans(cost: PlanCost, ranks: int) -> Iterator[str]:
    who = "all ranks" if cost.ranks == ranks else f"the first {counted(cost.ranks, 'rank')}"
    yield (
        f"checkpoint plan, measured here for {who}: {format_duration(cost.local_s)} for the plan of a rank, "
        f"{format_duration(cost.global_s)} for the plan of all, {format_size(cost.plan_bytes)} of plans to gather, "
        f"{format_size(cost.metadata_bytes)} of .metadata"
    )
    if cost.ranks < ranks:
        factor = ranks / cost.ranks
        yield (
            f"  estimated for {ranks} ranks, in proportion to their number: {format_duration(factor * cost.global_s)} "
            f"for the plan of all, {format_size(factor * cost.plan_bytes)} of plans, "
            f"{format_size(factor * cost.metadata_bytes)} of .metadata; checkpoint.planned_ranks={ranks} measures them"
        )


def _needs(config: Config, layout: Layout, ranks: int, peak_bytes: int) -> Iterator[str]:
    """Memory of the rank that holds most, and disk space of all ranks."""
    # The first rank of a stage holds as much as any of its ranks.
    first_ranks = range(0, layout.saving_ranks(config, ranks), config.parallel.tensor * config.parallel.data)
    held, largest = max((layout.held_bytes(config, rank), rank) for rank in first_ranks)
    saved = layout.saved_bytes(config, largest)
    state = min(held, max(saved, rank_bytes(config.model, config.parallel, largest)))
    copies = f" and {format_size(held - state)} of copies" if held > state else ""
    yield f"checkpoint memory: up to {format_size(state)} of state{copies} per rank"
    yield f"checkpoint disk space: up to {format_size(peak_bytes)} at a time for {counted(ranks, 'rank')}"
