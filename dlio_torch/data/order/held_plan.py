"""The plan of batches that are used for several steps before the next one is fetched."""

from __future__ import annotations

from typing import overload

import numpy as np

from dlio_torch.data.order.orders import Indices
from dlio_torch.data.order.pipe_plan import PipePlan, Plan
from dlio_torch.data.order.sampler import BatchSampler


class HeldPlan:
    """Plan each of whose batches serves ``hold`` steps.

    Args:
        plan: the batches that are fetched.
        hold: steps that a batch is used for.
        steps: steps of an epoch, the last batch of which may serve fewer; 0: ``hold`` for each batch.
    """

    def __init__(self, plan: BatchSampler | PipePlan, hold: int, steps: int = 0) -> None:
        self.fetched = plan
        self.hold = hold
        self.batch_size = plan.batch_size
        self.num_samples = plan.num_samples
        self._steps = steps or len(plan) * hold
        if -(-self._steps // hold) != len(plan):
            raise ValueError(
                f"{self._steps} steps need {-(-self._steps // hold)} batches, but the plan has {len(plan)}"
            )

    def __len__(self) -> int:
        return self._steps

    @property
    def share(self) -> range:
        """The range of sample numbers that the rank draws from."""
        return self.fetched.share

    @property
    def epoch_samples(self) -> int:
        """Number of samples that the rank fetches in an epoch, each for several steps."""
        return self.fetched.epoch_samples

    def batch(self, epoch: int, step: int) -> Indices:
        """Sample numbers of the batch that serves ``step``."""
        return self.fetched.batch(epoch, step // self.hold)

    def expected(self, epoch: int, first: int = 0) -> Indices:
        """Numbers of the samples that the steps of ``epoch`` from ``first`` on use, ascending, repeated."""
        begun, used = divmod(first, self.hold)
        samples, counts = np.unique(self.fetched.expected(epoch, begun), return_counts=True)
        counts *= self.hold
        if used:
            np.subtract.at(counts, np.searchsorted(samples, self.fetched.batch(epoch, begun)), used)
        unused = len(self.fetched) * self.hold - self._steps
        if unused:
            np.subtract.at(counts, np.searchsorted(samples, self.batch(epoch, self._steps - 1)), unused)
        return np.repeat(samples, counts)


@overload
def fetched_by(plan: BatchSampler | PipePlan | HeldPlan) -> BatchSampler | PipePlan: ...


@overload
def fetched_by(plan: Plan) -> Plan: ...


def fetched_by(plan: Plan) -> Plan:
    """The plan of the batches that are fetched; each may serve several steps of the given plan."""
    return plan.fetched if isinstance(plan, HeldPlan) else plan
