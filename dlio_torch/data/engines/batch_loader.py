"""Common interface of all engines: ``BatchLoader``.

They deliver the same batches in the same order; what differs is their machinery.  Reader threads are an
option of each: the rank's own process reads ahead, as larcv's queue or TensorFlow's pipelines do.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

import torch

from dlio_torch.config.schema import LoaderConfig
from dlio_torch.data.dataset.fetched import Fetched
from dlio_torch.data.dataset.map_dataset import CatchingDataset
from dlio_torch.data.dataset.transfer_memory import TooManyFiles
from dlio_torch.data.engines import registry
from dlio_torch.data.engines.decoupled.batch_groups import DecoupledSource
from dlio_torch.data.engines.replay import ReplayedBatches
from dlio_torch.data.order.pipe_plan import PipePlan
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.pipeline.stream import PipeStream
from dlio_torch.data.workers.exits import WorkerSignals
from dlio_torch.data.workers.placement import UNPLACED, Placement, ReadingThread
from dlio_torch.data.workers.transfer_errors import drop_frames
from dlio_torch.data.workers.worker_errors import NoBatch, explain
from dlio_torch.errors import DlioError, PreconditionError
from dlio_torch.formats.core.batch import Batch
from dlio_torch.supervision.reader_activity import describe_readers
from dlio_torch.supervision.signals import deferred
from dlio_torch.supervision.thread_states import has_ended
from dlio_torch.supervision.watchdog import NO_WATCHDOG, Watchdog, WatchdogSettings

Source = CatchingDataset | PipeStream | ReplayedBatches | DecoupledSource
"""Sources of a loader: a dataset, a pipe, or batches."""


_GRACE_S = 30.0  # for an engine to end a wait by itself


class Engine(Protocol):
    """Protocol of loader engines, which yield batches or errors in their place."""

    @property
    def workers(self) -> Sequence[BaseProcess]:
        """The worker processes; empty for engines without them."""

    @property
    def threads(self) -> Sequence[ReadingThread]:
        """The reader threads of this process; empty for engines without them."""

    def start(self, epoch: int, step: int) -> Iterator[Fetched]:
        """Start the batches of ``epoch`` from ``step`` on; the rest of the previous epoch is dropped."""

    def close(self) -> None:
        """End workers and threads, even inside a read; a second call does nothing."""


class Batches(Iterator[Batch]):
    """Iterator over the batches of one epoch.

    Iterate as usual, and call :meth:`read_on` after each batch so that reader threads go on; one who does
    not gets the same batches, and the next one is read when it is asked for.

    Attributes:
        steps: steps from the first of these batches to the end of the epoch.
    """

    def __init__(self, loader: BatchLoader, items: Iterator[Fetched], timeout_s: float, steps: int) -> None:
        self.steps = steps
        self._take, self._timeout_s, self._watchdog = loader.take, timeout_s, loader.watchdog
        self._workers, self._limits = loader.workers, loader.limits
        self._next = items.__next__
        #: Let the reader threads start on the next batch; does nothing where others decide that.
        self.read_on: Callable[[], None] = getattr(items, "read_on", _nothing)

    def __next__(self) -> Batch:
        """The next batch.

        Raises:
            DlioError: it could not be read; a worker died; none came within ``loader.timeout_s``.
        """
        watchdog = self._watchdog
        watchdog.wait_number += 1
        watchdog.is_waiting = True
        try:
            return self._take(self._next())
        except (RuntimeError, OSError, EOFError, NoBatch) as error:
            raise explain(error, self._timeout_s, self._workers(), self._limits) from error
        finally:
            watchdog.is_waiting = False


def _nothing() -> None:
    """Does nothing: DataLoader workers and nodes decide themselves when to read."""


class BatchLoader:
    """Loader of one rank's batches, epoch by epoch.

    Args:
        config: the options of ``loader``.
        source: reads a batch of sample numbers; or the pipes that ``sampler`` is the plan of; or the batches
            themselves.
        sampler: which numbers, in which order.
        watchdog: settings for waits for a batch that take long.
        tensors: of a batch.
        placement: CPUs of workers or reader threads.

    Raises:
        PreconditionError: ``loader.pin_memory`` without a GPU.
    """

    def __init__(
        self,
        config: LoaderConfig,
        source: Source,
        sampler: BatchSampler | PipePlan,
        *,
        watchdog: WatchdogSettings = NO_WATCHDOG,
        tensors: int = 1,
        placement: Placement = UNPLACED,
    ) -> None:
        if config.pin_memory and not torch.cuda.is_available():
            raise PreconditionError(
                "loader.pin_memory=true needs a GPU, but torch finds none", hint="set loader.pin_memory=false"
            )
        self._timeout_s = config.timeout_s
        self._sampler, self._read_from = sampler, source
        self._epoch = 0
        self._taken = 0  # batches of this epoch that the trainer has taken
        #: Number of the batch that was taken last (:mod:`dlio_torch.data.dataset.provenance`); -1: none is recorded.
        self.number = -1
        self._resume: tuple[int, int] | None = None
        self._items: Iterator[Fetched] | None = None
        # Engines with threads and workers have a limit of their own: theirs ends the wait and not only the process.
        reads_itself = not registry.facts(config.engine).demand(config).readers
        grace_s = 0.0 if reads_itself else _GRACE_S
        limit_s = config.timeout_s + grace_s if config.timeout_s and watchdog.give_up is not None else 0.0
        # If no Python code runs, those engines cannot end it.
        observer_limit_s = config.timeout_s if watchdog.give_up is not None else 0.0
        settings = replace(watchdog, limit_s=limit_s, observer_limit_s=observer_limit_s)
        self.watchdog = Watchdog(self._awaited, settings, self._check_workers)
        self.limits = registry.worker_limits(config, tensors)
        self._engine: Engine
        if isinstance(source, ReplayedBatches):
            self._engine = source
        else:
            self._engine = registry.create(config, source, sampler, self.limits, placement)

    def __len__(self) -> int:
        """Number of batches in an epoch."""
        return len(self._sampler)

    def epoch(self, number: int) -> Batches:
        """The batches of epoch ``number``; after :meth:`load_state_dict`, the batches from the saved position on.

        Raises:
            PreconditionError: the workers cannot be started.
        """
        step = self._resume[1] if self._resume is not None and self._resume[0] == number else 0
        self._resume = None
        if self._items is None or not self._goes_on(number, step):
            with deferred():
                try:
                    self._items = self._engine.start(number, step)
                except (OSError, RuntimeError, EOFError, DlioError) as error:
                    drop_frames(error)  # where torch's iterator is half made
                    raise explain(error, self._timeout_s, self.workers(), self.limits, starting=True) from None
            self.watchdog.start()  # after workers were forked, which need none of its threads
        self._epoch, self._taken = number, step
        return Batches(self, self._items, self._timeout_s, len(self._sampler) - step)

    def _goes_on(self, epoch: int, step: int) -> bool:
        """Whether the position is the next position of an endless pipe, which needs no restart then."""
        if not (isinstance(self._sampler, PipePlan) and self._sampler.endless):
            return False
        steps = len(self._sampler)
        return epoch * steps + step == self._epoch * steps + self._taken

    def workers(self) -> Sequence[BaseProcess]:
        """The worker processes that read batches; empty if there are none."""
        return self._engine.workers

    def threads(self) -> Sequence[ReadingThread]:
        """The threads of this process that read batches; empty if there are none."""
        return self._engine.threads

    def _check_workers(self) -> None:
        """Check workers for unexpected exits; called by the watchdog's thread during a wait for a batch."""
        workers = self.workers()
        if any(has_ended(worker.pid) for worker in workers):
            WorkerSignals.check(workers)

    def _awaited(self) -> tuple[str, str]:
        return f"the batch of step {self._taken + 1} of epoch {self._epoch + 1}", describe_readers(self.workers())

    def take(self, item: Fetched) -> Batch:
        """Count a batch as taken and return it, or raise the error in its place."""
        if isinstance(item.error, TooManyFiles):  # a worker does not know how many are needed
            raise self.limits.files.error()
        batch = item.opened()
        self._taken += 1
        self.number = item.number
        return batch

    def state_dict(self) -> dict[str, Any]:
        """The position of the trainer; batches that were read ahead do not count as taken.

        With ``loader.in_order=false`` it says how many were taken, not which.
        """
        return {**self._sampler.state_dict(), "epoch": self._epoch, "step": self._taken}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume at a saved position: the next call of ``epoch`` for that epoch begins with the next batch.

        Raises:
            ConfigError: the state belongs to another data set, order or number of ranks.
        """
        copy.copy(self._sampler).load_state_dict(state)  # a copy: it is asked whether the state is its own
        self._resume = (int(state["epoch"]), int(state["step"]))

    def begin_at(self, epoch: int, step: int) -> None:
        """Make the next epoch of this number (from 0) begin after its first ``step`` steps."""
        self.load_state_dict({**self.state_dict(), "epoch": epoch, "step": step})

    def close(self) -> None:
        """End workers and threads."""
        self.watchdog.stop()
        with deferred():
            self._engine.close()
            if isinstance(self._read_from, CatchingDataset):
                self._read_from.close()
