"""When a recorded training saved: steps and epochs done, and the interval that gives them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dlio_torch.fit.finding import Finding
from dlio_torch.fit.recorded_training import RecordedTraining
from dlio_torch.units import counted


@dataclass(frozen=True)
class SavePoint:
    """Place of a save in the training.

    Attributes:
        steps: training steps done before it.
        epochs: epochs whose steps were all done before it.
        after_epoch: whether the loader had said before that the last of these epochs has no more batches, and no
            batch was fetched since.
    """

    steps: int
    epochs: int
    after_epoch: bool


def save_points(training: RecordedTraining, starts_ns: Sequence[int]) -> list[SavePoint]:
    """Places of saves.

    Args:
        training: with a loader.
        starts_ns: begin of each save.
    """
    recorded = training.training
    assert recorded is not None
    ends = np.sort(recorded.fetches["end_ns"].to_numpy())
    sizes = recorded.fetches.groupby("offset").size().sort_index().to_numpy()
    totals = np.cumsum(sizes)
    closed = [epoch.end_ns for epoch in recorded.epochs if epoch.exhausted and epoch.end_ns is not None]
    points = []
    for start in starts_ns:
        steps = int(np.searchsorted(ends, start, side="right"))
        epochs = int(np.searchsorted(totals, steps, side="right"))
        is_whole = epochs > 0 and int(totals[epochs - 1]) == steps
        points.append(SavePoint(steps, epochs, is_whole and sum(end <= start for end in closed) >= epochs))
    return points


def interval(training: RecordedTraining, points: Sequence[SavePoint]) -> Iterator[Finding]:
    """Options that say when checkpoints are saved.

    Args:
        training: with a loader.
        points: places of all saves, in their order.
    """
    assert training.training is not None
    steps = sorted({point.steps for point in points})
    total = training.training.batches
    regular = [step for step in steps if step]
    if steps[0] == 0:
        yield Finding("checkpoint.before_first", True, "a checkpoint is saved before the first step")
    if all(point.after_epoch for point in points if point.steps) and (every := multiples(_epochs(points))):
        evidence = f"{counted(len(regular), 'checkpoint')} after {_listed(_epochs(points))} epochs"
        yield Finding("checkpoint.every_epochs", every, evidence)
        return
    yield from _by_steps(regular, total)


def _by_steps(steps: Sequence[int], total: int) -> Iterator[Finding]:
    every = multiples(steps) if len(steps) > 1 or (steps and steps[0] < total) else None
    if every is None and len(steps) > 2 and steps[-1] == total:  # regular ones, and one at the end
        every = multiples(steps[:-1])
    if every is not None:
        yield Finding("checkpoint.every_steps", every, f"checkpoints are saved after {_listed(steps)} steps")
    if steps and steps[-1] == total and (every is None or total % every):
        yield Finding("checkpoint.after_last", True, f"a checkpoint is saved after the last step, {total}")
    if every is None and steps and (len(steps) > 1 or steps[-1] != total):
        mean = max(1, round(total / len(steps)))
        evidence = f"mean interval: checkpoints are saved after {_listed(steps)} steps, at no regular interval"
        yield Finding("checkpoint.every_steps", mean, evidence, "assumed")


def _epochs(points: Sequence[SavePoint]) -> list[int]:
    return sorted({point.epochs for point in points if point.steps})


def multiples(numbers: Sequence[int]) -> int | None:
    """The number whose first multiples these are; None if they are none.

    Args:
        numbers: steps or epochs, ascending.
    """
    if not numbers or numbers[0] == 0:
        return None
    first = numbers[0]
    return first if list(numbers) == [first * (i + 1) for i in range(len(numbers))] else None


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:4])) + (", ..." if len(numbers) > 4 else "")
