"""The only place that builds a DataLoader: one interface over four engines.

``dataloader`` (torch), ``stateful`` (torchdata's StatefulDataLoader), ``nodes`` (torchdata.nodes) and
``decoupled`` (ours) deliver the same batches in the same order; what differs is their machinery.  Reader threads are an
option of each: the rank's own process reads ahead, as larcv's queue or TensorFlow's pipelines do.
"""

from __future__ import annotations

import contextlib
import copy
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader, IterDataPipe
from torch.utils.data._utils import signal_handling
from torchdata.stateful_dataloader import StatefulDataLoader

from dlio_torch.config.schema import LoaderConfig
from dlio_torch.data.datasets import CatchingDataset, Failure, passed_through
from dlio_torch.data.decoupled.engine import DecoupledEngine
from dlio_torch.data.decoupled.groups import DecoupledSource
from dlio_torch.data.failures import WorkerSignals, explain, uninterrupted
from dlio_torch.data.making import Made
from dlio_torch.data.nodes import NodesEngine
from dlio_torch.data.pipeplan import PipePlan
from dlio_torch.data.pipes import BatchIndices, EpochBatches, PlainIterable
from dlio_torch.data.readahead import ReadAhead
from dlio_torch.data.replay import ReplayedBatches
from dlio_torch.data.sampler import BatchSampler
from dlio_torch.data.stream import PipeStream
from dlio_torch.errors import PreconditionError
from dlio_torch.formats.batch import Batch

Source = CatchingDataset | PipeStream | ReplayedBatches | DecoupledSource
"""What a loader moves batches from."""

_Item = Batch | Made | Failure
_ENDING_S = 2.0


class Engine(Protocol):
    """What moves batches; gives them, or the errors in their place."""

    def start(self, epoch: int, step: int) -> Iterator[_Item]:
        """The batches of ``epoch`` from ``step`` on; what was left of the epoch before is dropped."""

    def close(self) -> None:
        """End workers and threads, whatever they do; a second call does nothing."""


class Batches(Iterator[Batch]):
    """The batches of one epoch.

    Iterate as usual, and call :meth:`read_on` after each batch so that reader threads go on; one who does
    not gets the same batches, and the next one is read when it is asked for.
    """

    def __init__(self, loader: BatchLoader, items: Iterator[_Item], timeout_s: float) -> None:
        self._take, self._timeout_s = loader.take, timeout_s
        self._next = items.__next__
        #: Let the reader threads start on the next batch; does nothing where others decide that.
        self.read_on: Callable[[], None] = getattr(items, "read_on", _nothing)

    def __next__(self) -> Batch:
        """The next batch.

        Raises:
            DlioError: it could not be read; a worker died; none came within ``loader.timeout_s``.
        """
        try:
            return self._take(self._next())
        except (RuntimeError, OSError) as error:
            raise explain(error, self._timeout_s) from error


def _nothing() -> None:
    """DataLoader workers and nodes decide themselves when to read."""


class BatchLoader:
    """Batches of one rank, epoch by epoch.

    Args:
        config: the options of ``loader``.
        source: reads a batch of sample numbers; or the pipes that ``sampler`` is the plan of; or the batches
            themselves.
        sampler: which numbers, in which order.

    Raises:
        PreconditionError: ``loader.pin_memory`` without a GPU.
    """

    def __init__(self, config: LoaderConfig, source: Source, sampler: BatchSampler | PipePlan) -> None:
        if config.pin_memory and not torch.cuda.is_available():
            raise PreconditionError(
                "loader.pin_memory=true, and torch finds no GPU to pin memory for", hint="set loader.pin_memory=false"
            )
        self._timeout_s = config.timeout_s
        self._sampler = sampler
        self._epoch = 0
        self._taken = 0  # batches of this epoch that the trainer has taken
        #: Number of the batch that was taken last (see :mod:`dlio_torch.data.making`); -1 where none is recorded.
        self.number = -1
        self._resume: tuple[int, int] | None = None
        self._items: Iterator[_Item] | None = None
        self._engine: Engine
        if isinstance(source, ReplayedBatches):
            self._engine = source
        elif isinstance(source, PipeStream):
            self._engine = _DataLoaderEngine(config, source.begin, _pipe_loaders(config, source), source.end)
        elif isinstance(source, DecoupledSource):
            self._engine = DecoupledEngine(config, source, sampler)
        elif isinstance(sampler, PipePlan):
            raise ValueError("a plan of pipes needs the pipes")
        elif config.engine == "nodes":
            self._engine = NodesEngine(config, source, sampler)
        else:
            shares = max(1, config.read_threads)
            batches = [EpochBatches(sampler, share, shares) for share in range(shares)]
            loaders = [_make_loader(config, source, share) for share in batches]
            self._engine = _DataLoaderEngine(config, _together([share.begin for share in batches]), loaders)

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self._sampler)

    def epoch(self, number: int) -> Batches:
        """The batches of epoch ``number``; after :meth:`load_state_dict` those that were not taken yet."""
        step = self._resume[1] if self._resume is not None and self._resume[0] == number else 0
        self._resume = None
        if self._items is None or not self._goes_on(number, step):
            with uninterrupted():
                self._items = self._engine.start(number, step)
        self._epoch, self._taken = number, step
        return Batches(self, self._items, self._timeout_s)

    def _goes_on(self, epoch: int, step: int) -> bool:
        """Whether this position is the next one of a pipe without end, which then just runs on."""
        if not (isinstance(self._sampler, PipePlan) and self._sampler.endless):
            return False
        steps = len(self._sampler)
        return epoch * steps + step == self._epoch * steps + self._taken

    def take(self, item: _Item) -> Batch:
        """Count a batch as taken, or raise the error that came in its place."""
        if isinstance(item, Failure):
            raise item.error
        self._taken += 1
        if isinstance(item, Made):
            self.number = item.number
            return item.batch
        return item

    def state_dict(self) -> dict[str, Any]:
        """Where the trainer is: the batches that were read ahead do not count as taken.

        With ``loader.in_order=false`` it says how many were taken, not which.
        """
        return {**self._sampler.state_dict(), "epoch": self._epoch, "step": self._taken}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on at a saved position: the next ``epoch`` of its number begins with the next batch.

        Raises:
            ConfigError: the state belongs to another data set, order or number of ranks.
        """
        copy.copy(self._sampler).load_state_dict(state)  # a copy: it is asked whether the state is its own
        self._resume = (int(state["epoch"]), int(state["step"]))

    def close(self) -> None:
        """End workers and threads."""
        with uninterrupted():
            self._engine.close()


class _DataLoaderEngine:
    """One DataLoader, or one for each reader thread, over the rank's batches.

    Args:
        config: the options of ``loader``.
        begin: chooses the epoch and the step that an iteration of the loaders begins with.
        loaders: one for each thread.
        end: lets nobody wait for another thread's read.
    """

    def __init__(
        self,
        config: LoaderConfig,
        begin: Callable[[int, int], None],
        loaders: list[DataLoader[_Item]],
        end: Callable[[], None] = _nothing,
    ) -> None:
        self._persistent = config.persistent_workers
        self._has_workers = config.num_workers > 0
        self._begin = begin
        self._end = end
        self._loaders = loaders
        self._running: list[Any] = []  # torch's iterators
        self._read_ahead: ReadAhead[_Item] | None = (
            ReadAhead(config.prefetch_batches, config.timeout_s) if config.read_threads else None
        )

    def start(self, epoch: int, step: int) -> Iterator[_Item]:
        """See :class:`Engine`."""
        if not self._persistent:
            self._end_workers()
        self._begin(epoch, step)
        self._running = [iter(loader) for loader in self._loaders]
        if self._has_workers:
            WorkerSignals.install()
        first: Iterator[_Item] = self._running[0]
        return first if self._read_ahead is None else self._read_ahead.start(self._running)

    def close(self) -> None:
        """See :class:`Engine`."""
        self._end()
        if self._read_ahead is not None:
            self._read_ahead.close()
        self._end_workers()
        self._loaders = []

    def _end_workers(self) -> None:
        # Torch ends workers when their iterator is collected; a traceback may hold it for long.
        running, self._running = self._running, []
        for iterator in running:
            if self._has_workers:
                _shut_down(iterator)


def _shut_down(iterator: Any) -> None:
    """End the workers of one of torch's iterators; those inside a read after a while are killed.

    Torch waits five seconds for each worker, one after another.
    """
    if iterator._worker_pids_set:  # from here on the end of a worker is no failure
        iterator._worker_pids_set = False
        signal_handling._remove_worker_pids(id(iterator))  # type: ignore[attr-defined]
    late = threading.Timer(_ENDING_S, lambda: [worker.kill() for worker in iterator._workers])
    late.start()
    try:
        iterator._shutdown_workers()
    finally:
        late.cancel()
        late.join()


def _together(calls: Sequence[Callable[[int, int], None]]) -> Callable[[int, int], None]:
    def call(epoch: int, step: int) -> None:
        for one in calls:
            one(epoch, step)

    return call


def _make_loader(config: LoaderConfig, dataset: CatchingDataset, batches: EpochBatches) -> DataLoader[_Item]:
    if config.style == "pipe":
        return _over_pipe(config, BatchIndices(batches).read_samples(dataset))
    kind, options = _kind_of_loader(config)
    with _torch_warnings():
        return kind(dataset, batch_sampler=batches, collate_fn=passed_through, **options)


def _pipe_loaders(config: LoaderConfig, stream: PipeStream) -> list[DataLoader[_Item]]:
    return [_over_pipe(config, pipe) for pipe in stream.pipes]


def _over_pipe(config: LoaderConfig, pipe: IterDataPipe[_Item]) -> DataLoader[_Item]:
    kind, options = _kind_of_loader(config)
    with _torch_warnings():
        return kind(PlainIterable(pipe), batch_size=None, **options)


def _kind_of_loader(config: LoaderConfig) -> tuple[type[DataLoader[_Item]], dict[str, Any]]:
    options: dict[str, Any] = {
        "num_workers": config.num_workers,
        "pin_memory": config.pin_memory,
        "in_order": config.in_order,
    }
    if config.num_workers:
        options |= {
            "prefetch_factor": config.prefetch_factor,
            "persistent_workers": config.persistent_workers,
            "multiprocessing_context": config.multiprocessing_context,
            "timeout": config.timeout_s,
        }
    return (StatefulDataLoader if config.engine == "stateful" else DataLoader), options


@contextlib.contextmanager
def _torch_warnings() -> Iterator[None]:
    """Leave out what torch says to the authors of StatefulDataLoader."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "'set_vital' is deprecated")
        yield
