"""Position from which an elastic run continues with another number of ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlio_torch.data.engines.batch_loader import BatchLoader
    from dlio_torch.data.order.pipe_plan import Plan

AfterStep = Callable[[int, int, bool], None]


class ElasticPosition:
    """An epoch and the number of its samples that are done; any number of ranks can continue from this position.

    All ranks together read the samples of an epoch in an order that does not depend on their number, one global batch
    after the other (``access.partition=batches``).  New ranks begin with the global batch that holds the first sample
    that is not done.  They repeat less than one global batch, and leave no sample out.  With
    ``access.order=random_blocks`` each rank draws new batches at each step, so there is no order to keep.

    Args:
        epoch: from 1.
        samples: samples of this epoch that are done.
        reached: called after each step with the epoch, its samples that are done, and whether this was the last step.
    """

    def __init__(self, epoch: int, samples: int, reached: AfterStep) -> None:
        self.epoch, self.samples = epoch, samples
        self._reached = reached

    def begin(self, loader: BatchLoader, sampler: Plan, world_size: int) -> tuple[tuple[int, int], AfterStep]:
        """Move the loader to this position.

        Returns:
            The epoch and its steps that are done, and a function to call after each step with the epoch, its steps, and
            whether all are done.
        """
        batch = sampler.batch_size * world_size
        steps = min(self.samples // batch, len(sampler))
        self.samples = steps * batch
        if steps:
            loader.load_state_dict({**loader.state_dict(), "epoch": self.epoch - 1, "step": steps})

        def after_step(epoch: int, step: int, last: bool) -> None:
            self._reached(epoch, step * batch, last)

        return (self.epoch, steps), after_step
