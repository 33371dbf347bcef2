"""Decoupled engine with worker processes, which make batches in shared memory.

Of batches of sample numbers each makes every n-th group; of a plan in parts, which read their files in an order of
their own, each makes one part, and the trainer takes a batch of each in turn, as from torch's workers.

torch's DataLoader starts, watches and ends the workers, and carries what they say; the bytes stay where they were
read.  How far a worker may run ahead is counted up to the trainer: what is made and not taken yet is ahead.
"""

from __future__ import annotations

import multiprocessing
import os
import select
import threading
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.process import BaseProcess
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from dlio_torch.config.schema import LoaderConfig
from dlio_torch.data.dataset.fetched import Fetched
from dlio_torch.data.engines.decoupled.batch_groups import DecoupledSource
from dlio_torch.data.engines.decoupled.core_epoch import CoreEpoch
from dlio_torch.data.engines.decoupled.engine import DecoupledEngine
from dlio_torch.data.engines.decoupled.epoch import Epoch
from dlio_torch.data.engines.decoupled.facts import THREADS
from dlio_torch.data.engines.decoupled.reading_io import open_reading_mover
from dlio_torch.data.engines.decoupled.shared_block_pool import SharedBlocks
from dlio_torch.data.engines.decoupled.shared_memory import Region, SharedMemory
from dlio_torch.data.engines.decoupled.transfer import Inbox, Sent, send
from dlio_torch.data.engines.registry import worker_limits
from dlio_torch.data.engines.torch_loader.engine import DataLoaderEngine, over_iterable
from dlio_torch.data.order.pipe_plan import PipePlan, round_robin
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.workers.exits import WorkerLimits
from dlio_torch.data.workers.placement import UNPLACED, Placement

_PARENT_S = 2.0
"""Maximum seconds until a worker notices that its trainer has ended unexpectedly."""


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
        limits = limits or worker_limits(config)
        self._plan = sampler if isinstance(sampler, PipePlan) and config.in_order else None
        # Compiled, where it must be, before all workers want it.
        open_reading_mover(config, direct=source.fmt.config.direct_io)
        self._shared = SharedMemory(config.num_workers)
        self._regions = [self._shared.region(worker) for worker in range(config.num_workers)]
        self._inboxes = [Inbox(region, pinned=config.pin_memory) for region in self._regions]
        self._groups = WorkerGroups(config, source, sampler, self._shared)
        # Two groups are asked for; how many are made meanwhile is the affair of the worker.
        options = replace(config, read_threads=0, prefetch_factor=2, pin_memory=False)
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
        return _Items(self._loaders.start(epoch, step), self, self._groups.run, order)

    def open(self, sent: Sent) -> list[Fetched]:
        """Opens the batches of a group that a worker has sent."""
        return self._inboxes[sent.worker].open(sent)

    def took(self, worker: int, run: int) -> None:
        """Record that the trainer has taken all batches of a group of ``worker``."""
        if run == self._groups.run:
            self._regions[worker].taken += 1
            self._shared.wake(worker)

    def close(self) -> None:
        """End the workers; memory that batches refer to stays valid."""
        self._stop()
        self._loaders.close()
        for inbox in self._inboxes:
            inbox.close()
        self._shared.close()

    def _begin(self, epoch: int, step: int) -> None:
        self._groups.run += 1
        for region in self._regions:
            region.epoch, region.step, region.taken, region.alive = epoch, step, 0, self._groups.run

    def _stop(self) -> None:
        """End the current run of each worker, so that waiting threads finish."""
        for worker, region in enumerate(self._regions):
            region.alive = self._groups.run + 1
            self._shared.wake(worker)


class _Items(Iterator[Fetched]):
    """Iterator over the batches of one epoch in the order of their arrival from the workers.

    Args:
        source: groups of batches.
        engine: opens them.
        run: number of the run.
        order: the worker that each batch is taken from; ``None``: that of the group that has come.
    """

    def __init__(self, source: Iterator[Any], engine: WorkersEngine, run: int, order: Iterator[int] | None) -> None:
        self._source = source
        self._engine = engine
        self._run = run
        self._order = order
        self._worker = 0
        self._groups: defaultdict[int, deque[deque[Fetched]]] = defaultdict(deque)  # of each worker, what has come

    def __next__(self) -> Fetched:
        if self._order is not None:
            self._worker = next(self._order)
        while not self._groups[self._worker]:
            sent = next(self._source)
            self._groups[sent.worker].append(deque(self._engine.open(sent)))
            if self._order is None:
                self._worker = sent.worker
        groups = self._groups[self._worker]
        item = groups[0].popleft()
        if not groups[0]:
            groups.popleft()
            self._engine.took(self._worker, self._run)
        return item


class WorkerGroups(IterableDataset[Sent]):
    """Dataset for the DataLoader that yields a worker's share of the groups of each run.

    Args:
        config: the options of ``loader``.
        source: what is read.
        sampler: which samples, in which order.
        shared: memory.

    Attributes:
        run: number of the run, counted by the trainer; a worker knows that of its first one, and counts on, for it
            is asked for runs that were ended before it could begin them, too.
    """

    def __init__(
        self, config: LoaderConfig, source: DecoupledSource, sampler: BatchSampler | PipePlan, shared: SharedMemory
    ) -> None:
        self._config = config
        self._source = source
        self._sampler = sampler
        self._shared = shared
        self._worker: _WorkerReaders | None = None
        self.run = 0

    def __iter__(self) -> Iterator[Sent]:
        if self._worker is None:
            self._worker = _WorkerReaders(self._config, self._source, self._sampler, self._shared)
        else:
            self.run += 1
        return self._worker.groups(self.run)


class _WorkerReaders:
    """Reader threads of a worker process, which persist between runs."""

    def __init__(
        self, config: LoaderConfig, source: DecoupledSource, sampler: BatchSampler | PipePlan, shared: SharedMemory
    ) -> None:
        info = get_worker_info()
        assert info is not None
        self._number, count = info.id, info.num_workers
        share = replace(config, prefetch_bytes=max(1, config.prefetch_bytes // count), timeout_s=0.0)
        self._region = shared.region(self._number)
        self._blocks = SharedBlocks(self._region, (share.read_threads or THREADS) + 2, share.prefetch_bytes)
        self._engine = DecoupledEngine(share, source, sampler, blocks=self._blocks, share=(self._number, count))
        self._watch = _Watch(self._region, shared.event(self._number))

    def groups(self, run: int) -> Iterator[Sent]:
        """Yields the groups of a run until its end or until it is stopped."""
        if self._region.alive != run:
            return
        epoch = self._engine.start(self._region.epoch, self._region.step)
        self._blocks.forget_sent()
        self._watch.follow(epoch, run)
        while True:
            try:
                number, items = epoch.next_group()
            except StopIteration:
                return
            self._watch.given.append(number)
            sent = send(self._number, items, self._blocks)
            del items
            yield sent


class _Watch:
    """Thread of a worker that follows which groups the trainer has taken and when a run ends."""

    def __init__(self, region: Region, event: int) -> None:
        self._region = region
        self._event = event
        self._lock = threading.Lock()
        self._epoch: Epoch | CoreEpoch | None = None
        self._run = 0
        self._taken = 0
        self.given: deque[int] = deque()  # numbers of groups that the trainer has or will get
        threading.Thread(target=self._listen, name="watch of the trainer", daemon=True).start()

    def follow(self, epoch: Epoch | CoreEpoch, run: int) -> None:
        """Follow the trainer's progress for a run."""
        with self._lock:
            self._epoch, self._run, self._taken, self.given = epoch, run, 0, deque()
            self._take_commands()

    def _listen(self) -> None:
        poll, parent, trainer = select.poll(), os.getppid(), multiprocessing.parent_process()
        poll.register(self._event, select.POLLIN)
        # The parent of a worker of forkserver lives on; what tells of the trainer's end otherwise, workers that were
        # forked hold open for each other.
        while os.getppid() == parent and trainer is not None and trainer.is_alive():
            if poll.poll(_PARENT_S * 1000):
                os.eventfd_read(self._event)
            with self._lock:
                self._take_commands()
        os._exit(1)  # whoever is inside a read or waits for room has nobody to do it for

    def _take_commands(self) -> None:
        if self._epoch is None:
            return
        if self._region.alive != self._run:
            self._epoch.stop()
            return
        for _ in range(self._region.taken - self._taken):
            self._epoch.took(self.given.popleft())
            self._taken += 1
