"""Data sets and loaders of a configuration, for training loops and DataLoaders of one's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch.utils.data import Dataset, IterDataPipe, get_worker_info

from dlio_torch.api.configuration import chosen
from dlio_torch.config.schema import Config
from dlio_torch.data.dataset import description
from dlio_torch.data.dataset.generation import generate
from dlio_torch.data.dataset.manifest import Manifest, data_folder
from dlio_torch.data.dataset.map_dataset import SampleDataset
from dlio_torch.data.engines.assemble import assemble
from dlio_torch.data.engines.registry import format_of
from dlio_torch.data.engines.sources import Loading
from dlio_torch.data.order.held_plan import fetched_by
from dlio_torch.data.order.pipe_plan import PipePlan
from dlio_torch.data.order.planning import plan_order
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.pipeline.sample_pipes import EpochBatches
from dlio_torch.dist.base import SingleCommunicator
from dlio_torch.formats.core.batch import INDEX, ArraySpec, Batch, as_tensor, collated, samples_of
from dlio_torch.formats.core.format import Format
from dlio_torch.iotrace.recorder.spans import NULL
from dlio_torch.preflight.data_location import locate_data

SampleTensors = dict[str, torch.Tensor]
"""Tensors of one sample by the names of its arrays."""


class SampleTensorDataset(Dataset[SampleTensors]):
    """Map-style dataset of single samples: each item is a dictionary of tensors.

    ``DataLoader(ds, batch_size=32, num_workers=2)`` stacks samples of fixed shape by its default collate function.
    Samples of variable length need :meth:`collate`.  The files are opened and read with the calls of the application,
    in the process that asks.
    """

    def __init__(self, fmt: Format, manifest: Manifest) -> None:
        self._samples = SampleDataset(fmt, manifest, NULL)
        self._specs = fmt.specs()

    @property
    def specs(self) -> list[ArraySpec]:
        """Names, dtypes and shapes of the arrays of a sample."""
        return list(self._specs)

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._samples)

    def __getitem__(self, index: int) -> SampleTensors:
        """The sample of a number from 0 on, also from the end as ``-1``.

        Raises:
            IndexError: there is no such sample.
            DataError: its file is damaged or missing.
        """
        return _separated(self._samples[range(len(self))[index]], self._specs)[0]

    def collate(self, samples: Sequence[SampleTensors]) -> Batch:
        """Collate function for samples of variable length: ``DataLoader(ds, collate_fn=ds.collate)``.

        Returns:
            Arrays of fixed shape stacked along a new first axis; arrays of variable length joined along their first
            axis, with the number of rows of each sample under ``<name>:lengths`` (int64).
        """
        arrays = [{name: tensor.numpy() for name, tensor in sample.items()} for sample in samples]
        batch = collated(self._specs, list(enumerate(arrays)))
        del batch[INDEX]
        return batch


class SamplePipe(IterDataPipe[SampleTensors]):
    """DataPipe of the samples of one rank in the order of the configuration.

    Each worker of a DataLoader gets its share of the rank's batches.
    """

    def __init__(self, config: Config, fmt: Format, manifest: Manifest, rank: int, world_size: int) -> None:
        super().__init__()
        self._config, self._format, self._manifest = config, fmt, manifest
        self._rank, self._world_size = rank, world_size
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch (from 0) of the next iteration, on which shuffled orders depend."""
        self._epoch = epoch

    def __iter__(self) -> Iterator[SampleTensors]:
        """Yields samples.

        Raises:
            DataError: a file is damaged or missing.
        """
        worker = get_worker_info()
        workers = worker.num_workers if worker is not None else 0
        config = replace(self._config, loader=replace(self._config.loader, num_workers=workers))
        order = plan_order(config, self._format, {"train": self._manifest}, self._rank, self._world_size)
        plan = fetched_by(order.train)
        source: Any = Loading(config, self._format, NULL).source(self._manifest, plan, 1)
        for batch in _batches(plan, source, self._epoch):
            yield from _separated(batch, self._format.specs())


class Loader:
    """Batches of one rank by the engine of the configuration; each iteration is the next epoch.

    A batch is a dictionary of tensors: arrays of fixed shape stacked along the first axis; arrays of variable length
    joined, with their lengths under ``<name>:lengths``; and the numbers of the samples under ``index``.  Use it as a
    context manager, or call :meth:`close`, so that workers end.
    """

    def __init__(self, config: Config, fmt: Format, manifest: Manifest, rank: int, world_size: int) -> None:
        manifests = {"train": manifest}
        order = plan_order(config, fmt, manifests, rank, world_size)
        self._loaders = assemble(config, fmt, manifests, replace(order, evaluation=None), NULL)
        self._epoch = 0

    def __len__(self) -> int:
        """Number of batches of an epoch."""
        return len(self._loaders.train)

    def __iter__(self) -> Iterator[Batch]:
        """Yields the batches of the next epoch.

        Raises:
            DlioError: a batch cannot be read, or a worker ended.
        """
        epoch, self._epoch = self._epoch, self._epoch + 1
        batches = self._loaders.train.epoch(epoch)
        for _ in range(len(self)):
            yield next(batches)
            batches.read_on()

    def close(self) -> None:
        """End workers and threads."""
        self._loaders.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def dataset(
    config: Config | None = None, *, recipe: str | Path | None = None, overrides: Sequence[str] = ()
) -> SampleTensorDataset:
    """A map-style dataset of the training samples; generated data are written where they are missing.

    Args:
        config: the experiment, as ``compose`` returns it; ``None``: ``recipe`` and ``overrides`` give it.
        recipe: see :func:`~dlio_torch.api.configuration.compose`.
        overrides: see :func:`~dlio_torch.api.configuration.compose`.

    Raises:
        DlioError: the configuration is wrong, or data are missing or damaged.
    """
    _, fmt, manifest = _opened(chosen(config, recipe, overrides))
    return SampleTensorDataset(fmt, manifest)


def datapipe(
    config: Config | None = None,
    *,
    recipe: str | Path | None = None,
    overrides: Sequence[str] = (),
    rank: int = 0,
    world_size: int = 1,
) -> SamplePipe:
    """A DataPipe of the training samples in the order of the configuration: shuffled, streamed or interleaved.

    Args:
        config: see :func:`dataset`.
        recipe: see :func:`dataset`.
        overrides: see :func:`dataset`.
        rank: the rank whose samples are wanted.
        world_size: number of all ranks.

    Raises:
        DlioError: see :func:`dataset`.
    """
    experiment, fmt, manifest = _opened(chosen(config, recipe, overrides))
    return SamplePipe(experiment, fmt, manifest, rank, world_size)


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
        config: see :func:`dataset`.
        recipe: see :func:`dataset`.
        overrides: see :func:`dataset`.
        rank: the rank whose batches are wanted.
        world_size: number of all ranks.

    Raises:
        DlioError: see :func:`dataset`.
    """
    experiment, fmt, manifest = _opened(chosen(config, recipe, overrides))
    return Loader(experiment, fmt, manifest, rank, world_size)


def _opened(config: Config) -> tuple[Config, Format, Manifest]:
    """The format and the files of a configuration; generates what is missing."""
    fmt = format_of(config)
    data = locate_data(config, fmt)
    if config.dataset.path is None and fmt.needs_files:
        generate(config, fmt, SingleCommunicator(), NULL)
        folder = data_folder(config, fmt)
        content = description.read_description(folder)
        if content is not None:
            description.use_description(content, folder, fmt)
    return config, fmt, data.manifests["train"]


def _batches(plan: BatchSampler | PipePlan, source: Any, epoch: int) -> Iterator[Batch]:
    """Batches of one epoch, read in this process."""
    if isinstance(plan, PipePlan):
        source.begin(epoch)
        for fetched in source:
            yield fetched.opened()
        return
    numbers = EpochBatches(plan)
    numbers.begin(epoch)
    for batch in numbers:
        yield source.__getitems__(batch).opened()


def _separated(batch: Batch, specs: Sequence[ArraySpec]) -> list[SampleTensors]:
    """The samples of a batch, each with tensors of its own shape."""
    return [{name: as_tensor(array) for name, array in sample.items()} for _, sample in samples_of(batch, specs)]
