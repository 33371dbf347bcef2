"""Plan of the verb ``checkpoint``: what it saves, keeps and reads back, and whether this machine can do it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dlio_torch.checkpoint.base import Layout
from dlio_torch.checkpoint.registry import layout_of
from dlio_torch.config.check import ConfigCheck
from dlio_torch.config.compose import Composed
from dlio_torch.config.schema import Config
from dlio_torch.config.validate_checkpoints import check_saving_ranks
from dlio_torch.errors import PreconditionError
from dlio_torch.preflight.checkpoint_space import (
    checkpoint_location,
    checkpoint_root_problem,
    peak_bytes_of,
    space_problem,
)
from dlio_torch.report.checkpoint_plan_text import checkpoint_plan_lines
from dlio_torch.report.job_text import job_lines
from dlio_torch.report.scale_text import scale_line
from dlio_torch.units import counted, format_size

_SOURCE = "the verb checkpoint"


@dataclass(frozen=True)
class CheckpointPlan:
    """Saves and loads of the verb ``checkpoint``.

    Attributes:
        composed: the configuration as it is carried out: each save flushes, and ``checkpoint.keep`` has its value.
        saves: number of saves; their steps are 1, 2 and so on.
        loads: number of times that a checkpoint is read.
        world_size: number of ranks.
        sizes: bytes of a checkpoint of each rank that saves.
        kept: steps of the checkpoints that are whole after the last save.
    """

    composed: Composed
    saves: int
    loads: int
    world_size: int
    sizes: tuple[int, ...]
    kept: tuple[int, ...]

    @property
    def config(self) -> Config:
        """The configuration as it is carried out."""
        return self.composed.config

    @property
    def loaded(self) -> list[int]:
        """Steps of the checkpoints that are read, in their order: the kept ones in turn."""
        return [self.kept[number % len(self.kept)] for number in range(self.loads)]

    def problems(self, ranks: tuple[int, ...] = (0,)) -> Iterator[PreconditionError]:
        """Yields the reasons for which this machine cannot save the checkpoints; nothing is written.

        Args:
            ranks: numbers of the ranks of this node; space and folder are checked for all ranks.
        """
        from dlio_torch.preflight.feasibility import NodeRanks, checkpoint_memory_problem  # imports torch

        config, sources = self.config, self.composed.sources
        memory = checkpoint_memory_problem(config, sources, NodeRanks(ranks, self.world_size))
        root = checkpoint_root_problem(config, sources)
        saved = f"{counted(self.saves, 'checkpoint')} of {format_size(sum(self.sizes))}"
        space = space_problem(config, saved, config.checkpoint.keep, self._peak_bytes)
        yield from (problem for problem in (root, memory, space) if problem is not None)

    @property
    def _peak_bytes(self) -> int:
        return peak_bytes_of(self.config, self.saves, self.world_size)

    def lines(self) -> Iterator[str]:
        """Yields the plan, line by line."""
        composed, config = self.composed, self.config
        yield from composed.remarks
        if composed.notes:
            yield scale_line(config.scale.name, composed.notes)
        yield from job_lines(config, self.world_size)
        yield from self.amounts()
        if config.model.described:
            peak = peak_bytes_of(config, self.saves, config.parallel.world_size)
            yield from checkpoint_plan_lines(config, peak)

    def amounts(self) -> Iterator[str]:
        """Yields the lines on saves, kept checkpoints and loads."""
        ranks = counted(len(self.sizes), "rank")
        parts = f" (at most {format_size(max(self.sizes))} a rank)" if len(self.sizes) > 1 else ""
        yield (
            f"saves: {self.saves} of {format_size(sum(self.sizes))} by {ranks}{parts}, layout "
            f"{self.config.checkpoint.layout}, each flushed to the device"
        )
        yield (
            f"kept: {len(self.kept)} at a time, up to {format_size(self._peak_bytes)} of disk space in "
            f"{checkpoint_location(self.config)}"
        )
        if self.loads:
            which = "the checkpoint that is kept" if len(self.kept) == 1 else "the kept checkpoints in turn"
            yield f"loads: {self.loads} by {ranks}, of {which}, each dropped from the page cache before"


def plan_checkpoints(composed: Composed, saves: int, loads: int, world_size: int) -> CheckpointPlan:
    """Plans saves and loads without training.

    Args:
        composed: the configuration that the command line describes.
        saves: number of saves, at least 1.
        loads: number of loads.
        world_size: number of ranks.

    Raises:
        ConfigError: the recipe has no checkpoints, or the job that it describes has fewer ranks.
    """
    check = ConfigCheck(composed.config, composed.sources)
    layout = layout_of(composed.config.checkpoint.layout)
    if layout is None:
        check.fail(
            ["checkpoint.layout"],
            f"the recipe {composed.config.recipe} describes no checkpoints, so there is nothing to save",
            "set checkpoint=torch_save checkpoint.state_bytes=1GB, or another checkpoint of `ls checkpoint`",
        )
    assert layout is not None  # fail raises
    check_saving_ranks(composed.config, world_size, check.fail)
    whole = 1 if layout.replaced_bytes(composed.config) else saves  # checkpoints that share a file: the newest is whole
    carried_out = _carried_out(composed, min(whole, loads))
    keep = carried_out.config.checkpoint.keep
    kept = min(whole, keep) if keep else whole
    sizes = _sizes(carried_out.config, layout, world_size)
    return CheckpointPlan(carried_out, saves, loads, world_size, sizes, tuple(range(saves - kept + 1, saves + 1)))


def _sizes(config: Config, layout: Layout, world_size: int) -> tuple[int, ...]:
    return tuple(layout.saved_bytes(config, rank) for rank in range(layout.saving_ranks(config, world_size)))


def _carried_out(composed: Composed, needed: int) -> Composed:
    """The configuration with a flush in each save, and with ``needed`` checkpoints kept unless a number is given."""
    changes: dict[str, object] = {"fsync": True, "before_first": False, "restore": False}
    if composed.sources.get("checkpoint.keep", "default") == "default":
        changes["keep"] = max(1, needed)
    options = composed.config.checkpoint
    changed = {name: value for name, value in changes.items() if getattr(options, name) != value}
    sources = composed.sources | {f"checkpoint.{name}": _SOURCE for name in changed}
    config = replace(composed.config, checkpoint=replace(options, **changed))  # type: ignore[arg-type]
    return replace(composed, config=config, sources=sources)
