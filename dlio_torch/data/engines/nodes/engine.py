"""Engine ``nodes``: a rank's batches through torchdata.nodes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

import torchdata.nodes as tn

from dlio_torch.config.schema import LoaderConfig
from dlio_torch.data.dataset.fetched import Fetched
from dlio_torch.data.dataset.map_dataset import CatchingDataset
from dlio_torch.data.engines.nodes.running_nodes import RunningNodes
from dlio_torch.data.engines.registry import worker_limits
from dlio_torch.data.order.pipe_plan import PipePlan
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.pipeline.sample_pipes import EpochBatches
from dlio_torch.data.workers.exits import WorkerLimits
from dlio_torch.data.workers.placement import UNPLACED, Placement
from dlio_torch.data.workers.worker_errors import begin_worker
from dlio_torch.data.workers.worker_process import InWorker, workers_folder

if TYPE_CHECKING:
    from dlio_torch.data.engines.batch_loader import Source


def build(
    config: LoaderConfig,
    source: Source,
    sampler: BatchSampler | PipePlan,
    limits: WorkerLimits,
    placement: Placement = UNPLACED,
) -> NodesEngine:
    """Builds the engine for a rank's batches of sample numbers.

    Args:
        config: the options of ``loader``.
        source: reads a batch of sample numbers.
        sampler: which samples, in which order.
        limits: those that workers may meet.
        placement: CPUs of workers or reader threads.
    """
    assert isinstance(source, CatchingDataset)  # Loading.source() gives this engine no other
    assert isinstance(sampler, BatchSampler)  # and validate() has refused plans of pipes
    return NodesEngine(config, source, sampler, limits, placement)


class NodesEngine:
    """Engine that runs each epoch as a chain of torchdata nodes.

    torchdata starts new threads and processes for each epoch, so each epoch also builds new nodes: the rest of an
    abandoned epoch then takes nothing from the next one.
    """

    def __init__(
        self,
        config: LoaderConfig,
        dataset: CatchingDataset,
        sampler: BatchSampler,
        limits: WorkerLimits | None = None,
        placement: Placement = UNPLACED,
    ) -> None:
        self._placement = placement
        self._config = config
        self._dataset = dataset
        self._batches = EpochBatches(sampler)
        self._running: RunningNodes | None = None
        self._let_go: Callable[[], object]
        self._limits = limits or worker_limits(config)
        self._folder, self._let_go = "", _nothing
        if config.num_workers:
            self._folder, self._let_go = workers_folder(self)

    @property
    def workers(self) -> list[BaseProcess]:
        """The worker processes of the current epoch."""
        return [] if self._running is None else self._running.workers

    @property
    def threads(self) -> list[threading.Thread]:
        """The reader threads of the current epoch."""
        return [] if self._running is None else self._running.readers

    def start(self, epoch: int, step: int) -> Iterator[Fetched]:
        """Start the batches of ``epoch`` from ``step`` on."""
        self._end()
        self._dataset.begin(epoch, step)
        self._batches.begin(epoch, step)
        self._running = RunningNodes(self._chain(), self._config, self._limits, self._placement)
        return self._running

    def close(self) -> None:
        """End threads and processes."""
        self._end()
        self._let_go()

    def _end(self) -> None:
        if self._running is not None:
            self._running.close()
            self._running = None

    def _chain(self) -> Any:
        config, read = self._config, self._dataset.__getitems__
        node: Any = _IndexNode(self._batches)
        if config.num_workers:
            # A DataLoader has prefetch_factor batches under way for each worker; here the mapper holds one
            # for each worker and the rest waits in the prefetcher.
            node = tn.ParallelMapper(
                node,
                InWorker(read, partial(begin_worker, 0, self._folder)),
                num_workers=config.num_workers,
                in_order=config.in_order,
                method="process",
                multiprocessing_context=config.multiprocessing_context,
                max_concurrent=config.num_workers,
            )
            ahead = config.num_workers * (config.prefetched - 1)
        elif config.read_threads:
            concurrent = min(config.read_threads, config.prefetch_batches)
            node = tn.ParallelMapper(
                node, read, num_workers=config.read_threads, in_order=config.in_order, max_concurrent=concurrent
            )
            ahead = config.prefetch_batches - concurrent
        else:
            node, ahead = tn.Mapper(node, read), 0
        if ahead:
            node = tn.Prefetcher(node, ahead)
        return tn.PinMemory(node) if config.pin_memory else node


def _nothing() -> None:
    """Does nothing, since there is nothing to remove."""


class _IndexNode(tn.BaseNode[list[int]]):  # type: ignore[misc]  # torchdata has no types
    """Node that yields the rank's batches of sample numbers."""

    def __init__(self, batches: EpochBatches) -> None:
        super().__init__()
        self._iterator = iter(batches)

    def next(self) -> list[int]:
        return next(self._iterator)

    def get_state(self) -> dict[str, Any]:
        return {}  # the position is BatchLoader's
