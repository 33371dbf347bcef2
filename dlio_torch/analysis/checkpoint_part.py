"""Builds what ``checkpoints`` of ``summary.json`` says about a training: saves, restore, slowed steps, memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dlio_torch.analysis.checkpoint_figures import checkpoint_figures
from dlio_torch.analysis.rank_steps import RankSteps
from dlio_torch.analysis.save_effects import save_effects
from dlio_torch.checkpoint.save_times import SaveTimes
from dlio_torch.train.result import TrainResult


def checkpoint_part(results: Sequence[TrainResult]) -> dict[str, Any]:
    """Figures of the saves that began in measured steps, of the restore, and of all saves' effects.

    Args:
        results: results of all ranks in their order.

    Returns:
        ``save``, ``restore`` (see :func:`~dlio_torch.analysis.checkpoint_figures.checkpoint_figures`), the parts of
        :func:`~dlio_torch.analysis.save_effects.save_effects`, ``peak_host_bytes``, ``peak_host_why``.
    """
    ranks = [RankSteps(result.steps, 0, result.pauses) for result in results]
    saves = [list(measured_saves(steps, result.saves)) for steps, result in zip(ranks, results, strict=True)]
    restores = [[] if result.restored is None else [result.restored] for result in results]
    return {
        **checkpoint_figures(saves, restores),
        **save_effects(ranks, [result.saves for result in results]),
        **peak_memory([result.save_peak_bytes for result in results], saved=any(result.saves for result in results)),
    }


def measured_saves(steps: RankSteps, saves: Sequence[SaveTimes]) -> Iterator[SaveTimes]:
    """The saves that began within a rank's measured steps."""
    if not steps.train.size:
        return
    first, last = int(steps.train["start_ns"][0]), int(steps.train["start_ns"][-1] + steps.train_duration[-1])
    yield from (times for times in saves if first <= times.start_ns <= last)


def peak_memory(peaks: Sequence[int | None], *, saved: bool) -> dict[str, Any]:
    """Peak memory of saves, on the rank that took most.

    Args:
        peaks: of each rank; ``None``: not known.
        saved: whether a rank saved.
    """
    known = [peak for peak in peaks if peak is not None]
    why = None
    if not known:
        why = (
            "no save raised the memory of the trainer to a new peak, or the system does not tell it"
            if saved
            else "no checkpoint was saved"
        )
    return {"peak_host_bytes": max(known, default=None), "peak_host_why": why}
