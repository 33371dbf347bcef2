"""Where an elastic run goes on, with other ranks than before."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlio_torch.data.engines.batch_loader import BatchLoader
    from dlio_torch.data.order.pipe_plan import Plan

AfterStep = Callable[[int, int, bool], None]


class Position:
    """An epoch, and how many samples of its order are done; any number of ranks can go on from there.

    All ranks together read the samples of an epoch in an order that does not depend on their number, a global batch
    after the other (``access.partition=batches``).  Ranks go on at the beginning of a global batch of theirs, the one
    with the first sample that is not done: less than a global batch is done again, and none left out.  (Of
    ``access.order=random_blocks`` every batch is drawn anew, by rank and step: there is no such order to keep.)

    Args:
        epoch: from 1.
        samples: of this epoch that are done.
        reached: called after each step with the epoch, its samples that are done, and whether this was the last step.
    """

    def __init__(self, epoch: int, samples: int, reached: AfterStep) -> None:
        self.epoch, self.samples = epoch, samples
        self._reached = reached

    def begin(self, loader: BatchLoader, sampler: Plan, world_size: int) -> tuple[tuple[int, int], AfterStep]:
        """Have the loader begin here.

        Returns:
            The epoch and how many of its steps are done, and what is to be called after each step with the epoch, its
            steps, and whether all are done.
        """
        batch = sampler.batch_size * world_size
        steps = min(self.samples // batch, len(sampler))
        self.samples = steps * batch
        if steps:
            loader.load_state_dict({**loader.state_dict(), "epoch": self.epoch - 1, "step": steps})

        def after_step(epoch: int, step: int, last: bool) -> None:
            self._reached(epoch, step * batch, last)

        return (self.epoch, steps), after_step
