"""Copies of batches to a GPU some steps before the trainer uses them.

The prefetchers of training scripts do the same: in each step the trainer takes one batch from the loader, starts its
copy on a stream of its own, and computes with a batch whose copy was started steps before.
"""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from typing import Protocol

from dlio_torch.data.engines.batch_loader import Batches, BatchLoader
from dlio_torch.data.workers.placement import ReadingThread
from dlio_torch.formats.core.batch import Batch, batch_bytes
from dlio_torch.iotrace.recorder.spans import Recorder
from dlio_torch.train.result import CopyTimes


class DeviceCopy(Protocol):
    """A started copy of a batch; the GPU holds the batch as long as this object lives."""

    def finish(self) -> tuple[int, int]:
        """Wait until the GPU holds the batch; returns begin and end of the copy by ``time.perf_counter_ns``."""

    def wait(self) -> None:
        """Wait until the copy does not read the host's memory any more; never fails."""


class Copier(Protocol):
    """Starts copies that run beside the trainer, in the order in which they were started.

    Attributes:
        name: name of the GPU.
    """

    name: str

    def synchronize_clocks(self) -> None:
        """Relate the GPU's clock to the host's; called before the first copy of an epoch."""

    def start(self, batch: Batch) -> DeviceCopy:
        """Start the copy of a batch."""


@dataclass
class _Ahead:
    """Batch between loader and trainer.

    Attributes:
        batch: in the host's memory.
        number: its number (:attr:`BatchLoader.number`).
        uses: steps that are known to use it and have not begun.
        copy: its copy; ``None`` before the copy is started.
    """

    batch: Batch
    number: int
    uses: int = 1
    copy: DeviceCopy | None = None


class DevicePrefetcher:
    """Loader whose batches are on their way to a GPU before their step; also does the copies of the trainer's steps.

    A step takes its batch by ``next``, then calls :meth:`start`, which starts the copies of all batches that have come
    since, and :meth:`finish`, which waits for the copy of the step's own batch.  The GPU holds at most ``depth`` + 1
    batches.

    Args:
        loader: its batches are copied.
        copier: copies them.
        depth: number of batches that are copied ahead of the one in use, at least 1.
        recorder: takes the spans ``copy_ahead``, on a track of their own, when the prefetcher is closed.

    Attributes:
        name: name of the GPU.
        number: number of the batch that the trainer took last.
        times: times of all finished copies.
    """

    def __init__(self, loader: BatchLoader, copier: Copier, depth: int, recorder: Recorder) -> None:
        self.name = copier.name
        self.number = -1
        self.times = CopyTimes()
        self._loader = loader
        self._copier = copier
        self._depth = depth
        self._recorder = recorder
        self._begun_ns = array("q")
        self._queue: deque[_Ahead] = deque()  # the first one is in use
        self._error: Exception | None = None  # in place of the batch after the last one of the queue
        self._batches: Batches | None = None
        self._left = 0  # steps of the epoch whose batches are still in the loader

    def __len__(self) -> int:
        """Number of steps in an epoch."""
        return len(self._loader)

    def workers(self) -> Sequence[BaseProcess]:
        """The worker processes of the loader."""
        return self._loader.workers()

    def threads(self) -> Sequence[ReadingThread]:
        """The reader threads of the loader."""
        return self._loader.threads()

    def epoch(self, number: int) -> PrefetchedBatches:
        """The batches of epoch ``number``; those of an earlier epoch that are copied and not used are dropped."""
        self._drop()
        self._batches = self._loader.epoch(number)
        self._left = self._batches.steps
        self._copier.synchronize_clocks()
        return PrefetchedBatches(self, self._batches)

    def take(self) -> Batch:
        """The batch of the next step, after as many have been taken from the loader as are to be copied ahead.

        An error of the loader is raised in the step whose batch is missing, after all batches before it.

        Raises:
            DlioError: the batch could not be read; see :class:`Batches`.
            StopIteration: the epoch is over.
        """
        if self._queue and not self._queue[0].uses:
            self._queue.popleft()
        while len(self._queue) <= self._depth and self._left and self._error is None:
            self._pull()
        if not self._queue:
            raise self._error or StopIteration
        self._queue[0].uses -= 1
        self.number = self._queue[0].number
        return self._queue[0].batch

    def start(self, batch: Batch) -> None:
        """Start the copies of all batches that were taken from the loader.

        Args:
            batch: the batch of this step, the first of them.

        Raises:
            RunFailed: the GPU has no memory left, or another error of CUDA.
        """
        for item in self._queue:
            if item.copy is None:
                item.copy = self._copier.start(item.batch)

    def finish(self) -> None:
        """Wait until the GPU holds the batch of this step.

        Raises:
            RunFailed: a copy failed.
        """
        item = self._queue[0]
        if item.copy is not None:
            begun_ns, ended_ns = item.copy.finish()
            self._begun_ns.append(begun_ns)
            self.times.append(ended_ns - begun_ns, batch_bytes(item.batch))

    def close(self) -> None:
        """Wait for the copies that were started, and record the spans of all copies; a second call does nothing."""
        self._drop()
        if self._begun_ns and self._recorder.enabled:
            # A thread of its own: the copies overlap with the trainer's spans.
            thread = threading.Thread(target=self._record, name="copies to the GPU")
            thread.start()
            thread.join()
        self._begun_ns = array("q")

    def _pull(self) -> None:
        assert self._batches is not None
        self._left -= 1
        try:
            batch = next(self._batches)
        except StopIteration:
            self._left = 0
        except Exception as error:  # the trainer has batches to use before this one
            self._error = error
        else:
            if self._queue and self._queue[-1].batch is batch:  # used for several steps
                self._queue[-1].uses += 1
            else:
                self._queue.append(_Ahead(batch, self._loader.number))

    def _drop(self) -> None:
        for item in self._queue:
            if item.copy is not None:
                item.copy.wait()  # its host memory goes back to the loader
        self._queue.clear()
        self._error = None

    def _record(self) -> None:
        for begun_ns, took_ns, size in zip(self._begun_ns, self.times.ns, self.times.sizes, strict=True):
            self._recorder.add("copy_ahead", begun_ns, begun_ns + took_ns, bytes=size)


class PrefetchedBatches(Batches):
    """Batches of one epoch, whose copies to the GPU are started ahead.

    Args:
        prefetcher: delivers them.
        batches: the loader's batches, whose readers go on after each step.
    """

    def __init__(self, prefetcher: DevicePrefetcher, batches: Batches) -> None:
        self._prefetcher = prefetcher
        self.steps = batches.steps
        self.read_on = batches.read_on

    def __next__(self) -> Batch:
        """The batch of the next step.

        Raises:
            DlioError: it could not be read; see :class:`Batches`.
        """
        return self._prefetcher.take()
