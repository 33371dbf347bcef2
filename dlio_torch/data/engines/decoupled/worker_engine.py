"""Decoupled engine with worker processes, which make batches in shared memory.

Of batches of sample numbers each makes every n-th group; of a plan in parts, which read their files in an order of
their own, each makes one part, and the trainer takes a batch of each in turn, as from torch's workers.

torch's DataLoader starts and ends the workers.  What they say goes through a ring in shared memory, and the bytes stay
where they were read.  How far a worker may run ahead is counted up to the trainer: what is made and not taken yet is
ahead.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from multiprocessing.process import BaseProcess
from typing import Any

from dlio_torch import native
from dlio_torch.config.schema import LoaderConfig
from dlio_torch.data.dataset.fetched import Fetched
from dlio_torch.data.engines.decoupled.batch_groups import DecoupledSource
from dlio_torch.data.engines.decoupled.reading_io import open_reading_mover
from dlio_torch.data.engines.decoupled.shared_memory import SharedMemory
from dlio_torch.data.engines.decoupled.switch_interval import SHORT
from dlio_torch.data.engines.decoupled.transfer import Inbox
from dlio_torch.data.engines.decoupled.worker_arrivals import Arrivals
from dlio_torch.data.engines.decoupled.worker_groups import WorkerGroups
from dlio_torch.data.engines.registry import worker_limits
from dlio_torch.data.engines.torch_loader.engine import DataLoaderEngine, over_iterable
from dlio_torch.data.order.lanes_plan import LanesPlan
from dlio_torch.data.order.pipe_plan import PipePlan, round_robin
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.workers.exits import WorkerLimits
from dlio_torch.data.workers.placement import UNPLACED, Placement


class WorkersEngine:
    """Engine whose worker processes fill blocks of shared memory.

    Args:
        config: the options of ``loader``.
        source: what is read.
        sampler: which samples, in which order; a plan has a part for each worker.
        limits: those that workers may meet; ``None``: of ``config``.
        placement: CPUs of the workers, reader threads included.
    """

    def __init__(
        self,
        config: LoaderConfig,
        source: DecoupledSource,
        sampler: BatchSampler | PipePlan,
        limits: WorkerLimits | None = None,
        placement: Placement = UNPLACED,
    ) -> None:
        self._limits = limits = limits or worker_limits(config)
        self._plan = sampler if isinstance(sampler, PipePlan) and config.in_order else None
        # Compiled, where it must be, before all workers want it.
        open_reading_mover(config, direct=source.fmt.config.direct_io)
        with suppress(native.NativeUnavailable):
            for name in ("read_core", "decode_chunk"):
                native.open_library(name)
        self._shared = SharedMemory(config.num_workers)
        self._regions = [self._shared.region(worker) for worker in range(config.num_workers)]
        self._inboxes = [Inbox(region, pinned=config.pin_memory) for region in self._regions]
        self._groups = WorkerGroups(config, source, sampler, self._shared)
        # The DataLoader carries nothing but the end of a run.
        options = replace(config, read_threads=0, prefetch_factor=2, pin_memory=False)
        specs = source.fmt.specs()
        self._specs = sampler.cut(specs) if isinstance(sampler, LanesPlan) else specs
        self._timeout_s, self._in_order = config.timeout_s, config.in_order
        groups = over_iterable(options, self._groups)
        self._loaders = DataLoaderEngine(options, self._begin, [groups], limits=limits, placement=placement)

    @property
    def blocks_made(self) -> int:
        """Number of blocks that all workers have allocated so far."""
        return sum(region.allocated for region in self._regions)

    @property
    def workers(self) -> list[BaseProcess]:
        """The worker processes."""
        return self._loaders.workers

    @property
    def threads(self) -> list[threading.Thread]:
        """Empty, because the threads of workers read."""
        return []

    def start(self, epoch: int, step: int) -> Iterator[Fetched]:
        """Start the batches of ``epoch`` from ``step`` on."""
        self._stop()
        order = None if self._plan is None else round_robin(self._plan.left(epoch, step))
        with SHORT.during(self):  # the DataLoader's threads take turns with this one
            source = self._loaders.start(epoch, step)
        SHORT.begin(self)
        arrivals = Arrivals(
            self._shared, self._regions, self._groups.run, lambda: self.workers, self._timeout_s, self._limits
        )
        return _Items(arrivals, source, self, self._groups.run, order, in_order=self._in_order)

    def receive(self, worker: int) -> list[Fetched]:
        """Receives a group that a worker has published; raises the error of the worker."""
        received = self._inboxes[worker].receive(self._specs)
        if isinstance(received, BaseException):
            raise received
        return received

    def took(self, worker: int, run: int) -> None:
        """Record that the trainer has taken all batches of a group of ``worker``."""
        if run == self._groups.run:
            self._regions[worker].taken += 1
            self._shared.wake(worker)

    def finish(self) -> None:
        """Record that the trainer has got all batches of the epoch."""
        SHORT.end(self)

    def close(self) -> None:
        """End the workers; memory that batches refer to stays valid."""
        self._stop()
        self._loaders.close()
        for inbox in self._inboxes:
            inbox.close()
        self._shared.close()

    def __del__(self) -> None:
        SHORT.end(self)

    def _begin(self, epoch: int, step: int) -> None:
        self._groups.run += 1
        for region in self._regions:
            region.epoch, region.step, region.taken, region.alive = epoch, step, 0, self._groups.run

    def _stop(self) -> None:
        """End the current run of each worker, so that waiting threads finish."""
        SHORT.end(self)
        for worker, region in enumerate(self._regions):
            region.alive = self._groups.run + 1
            self._shared.wake(worker)


class _Items(Iterator[Fetched]):
    """Iterator over the batches of one epoch as they come from the workers.

    Args:
        arrivals: says which worker has published a group.
        source: the DataLoader's items, of which there are none: it ends with the workers.
        engine: opens groups.
        run: number of the run.
        order: the worker that each batch is taken from; ``None``: that of the group that has come.
        in_order: groups are taken from each worker in turn; else as they come.
    """

    def __init__(
        self,
        arrivals: Arrivals,
        source: Iterator[Any],
        engine: WorkersEngine,
        run: int,
        order: Iterator[int] | None,
        *,
        in_order: bool,
    ) -> None:
        self._arrivals = arrivals
        self._source = source
        self._engine = engine
        self._run = run
        self._order = order
        self._in_order = in_order
        self._worker = -1
        self._items: defaultdict[int, deque[Fetched]] = defaultdict(deque)  # of each worker, of the group being taken

    def __next__(self) -> Fetched:
        if self._order is not None:
            self._worker = next(self._order, -1)
        if self._worker < 0 or not self._items[self._worker]:
            self._worker = self._next_worker()
            self._items[self._worker].extend(self._engine.receive(self._worker))
        items = self._items[self._worker]
        item = items.popleft()
        if not items:
            self._engine.took(self._worker, self._run)
        return item

    def _next_worker(self) -> int:
        """The worker whose group is taken next."""
        if self._order is not None and self._worker >= 0:
            worker = self._arrivals.of(self._worker)
        else:
            worker = self._arrivals.next(self._worker, in_order=self._in_order)
        if worker is None:
            self._finish()
            raise StopIteration
        return worker

    def _finish(self) -> None:
        """Let the DataLoader see that all workers have ended the run."""
        for _ in self._source:
            pass
        self._engine.finish()
