"""Loader of a configuration's batches by any engine, for training loops of one's own."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from dlio_torch.api.configuration import check_count, check_rank, chosen
from dlio_torch.api.opened_data import OpenedData, open_data
from dlio_torch.config.schema import Config
from dlio_torch.data.engines import registry as engines
from dlio_torch.data.engines.assemble import Loaders, assemble
from dlio_torch.data.engines.batch_loader import Batches
from dlio_torch.data.engines.placement_plan import LocalRank, plan_placement
from dlio_torch.data.workers.exits import WorkerSignals
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.batch import Batch
from dlio_torch.iotrace.recorder.spans import NULL

_open_loaders: set[int] = set()
"""Identities of the loaders of this process that are not closed."""


class Loader:
    """Batches of one rank by the engine of the configuration; each iteration is the next epoch.

    A batch is a dictionary of tensors: arrays of fixed shape stacked along the first axis; arrays of variable length
    joined, with their lengths under ``<name>:lengths``; and the numbers of the samples under ``index``.  Use it as a
    context manager, or call :meth:`close`, so that workers end.  An iteration may be left early.

    With ``loader.affinity`` all ranks count as ranks of this node; the thread of the training loop is not placed.
    """

    def __init__(self, data: OpenedData, rank: int, world_size: int) -> None:
        config, order = data.order(rank, world_size)
        order = replace(order, evaluation=None)
        demand = engines.facts(config.loader.engine).demand(config.loader)
        placement = plan_placement(config, demand, LocalRank(rank, rank, world_size))
        self._loaders = assemble(config, data.format, {"train": data.train}, order, NULL, placement=placement)
        self._epoch = 0
        _open_loaders.add(id(self))
        self._close = weakref.finalize(self, _end, self._loaders, id(self), os.getpid())

    def __len__(self) -> int:
        """Number of batches of an epoch."""
        return len(self._loaders.train)

    def set_epoch(self, epoch: int) -> None:
        """Set the number (from 0) of the next iteration's epoch, on which shuffled orders depend.

        Raises:
            ConfigError: it is not a whole number of 0 or more.
        """
        check_count("epoch", epoch, 0)
        self._epoch = epoch

    def __iter__(self) -> Iterator[Batch]:
        """Yields the batches of the next epoch.

        Raises:
            DlioError: a batch cannot be read, a worker ended, or the loader is closed.
        """
        if not self._close.alive:
            raise ConfigError("the loader is closed", hint="make another one with dlio_torch.loader()")
        epoch, self._epoch = self._epoch, self._epoch + 1
        batches = self._loaders.train.epoch(epoch)
        self._current = batches
        return self._deliver(batches)

    def close(self) -> None:
        """End workers and threads; a second call does nothing."""
        self._close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _deliver(self, batches: Batches) -> Iterator[Batch]:
        for _ in range(len(self)):
            if self._current is not batches or not self._close.alive:
                raise ConfigError(
                    "an iteration of the loader was continued after the next one began, or after it was closed",
                    hint="finish or leave one epoch before the next",
                )
            yield next(batches)
            batches.read_on()


def loader(
    config: Config | None = None,
    *,
    recipe: str | Path | None = None,
    overrides: Sequence[str] = (),
    rank: int = 0,
    world_size: int = 1,
) -> Loader:
    """A loader of training batches by any engine (``loader.engine``), for a training loop of one's own.

    Args:
        config: the experiment, as ``compose`` returns it; ``None``: ``recipe`` and ``overrides`` give it.
        recipe: see :func:`~dlio_torch.api.configuration.compose`.
        overrides: see :func:`~dlio_torch.api.configuration.compose`.
        rank: the rank whose batches are wanted.
        world_size: number of all ranks.

    Raises:
        DlioError: the configuration is wrong, or data are missing or damaged.
    """
    check_rank(rank, world_size)
    return Loader(open_data(chosen(config, recipe, overrides, world_size=world_size)), rank, world_size)


def _end(loaders: Loaders, number: int, owner: int) -> None:
    """End the workers of a loader, and give the signal of their exit back to torch with the last one."""
    if os.getpid() != owner:  # a process that was forked owns none of them
        return
    _open_loaders.discard(number)
    loaders.close()
    if not _open_loaders:
        WorkerSignals.remove()
