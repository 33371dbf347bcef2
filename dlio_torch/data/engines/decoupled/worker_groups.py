"""The worker's side of the decoupled engine: reads its share of the groups of each run and publishes them."""

from __future__ import annotations

import multiprocessing
import os
import select
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from torch.utils.data import IterableDataset, get_worker_info

from dlio_torch.config.schema import LoaderConfig
from dlio_torch.data.dataset.fetched import Fetched
from dlio_torch.data.engines.decoupled.batch_groups import DecoupledSource
from dlio_torch.data.engines.decoupled.core_epoch import CoreEpoch, FilledGroup
from dlio_torch.data.engines.decoupled.engine import DecoupledEngine, mean_batch_bytes
from dlio_torch.data.engines.decoupled.epoch import Epoch
from dlio_torch.data.engines.decoupled.event_descriptors import clear_event
from dlio_torch.data.engines.decoupled.facts import THREADS
from dlio_torch.data.engines.decoupled.prefetch_window import window_of
from dlio_torch.data.engines.decoupled.shared_block_pool import SharedBlocks
from dlio_torch.data.engines.decoupled.shared_memory import SharedMemory
from dlio_torch.data.engines.decoupled.transfer import Sent, send
from dlio_torch.data.engines.decoupled.worker_messages import Outbox, tail_bytes
from dlio_torch.data.order.pipe_plan import PipePlan
from dlio_torch.data.order.sampler import BatchSampler

_PARENT_S = 2.0
"""Maximum seconds until a worker notices that its trainer has ended unexpectedly."""
_SLICE_S = 0.1  # most seconds of a wait for the trainer before the run is looked at


class _RunOver(Exception):
    """The trainer has ended the run."""


class WorkerGroups(IterableDataset[Sent]):
    """Dataset for the DataLoader, which starts and ends the workers; its items are published past the DataLoader.

    An iteration publishes a worker's share of the groups of a run, and yields nothing.

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
        self._begun = False
        self.run = 0

    def __iter__(self) -> Iterator[Sent]:
        if self._begun:
            self.run += 1
        self._begun = True
        return self._published(self.run)

    def _published(self, run: int) -> Iterator[Sent]:
        if self._worker is None:
            try:
                self._worker = _WorkerReaders(self._config, self._source, self._sampler, self._shared)
            except BaseException:  # the DataLoader carries it, when the trainer sees that the run has ended
                info = get_worker_info()
                assert info is not None
                self._shared.region(info.id).ended = run
                self._shared.ring_bell()
                raise
        yield from self._worker.publish(run)


class _WorkerReaders:
    """Readers of a worker process, which persist between runs."""

    def __init__(
        self, config: LoaderConfig, source: DecoupledSource, sampler: BatchSampler | PipePlan, shared: SharedMemory
    ) -> None:
        info = get_worker_info()
        assert info is not None
        self._number, count = info.id, info.num_workers
        share = replace(config, timeout_s=0.0)
        window = window_of(share, mean_batch_bytes(source.fmt, sampler))
        self._shared = shared
        self._region = shared.region(self._number)
        self._poll = select.poll()
        self._poll.register(shared.event(self._number), select.POLLIN)
        self._blocks = SharedBlocks(self._region, (share.read_threads or THREADS) + 2, window)
        self._engine = DecoupledEngine(
            share, source, sampler, blocks=self._blocks, share=(self._number, count), tail=tail_bytes
        )
        self._outbox = Outbox(self._region, self._blocks)
        # Batches that are recorded or verified are cut here.
        self._cuts = source.verify or source.recorder.enabled
        self._run = 0
        self._taken = 0
        self._given: deque[int] = deque()  # numbers of groups that the trainer has or will get
        self._epoch: Epoch | CoreEpoch | None = None
        _watch_trainer()

    def publish(self, run: int) -> Iterator[Sent]:
        """Publishes the groups of a run until its end or until it is stopped; yields nothing."""
        if self._region.alive == run:
            self._publish_all(run)
        yield from ()

    def _publish_all(self, run: int) -> None:
        self._run, self._taken, self._given = run, 0, deque()
        self._outbox.run = run
        try:
            epoch = self._epoch = self._engine.start(self._region.epoch, self._region.step)
            self._blocks.forget_sent()
            epoch.idle, epoch.wait_for_room = self._take_commands, self._wait_for_trainer
            while True:
                self._take_commands()
                self._publish(*epoch.next_filled())
        except (StopIteration, _RunOver):
            pass
        except Exception as error:  # it is the trainer's to handle
            self._publish_error(error)
        finally:
            if self._epoch is not None:
                self._epoch.stop()
            self._region.ended = run
            self._shared.ring_bell()

    def _publish(self, number: int, group: FilledGroup | list[Fetched]) -> None:
        while self._outbox.is_full:
            self._wait_for_trainer()
        self._given.append(number)
        if isinstance(group, FilledGroup) and not self._cuts:
            self._outbox.publish_filled(group.plan, group.memory)
        else:
            if isinstance(group, FilledGroup):
                assert isinstance(self._epoch, CoreEpoch)
                items = self._epoch.cut(group)
            else:
                items = group
            self._outbox.publish(send(items, self._blocks))
        self._shared.ring_bell()

    def _publish_error(self, error: Exception) -> None:
        """Publishes the error that ends the run, when the trainer has taken a group of a full ring."""
        while self._outbox.is_full:
            if self._region.alive != self._run:
                return
            self._poll.poll(_SLICE_S * 1000)
        self._outbox.publish_error(error)

    def _wait_for_trainer(self) -> None:
        """Waits a moment for the trainer to take a group."""
        if self._poll.poll(_SLICE_S * 1000):
            clear_event(self._shared.event(self._number))
        self._take_commands()

    def _take_commands(self) -> None:
        if self._region.alive != self._run:
            raise _RunOver
        assert self._epoch is not None
        for _ in range(self._region.taken - self._taken):
            self._epoch.took(self._given.popleft())
            self._taken += 1


def _watch_trainer() -> None:
    """Start the thread that ends this process when its trainer has ended unexpectedly."""
    parent, trainer = os.getppid(), multiprocessing.parent_process()

    def watch() -> None:
        # The parent of a worker of forkserver lives on; what tells of the trainer's end otherwise, workers that were
        # forked hold open for each other.
        while os.getppid() == parent and trainer is not None and trainer.is_alive():
            threading.Event().wait(_PARENT_S)
        os._exit(1)  # whoever is inside a read or waits for room has nobody to do it for

    threading.Thread(target=watch, name="watch of the trainer", daemon=True).start()
