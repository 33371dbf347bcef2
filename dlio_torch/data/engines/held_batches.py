"""Batches that are used for several steps before the next one is fetched.

FFN moves its field of view over a patch: some steps of training from one read.  The steps in between ask
the loader for nothing.
"""

from __future__ import annotations

from typing import overload

import numpy as np

from dlio_torch.config.schema import LoaderConfig
from dlio_torch.data.engines.batch_loader import Batches, BatchLoader, Source
from dlio_torch.data.order.orders import Indices
from dlio_torch.data.order.pipe_plan import PipePlan, Plan
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.environment.vigil import NO_WATCH, Watch
from dlio_torch.formats.core.batch import Batch


class HeldPlan:
    """A plan whose batches serve ``hold`` steps each.

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
            raise ValueError(f"{self._steps} steps need {-(-self._steps // hold)} batches, there are {len(plan)}")

    def __len__(self) -> int:
        return self._steps

    @property
    def share(self) -> range:
        """The range of sample numbers that the rank draws from."""
        return self.fetched.share

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
    """The batches that are fetched for a plan, each of which may serve several steps."""
    return plan.fetched if isinstance(plan, HeldPlan) else plan


class HeldBatches(Batches):
    """The batches of one epoch, each given ``hold`` times; the last one for the steps that remain.

    Args:
        batches: what is fetched.
        hold: steps that a batch is used for.
        steps: steps of the epoch that are still to be done.
        used: steps that the first batch has served before.
    """

    def __init__(self, batches: Batches, hold: int, steps: int, used: int = 0) -> None:
        self._batches = batches
        self._hold = hold
        self._steps = steps
        self._used = used
        self._again = 0  # steps that the batch of before still serves
        self._batch: Batch | None = None
        self.read_on = batches.read_on

    def __next__(self) -> Batch:
        """The batch of the next step.

        Raises:
            DlioError: it could not be read; see :class:`Batches`.
        """
        if self._steps <= 0:
            raise StopIteration
        if self._batch is None or not self._again:
            self._batch = None  # its memory is free while the next one is read
            self._batch, self._again = next(self._batches), self._hold - self._used
            self._used = 0
        self._again -= 1
        self._steps -= 1
        return self._batch


class HeldLoader(BatchLoader):
    """A loader that fetches a batch for every ``hold`` steps.

    Its position, in ``state_dict``, counts fetched batches.

    Args:
        config: the options of ``loader``.
        source: see :class:`BatchLoader`.
        plan: the batches and how long each is held.
        watch: see :class:`BatchLoader`.
    """

    def __init__(
        self, config: LoaderConfig, source: Source, plan: HeldPlan, *, watch: Watch = NO_WATCH, tensors: int = 1
    ) -> None:
        super().__init__(config, source, plan.fetched, watch=watch, tensors=tensors)
        self._plan = plan
        self._used = 0

    def __len__(self) -> int:
        """Steps of an epoch."""
        return len(self._plan)

    def epoch(self, number: int) -> HeldBatches:
        """The steps of epoch ``number``."""
        batches = super().epoch(number)
        hold, used, self._used = self._plan.hold, self._used, 0
        return HeldBatches(batches, hold, len(self._plan) - self._taken * hold - used, used)

    def begin_at(self, epoch: int, step: int) -> None:
        """See :class:`BatchLoader`; a batch that was held for a part of its steps is fetched again for the others."""
        fetched, self._used = divmod(step, self._plan.hold)
        super().begin_at(epoch, fetched)
