"""The only place that builds a DataLoader: one interface over three engines.

``dataloader`` (torch), ``stateful`` (torchdata's StatefulDataLoader) and ``nodes`` (torchdata.nodes)
deliver the same batches in the same order; what differs is their machinery.  Reader threads are an
option of each: the rank's own process reads ahead, as larcv's queue or TensorFlow's pipelines do.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torchdata.nodes as tn
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from dlio_torch.config.schema import LoaderConfig
from dlio_torch.data.datasets import CatchingDataset, Failure, passed_through
from dlio_torch.data.pipes import BatchIndices
from dlio_torch.data.readahead import ReadAhead
from dlio_torch.data.sampler import BatchSampler
from dlio_torch.errors import DlioError, PreconditionError, RunFailed
from dlio_torch.formats.batch import Batch

_Item = Batch | Failure
# An engine starts an epoch from a step on; it gives batches, or the errors in their place.
_Engine = Callable[[int, int], Iterator[_Item]]


class Batches(Iterator[Batch]):
    """The batches of one epoch.

    Iterate as usual, and call :meth:`read_on` after each batch so that reader threads go on; one who does
    not gets the same batches, and the next one is read when it is asked for.
    """

    def __init__(self, loader: BatchLoader, items: Iterator[_Item]) -> None:
        self._take, self._explain = loader.take, loader.explain
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
            raise self._explain(error) from error


def _nothing() -> None:
    """DataLoader workers and nodes decide themselves when to read."""


class BatchLoader:
    """Batches of one rank, epoch by epoch.

    Args:
        config: the options of ``loader``.
        dataset: reads a batch of sample numbers.
        sampler: which numbers, in which order.

    Raises:
        PreconditionError: ``loader.pin_memory`` without a GPU.
    """

    def __init__(self, config: LoaderConfig, dataset: CatchingDataset, sampler: BatchSampler) -> None:
        if config.pin_memory and not torch.cuda.is_available():
            raise PreconditionError(
                "loader.pin_memory=true, and torch finds no GPU to pin memory for", hint="set loader.pin_memory=false"
            )
        self._config = config
        self._sampler = sampler
        self._epoch = 0
        self._taken = 0  # batches of this epoch that the trainer has taken
        self._resume: tuple[int, int] | None = None
        self._closers: list[Callable[[], None]] = []
        self._start: _Engine = (
            self._nodes(dataset) if config.engine == "nodes" else self._data_loaders(dataset, config.engine)
        )

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self._sampler)

    def epoch(self, number: int) -> Batches:
        """The batches of epoch ``number``; after :meth:`load_state_dict` those that were not taken yet."""
        step = self._resume[1] if self._resume is not None and self._resume[0] == number else 0
        self._resume = None
        self._epoch, self._taken = number, step
        return Batches(self, self._start(number, step))

    def take(self, item: _Item) -> Batch:
        """Count a batch as taken, or raise the error that came in its place."""
        if isinstance(item, Failure):
            raise item.error
        self._taken += 1
        return item

    def explain(self, error: Exception) -> DlioError:
        """One line for what torch says of a worker that died or was late."""
        return _explain(error, self._config)

    def state_dict(self) -> dict[str, Any]:
        """Where the trainer is: the batches that were read ahead do not count as taken."""
        return {**self._sampler.state_dict(), "epoch": self._epoch, "step": self._taken}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on at a saved position: the next ``epoch`` of its number begins with the next batch.

        Raises:
            ConfigError: the state belongs to another data set, order or number of ranks.
        """
        self._sampler.load_state_dict(state)
        self._resume = (int(state["epoch"]), int(state["step"]))

    def close(self) -> None:
        """End workers and threads."""
        while self._closers:
            self._closers.pop()()

    # --- engines ---------------------------------------------------------------------------------

    def _data_loaders(self, dataset: CatchingDataset, engine: str) -> _Engine:
        """One DataLoader, or one for each reader thread, over the rank's batches."""
        config, shares = self._config, max(1, self._config.read_threads)
        indices = [BatchIndices(self._sampler, share, shares) for share in range(shares)]
        loaders = [_make_loader(engine, config, dataset, source) for source in indices]
        read_ahead: ReadAhead[_Item] | None = (
            ReadAhead(config.prefetch_batches, config.timeout_s) if config.read_threads else None
        )
        if read_ahead is not None:
            self._closers.append(read_ahead.close)
        self._closers.append(loaders.clear)  # persistent workers end with their loader

        def start(epoch: int, step: int) -> Iterator[_Item]:
            for source in indices:
                source.begin(epoch, step)
            if read_ahead is not None:
                return read_ahead.start([iter(loader) for loader in loaders])
            return iter(loaders[0])

        return start

    def _nodes(self, dataset: CatchingDataset) -> _Engine:
        config = self._config
        source = _IndexNode(self._sampler)
        node: Any = source
        if config.num_workers:
            # Each worker has prefetch_factor batches under way in a DataLoader; here the mapper holds
            # one for each worker and the rest waits in the prefetcher.
            node = tn.ParallelMapper(
                node,
                dataset.__getitems__,
                num_workers=config.num_workers,
                in_order=config.in_order,
                method="process",
                multiprocessing_context=config.multiprocessing_context,
            )
            node = tn.Prefetcher(node, max(1, config.num_workers * ((config.prefetch_factor or 2) - 1)))
        elif config.read_threads:
            node = tn.ParallelMapper(
                node,
                dataset.__getitems__,
                num_workers=config.read_threads,
                in_order=config.in_order,
                max_concurrent=min(config.read_threads, config.prefetch_batches),
            )
            if config.prefetch_batches > config.read_threads:
                node = tn.Prefetcher(node, config.prefetch_batches - config.read_threads)
        else:
            node = tn.Mapper(node, dataset.__getitems__)
        if config.pin_memory:
            node = tn.PinMemory(node)
        loader = tn.Loader(node, restart_on_stop_iteration=False)
        self._closers.append(lambda: _shut_down(node))

        def start(epoch: int, step: int) -> Iterator[_Item]:
            source.begin(epoch, step)
            return iter(loader)

        return start


def _make_loader(
    engine: str, config: LoaderConfig, dataset: CatchingDataset, source: BatchIndices
) -> DataLoader[_Item]:
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
    kind = StatefulDataLoader if engine == "stateful" else DataLoader
    with warnings.catch_warnings():
        # torchdata's class calls a method that torch has deprecated; nothing that a user can change.
        warnings.simplefilter("ignore", DeprecationWarning)
        if config.style == "pipe":
            return kind(source.read_samples(dataset), batch_size=None, **options)
        return kind(dataset, batch_sampler=_PerEpoch(source), collate_fn=passed_through, **options)


class _PerEpoch:
    """The batch sampler of a map-style DataLoader: iterates in the rank's process, so no shares of workers."""

    def __init__(self, source: BatchIndices) -> None:
        self._source = source

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self._source)


class _IndexNode(tn.BaseNode[list[int]]):  # type: ignore[misc]  # torchdata has no types
    """The rank's batches of sample numbers as a node."""

    def __init__(self, sampler: BatchSampler) -> None:
        super().__init__()
        self._source = BatchIndices(sampler)
        self._batches: Iterator[list[int]] = iter(())

    def begin(self, epoch: int, step: int) -> None:
        self._source.begin(epoch, step)

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        super().reset(initial_state)
        self._batches = iter(self._source)

    def next(self) -> list[int]:
        return next(self._batches)

    def get_state(self) -> dict[str, Any]:
        return {}  # the position is BatchLoader's


def _shut_down(node: Any) -> None:
    """End the threads and processes of a chain of nodes."""
    while node is not None:
        running = getattr(node, "_it", None)
        if running is not None and hasattr(running, "_shutdown"):
            running._shutdown()
        node = getattr(node, "source", None)


def _explain(error: Exception, config: LoaderConfig) -> DlioError:
    """One line for what torch says of a worker that died or was late."""
    if isinstance(error, DlioError):
        return error
    text = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
    if "exited unexpectedly" in str(error) or "is killed by signal" in str(error):
        return RunFailed(
            f"a loader worker died: {text}",
            hint=f"look for a full /dev/shm or too little memory, or lower loader.num_workers={config.num_workers}",
        )
    if "timed out" in str(error):
        return RunFailed(
            f"no batch came from the loader workers for {config.timeout_s:g} s", hint="raise loader.timeout_s"
        )
    return RunFailed(f"the loader failed: {text}")
