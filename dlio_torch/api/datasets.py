"""Map-style dataset and DataPipe of a configuration, for DataLoaders of one's own."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset, IterDataPipe, get_worker_info

from dlio_torch.api.configuration import check_count, check_rank, chosen
from dlio_torch.api.opened_data import OpenedData, open_data
from dlio_torch.config.schema import Config, LoaderConfig
from dlio_torch.data.dataset.map_dataset import SampleDataset
from dlio_torch.data.engines.sources import Loading
from dlio_torch.data.order.held_plan import fetched_by
from dlio_torch.data.order.pipe_plan import PipePlan
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.pipeline.sample_pipes import EpochBatches
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.batch import INDEX, LENGTHS, ArraySpec, Batch, collated
from dlio_torch.iotrace.recorder.spans import NULL

SampleTensors = dict[str, torch.Tensor]
"""Tensors of one sample by the names of its arrays."""


class SampleTensorDataset(Dataset[SampleTensors]):
    """Map-style dataset of single samples: each item is a dictionary of tensors.

    ``DataLoader(ds, batch_size=32, num_workers=2)`` stacks samples of fixed shape by its default collate function.
    Samples of variable length need :meth:`collate`.  The files are opened and read with the calls of the application,
    in the process that asks; they stay open there.
    """

    def __init__(self, data: OpenedData) -> None:
        config = data.config
        self._samples = SampleDataset(
            data.format,
            data.train,
            NULL,
            unit=config.access.unit,
            max_open_files=config.loader.max_open_files,
            verify=config.verify,
        )
        self._specs = data.format.specs()

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
            ConfigError: ``index`` is not a whole number.
            DataError: its file is damaged or missing.
        """
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[SampleTensors]:
        """The samples of several numbers; torch's DataLoader calls this for a batch.

        Raises:
            IndexError: there is no such sample.
            ConfigError: an index is not a whole number.
            DataError: a file is damaged or missing.
        """
        batch = self._samples.__getitems__([self._number(index) for index in indices])
        return _separated(batch, self._specs)

    def collate(self, samples: Sequence[SampleTensors]) -> Batch:
        """Collate function for samples of variable length: ``DataLoader(ds, collate_fn=ds.collate)``.

        Returns:
            Arrays of fixed shape stacked along a new first axis; arrays of variable length joined along their first
            axis, with the number of rows of each sample under ``<name>:lengths`` (int64).
        """
        arrays = [{spec.name: _array(sample[spec.name], spec) for spec in self._specs} for sample in samples]
        batch = collated(self._specs, list(enumerate(arrays)))
        del batch[INDEX]
        return batch

    def _number(self, index: int) -> int:
        try:
            number = operator.index(index)
        except TypeError:
            kind = type(index).__name__
            raise ConfigError(
                f"index {index!r}: expected a whole number, not {kind}",
                hint="for several samples use torch.utils.data.Subset or a DataLoader",
            ) from None
        if not -len(self) <= number < len(self):
            raise IndexError(f"sample {number} of a data set of {len(self)} samples")
        return number % len(self)


class SamplePipe(IterDataPipe[SampleTensors]):
    """DataPipe of the samples of one rank in the order of the configuration.

    Each worker of a DataLoader gets its share of the rank's batches.
    """

    def __init__(self, data: OpenedData, rank: int, world_size: int) -> None:
        super().__init__()
        self._data, self._rank, self._world_size = data, rank, world_size
        self._config, _ = data.order(rank, world_size)
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch (from 0) of the next iteration, on which shuffled orders depend.

        Raises:
            ConfigError: it is not a whole number of 0 or more.
        """
        check_count("epoch", epoch, 0)
        self._epoch = epoch

    def __iter__(self) -> Iterator[SampleTensors]:
        """Yields samples.

        Raises:
            DataError: a file is damaged or missing.
        """
        worker = get_worker_info()
        workers = worker.num_workers if worker is not None else 0
        loader = replace(self._config.loader, num_workers=workers, read_threads=0, engine=LoaderConfig().engine)
        data = replace(self._data, config=replace(self._config, loader=loader))
        config, order = data.order(self._rank, self._world_size)
        plan = fetched_by(order.train)
        source: Any = Loading(config, data.format, NULL, verify=config.verify).source(data.train, plan, 1)
        for batch in _batches(plan, source, self._epoch):
            yield from _separated(batch, data.format.specs())


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
    return SampleTensorDataset(open_data(chosen(config, recipe, overrides)))


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
    check_rank(rank, world_size)
    return SamplePipe(open_data(chosen(config, recipe, overrides, world_size=world_size)), rank, world_size)


def _batches(plan: BatchSampler | PipePlan, source: Any, epoch: int) -> Iterator[Batch]:
    """Batches of one epoch, read in this process."""
    source.begin(epoch, 0)
    if isinstance(plan, PipePlan):
        for fetched in source.pipes[0]:
            yield fetched.opened()
        return
    numbers = EpochBatches(plan)
    numbers.begin(epoch)
    for batch in numbers:
        yield source.__getitems__(batch).opened()


def _separated(batch: Batch, specs: Sequence[ArraySpec]) -> list[SampleTensors]:
    """The samples of a batch, each with tensors of its own shape (views, no copies)."""
    parts = {}
    for spec in specs:
        tensor = batch[spec.name]
        rows = batch[spec.name + LENGTHS].tolist() if spec.variable else []
        parts[spec.name] = torch.split_with_sizes(tensor, rows) if spec.variable else tensor.unbind()
    return [dict(zip(parts, tensors, strict=True)) for tensors in zip(*parts.values(), strict=True)]


def _array(tensor: torch.Tensor, spec: ArraySpec) -> npt.NDArray[np.generic]:
    """The array of a tensor; bytes of structured records become records again."""
    array: npt.NDArray[np.generic] = tensor.numpy()
    return array if spec.dtype.fields is None else np.ascontiguousarray(array).view(spec.dtype)[..., 0]
