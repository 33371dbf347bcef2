"""Engines ``dataloader`` and ``stateful``: the only module that builds DataLoaders of torch and torchdata."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, TypeVar

from torch.utils.data import DataLoader, IterableDataset, IterDataPipe
from torchdata.stateful_dataloader import StatefulDataLoader

from dlio_torch.config.schema import LoaderConfig
from dlio_torch.data.dataset.fetched import Fetched
from dlio_torch.data.dataset.map_dataset import CatchingDataset, passed_through
from dlio_torch.data.engines.read_ahead import ReadAhead
from dlio_torch.data.engines.registry import worker_limits
from dlio_torch.data.order.pipe_plan import PipePlan
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.pipeline.sample_pipes import BatchIndices, EpochBatches, PlainIterable
from dlio_torch.data.pipeline.stream import PipeStream
from dlio_torch.data.workers.exits import WorkerLimits, WorkerSignals
from dlio_torch.data.workers.placement import UNPLACED, Placement, ReadingThread
from dlio_torch.data.workers.worker_errors import begin_worker
from dlio_torch.data.workers.worker_process import remove_segments, workers_folder
from dlio_torch.environment import private_names

if TYPE_CHECKING:
    from dlio_torch.data.engines.batch_loader import Source

_ENDING_S = 2.0
T = TypeVar("T")


def _nothing() -> None:
    """Does nothing, since no thread waits for the read of another."""


def build(
    config: LoaderConfig,
    source: Source,
    sampler: BatchSampler | PipePlan,
    limits: WorkerLimits,
    placement: Placement = UNPLACED,
) -> DataLoaderEngine:
    """Builds the engine for a rank's batches: one DataLoader, or one for each reader thread.

    Args:
        config: the options of ``loader``.
        source: reads batches of sample numbers, or the pipes that ``sampler`` is the plan of.
        sampler: which samples, in which order.
        limits: those that workers may meet.
        placement: CPUs of workers or reader threads.
    """
    if isinstance(source, PipeStream):
        pipes = [over_pipe(config, pipe) for pipe in source.pipes]
        return DataLoaderEngine(config, source.begin, pipes, source.end, limits, placement)
    assert isinstance(source, CatchingDataset)  # Loading.source() gives this engine no other
    if isinstance(sampler, PipePlan):
        raise ValueError("a plan of pipes needs a source that is a pipe")
    shares = max(1, config.read_threads)
    batches = [EpochBatches(sampler, share, shares) for share in range(shares)]
    loaders = [over_samples(config, source, share) for share in batches]
    begins = [source.begin, *(share.begin for share in batches)]
    return DataLoaderEngine(config, in_sequence(begins), loaders, limits=limits, placement=placement)


class DataLoaderEngine:
    """Engine of one DataLoader, or one for each reader thread, over the rank's batches.

    Args:
        config: the options of ``loader``.
        begin: chooses the epoch and the step that an iteration of the loaders begins with.
        loaders: one for each thread.
        end: lets nobody wait for another thread's read.
        limits: those that workers may meet; ``None``: of ``config``.
        placement: CPUs of workers or reader threads.
    """

    def __init__(
        self,
        config: LoaderConfig,
        begin: Callable[[int, int], None],
        loaders: Sequence[DataLoader[Any]],
        end: Callable[[], None] = _nothing,
        limits: WorkerLimits | None = None,
        placement: Placement = UNPLACED,
    ) -> None:
        self._placement = placement
        self._persistent = config.persistent_workers
        self._has_workers = config.num_workers > 0
        self._begin = begin
        self._end = end
        self._loaders: Sequence[DataLoader[Any]] = loaders
        self._running: list[Any] = []  # torch's iterators
        self._let_go: Callable[[], object] = _nothing
        self._folder = ""
        if self._has_workers:
            self._folder, self._let_go = workers_folder(self)
        self._limits = limits or worker_limits(config)
        self._read_ahead: ReadAhead[Fetched] | None = (
            ReadAhead(config.prefetch_batches, config.timeout_s, placement) if config.read_threads else None
        )

    @property
    def workers(self) -> list[BaseProcess]:
        """See ``loader.Engine``."""
        return [worker for iterator in self._running for worker in private_names.loader_workers(iterator)]

    @property
    def threads(self) -> Sequence[ReadingThread]:
        """See ``loader.Engine``."""
        return () if self._read_ahead is None else self._read_ahead.threads

    def start(self, epoch: int, step: int) -> Iterator[Fetched]:
        """See ``loader.Engine``."""
        if not self._persistent:
            self._end_workers()
        self._begin(epoch, step)
        # A worker could not outlive the thread that starts it, which is to be one that lasts.
        tied = threading.current_thread() is threading.main_thread()
        for loader in self._loaders if self._has_workers else ():
            loader.worker_init_fn = partial(begin_worker, folder=self._folder, tied=tied, placement=self._placement)
        self._running = [iter(loader) for loader in self._loaders]
        if self._has_workers:
            WorkerSignals.install(self._limits)
        first: Iterator[Fetched] = self._running[0]
        return first if self._read_ahead is None else self._read_ahead.start(self._running)

    def close(self) -> None:
        """See ``loader.Engine``."""
        self._end()
        if self._read_ahead is not None:
            self._read_ahead.close()
        self._end_workers()
        self._loaders = ()
        self._let_go()

    def _end_workers(self) -> None:
        # Torch ends workers when their iterator is collected; a traceback may hold it for long.
        running, self._running = self._running, []
        for iterator in running:
            if self._has_workers:
                _shut_down(iterator)


def _shut_down(iterator: Any) -> None:
    """End the workers of a torch iterator; workers that are still inside a read after a grace period are killed.

    Torch waits five seconds for each worker, one after another.
    """
    private_names.forget_loader_workers(iterator)
    workers = private_names.loader_workers(iterator)
    if any(worker.exitcode for worker in workers):
        # One that was killed may have held the lock of the event by which torch tells workers to end: nobody would ever
        # get it.  So the others are killed, too, and torch sets an event that nobody else has.
        _kill(workers)
        for worker in workers:
            worker.join()
        private_names.replace_end_of_workers(iterator)
    late = threading.Timer(_ENDING_S, _kill, [workers])
    late.start()
    try:
        private_names.end_loader_workers(iterator)
    finally:
        late.cancel()
        late.join()
    remove_segments(workers)


def _kill(workers: Sequence[BaseProcess]) -> None:
    for worker in workers:
        worker.kill()


def in_sequence(calls: Sequence[Callable[[int, int], None]]) -> Callable[[int, int], None]:
    """Runs all functions one after another."""

    def call(epoch: int, step: int) -> None:
        for function in calls:
            function(epoch, step)

    return call


def over_samples(config: LoaderConfig, dataset: CatchingDataset, batches: EpochBatches) -> DataLoader[Fetched]:
    """Creates a DataLoader of the batches of sample numbers from ``batches``."""
    if config.style == "pipe":
        return over_pipe(config, BatchIndices(batches).read_samples(dataset))
    kind, options = _kind_of_loader(config)
    with _torch_warnings():
        return kind(dataset, batch_sampler=batches, collate_fn=passed_through, **options)


def over_pipe(config: LoaderConfig, pipe: IterDataPipe[Fetched]) -> DataLoader[Fetched]:
    """Creates a DataLoader of the batches from ``pipe``."""
    return over_iterable(config, PlainIterable(pipe))


def over_iterable(config: LoaderConfig, dataset: IterableDataset[T]) -> DataLoader[T]:
    """Creates a DataLoader that passes the items of ``dataset`` on unchanged."""
    kind, options = _kind_of_loader(config)
    with _torch_warnings():
        return kind(dataset, batch_size=None, collate_fn=passed_through, **options)


def _kind_of_loader(config: LoaderConfig) -> tuple[type[DataLoader[Any]], dict[str, Any]]:
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
    """Suppress warnings of torch that are meant for the authors of StatefulDataLoader."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "'set_vital' is deprecated")
        yield
