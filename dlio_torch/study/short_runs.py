"""Warns of runs that are too short for a rate: all measured steps may use batches which were read before them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dlio_torch.config.schema import Config
from dlio_torch.data.engines.registry import facts
from dlio_torch.units import counted

_MOST_NAMED = 3


@dataclass(frozen=True)
class ShortRun:
    """A point whose runs measure no more steps than the loader reads ahead.

    Attributes:
        label: of the point.
        measured_steps: steps of a run without its warm-up.
        batches_ahead: batches that the loader reads ahead of the trainer.
    """

    label: str
    measured_steps: int
    batches_ahead: int


def short_run(label: str, config: Config, epoch_steps: int, batch_bytes: float) -> ShortRun | None:
    """Returns the point if its runs are too short; ``None``: they are long enough.

    Args:
        label: of the point.
        config: of its runs.
        epoch_steps: steps of an epoch on one rank.
        batch_bytes: bytes of a batch in memory.
    """
    ahead = batches_ahead(config, batch_bytes)
    measured = max(0, epoch_steps * config.train.epochs - config.train.warmup_steps)
    is_short = measured <= ahead * config.access.hold_steps
    return ShortRun(label, measured, ahead) if is_short and ahead else None


def batches_ahead(config: Config, batch_bytes: float) -> int:
    """Batches that a loader reads ahead of the trainer.

    Args:
        config: of the run.
        batch_bytes: bytes of a batch in memory.
    """
    return facts(config.loader.engine).demand(config.loader).window(batch_bytes)


def short_run_lines(runs: Sequence[ShortRun]) -> Iterator[str]:
    """Warnings, one for each number of steps and batches ahead."""
    groups: dict[tuple[int, int], list[str]] = {}
    for run in runs:
        groups.setdefault((run.measured_steps, run.batches_ahead), []).append(run.label)
    for (measured, ahead), labels in groups.items():
        more = f" and {len(labels) - _MOST_NAMED} more" if len(labels) > _MOST_NAMED else ""
        yield (
            f"warning: {'; '.join(labels[:_MOST_NAMED])}{more}: {counted(measured, 'measured step')} with "
            f"{counted(ahead, 'batch', 'batches')} read ahead: the rate may be that of batches which were read before "
            "these steps; raise train.epochs, or use more data"
        )
