"""Batches that are used for several steps before the next one is fetched.

FFN moves its field of view over a patch: some steps of training from one read.  The steps in between ask
the loader for nothing.
"""

from __future__ import annotations

from dlio_torch.config.schema import LoaderConfig
from dlio_torch.data.engines.batch_loader import Batches, BatchLoader, Source
from dlio_torch.data.order.held_plan import HeldPlan
from dlio_torch.data.workers.placement import UNPLACED, Placement
from dlio_torch.formats.core.batch import Batch
from dlio_torch.supervision.watchdog import NO_WATCHDOG, WatchdogSettings


class HeldBatches(Batches):
    """Batches of one epoch, each delivered ``hold`` times, the last one for the remaining steps.

    Args:
        batches: what is fetched.
        hold: steps that a batch is used for.
        steps: steps of the epoch that are still to be done.
        used: steps that the first batch has served before.
    """

    def __init__(self, batches: Batches, hold: int, steps: int, used: int = 0) -> None:
        self._batches = batches
        self._hold = hold
        self.steps = steps
        self._left = steps
        self._used = used
        self._again = 0  # steps that the batch of before still serves
        self._batch: Batch | None = None
        self.read_on = batches.read_on

    def __next__(self) -> Batch:
        """The batch of the next step.

        Raises:
            DlioError: it could not be read; see :class:`Batches`.
        """
        if self._left <= 0:
            raise StopIteration
        if self._batch is None or not self._again:
            self._batch = None  # its memory is free while the next one is read
            self._batch, self._again = next(self._batches), self._hold - self._used
            self._used = 0
        self._again -= 1
        self._left -= 1
        return self._batch


class HeldLoader(BatchLoader):
    """Loader that fetches one batch for every ``hold`` steps.

    Its position, in ``state_dict``, counts fetched batches.

    Args:
        config: the options of ``loader``.
        source: see :class:`BatchLoader`.
        plan: the batches and how long each is held.
        watchdog: see :class:`BatchLoader`.
        tensors: see :class:`BatchLoader`.
        placement: see :class:`BatchLoader`.
    """

    def __init__(
        self,
        config: LoaderConfig,
        source: Source,
        plan: HeldPlan,
        *,
        watchdog: WatchdogSettings = NO_WATCHDOG,
        tensors: int = 1,
        placement: Placement = UNPLACED,
    ) -> None:
        super().__init__(config, source, plan.fetched, watchdog=watchdog, tensors=tensors, placement=placement)
        self._plan = plan
        self._used = 0

    def __len__(self) -> int:
        """Number of steps in an epoch."""
        return len(self._plan)

    def epoch(self, number: int) -> HeldBatches:
        """The steps of epoch ``number``."""
        batches = super().epoch(number)
        hold, used, self._used = self._plan.hold, self._used, 0
        return HeldBatches(batches, hold, len(self._plan) - self._taken * hold - used, used)

    def begin_at(self, epoch: int, step: int) -> None:
        """Same as in :class:`BatchLoader`; a batch used for only a part of its steps is fetched again for the rest."""
        fetched, self._used = divmod(step, self._plan.hold)
        super().begin_at(epoch, fetched)
