"""Replay of samples or batches from memory, to measure the cost of the parts of a loader.

=============  ==========================================================================================
``samples``    What some batches are made of is read before training.  A sample that is asked for later is
               one of those kept (its number modulo how many they are), copied into the fresh memory of its
               batch by the same code and thread; so a batch is collated and handed over as ever, and nothing
               is read, decoded or preprocessed.  In pipes, finished records stand where it read its own.
``batches``    Some batches are made before training, in memory of their own, and the trainer gets one after
               the other again and again, by reference: no process, no thread, no copy.  The memory traffic
               of making a batch is gone, too, and a batch is not freed after its step.
=============  ==========================================================================================

What is kept are the first batches of the first epoch, as many as two limits allow and one at least.  ``index``
of a batch names the samples that are really in it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from multiprocessing.process import BaseProcess
from typing import TypeVar

from torch.utils.data import Dataset
from torch.utils.data.datapipes.iter import IterableWrapper

from dlio_torch.config.schema import LoaderConfig
from dlio_torch.data.dataset.fetched import Fetched
from dlio_torch.data.dataset.map_dataset import SampleDataset
from dlio_torch.data.order.pipe_plan import PipePlan
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.pipeline.stream import BatchAssembler
from dlio_torch.data.pipeline.stream_dataset import Record
from dlio_torch.formats.core.batch import ArraySpec, Batch, batch_bytes, collated, samples_of
from dlio_torch.iotrace.recorder.spans import NULL, Recorder

Start = Callable[[int, int], Iterator[list[Record]]]
"""Function that starts the batches of records of an epoch and a part."""
_ItemT = TypeVar("_ItemT")


class _Kept:
    """Complete samples in their own memory.

    Args:
        specs: arrays of a sample.
        records: the samples; they are copied, for they may be views of a whole file or of a transfer buffer.
    """

    def __init__(self, specs: Sequence[ArraySpec], records: Iterable[Record]) -> None:
        self._variable = [spec.name for spec in specs if spec.variable]
        self.records = [(number, {name: array.copy() for name, array in batch.items()}) for number, batch in records]

    def __len__(self) -> int:
        return len(self.records)

    def nbytes(self) -> int:
        """Bytes of the samples' arrays."""
        return sum(array.nbytes for _, sample in self.records for array in sample.values())

    def fresh(self, records: list[Record]) -> list[Record]:
        """The records of a batch, from which the batch is copied.

        A single array of variable length is put together with nothing, and would be handed over itself.
        """
        if len(records) > 1 or not self._variable:
            return records
        names = self._variable
        return [(number, {**arrays, **{name: arrays[name].copy() for name in names}}) for number, arrays in records]


class ReplayedSamples(Dataset[Batch]):
    """Map-style dataset that answers every request with one of the kept samples.

    Args:
        length: samples of the data set.
        specs: arrays of a sample.
        records: what is kept.
        recorder: takes spans ``collate``.
    """

    def __init__(
        self, length: int, specs: Sequence[ArraySpec], records: Iterable[Record], recorder: Recorder = NULL
    ) -> None:
        self._length = length
        self._specs = list(specs)
        self._kept = _Kept(specs, records)
        self._recorder = recorder

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Batch:
        """A batch of one sample."""
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        """A batch of ``len(indices)`` samples, copied from the kept samples."""
        began, kept = time.perf_counter_ns(), self._kept
        batch = collated(self._specs, kept.fresh([kept.records[index % len(kept)] for index in indices]))
        self._recorder.add("collate", began, time.perf_counter_ns(), bytes=batch_bytes(batch))
        return batch

    def nbytes(self) -> int:
        """Bytes that the samples take."""
        return self._kept.nbytes()


class ReplayStart:
    """Start of a pipe whose records are kept ones; parts begin at different records.

    Args:
        plan: how many batches each part gives.
        specs: arrays of a record.
        batches: what is kept.
    """

    def __init__(self, plan: PipePlan, specs: Sequence[ArraySpec], batches: Iterable[list[Record]]) -> None:
        self._plan = plan
        self._kept = [_Kept(specs, records) for records in batches]

    def __call__(self, epoch: int, part: int) -> Iterator[list[Record]]:
        """Yields as many batches of records as the plan has."""
        for number in range(self._plan.part_lengths(epoch)[part]):
            kept = self._kept[(number + part) % len(self._kept)]
            yield kept.fresh(kept.records)

    def nbytes(self) -> int:
        """Bytes of the records' arrays."""
        return sum(kept.nbytes() for kept in self._kept)


class ReplayedBatches:
    """Engine without workers or threads that repeats the same few batches.

    Args:
        batches: in the order of steps, at least one.
        steps: batches of an epoch; ``None``: an epoch has no end of its own.
        pin: copy them to page-locked memory, now.
    """

    def __init__(self, batches: Sequence[Batch], steps: int | None, *, pin: bool = False) -> None:
        self._batches = [Fetched(_pinned(batch) if pin else batch) for batch in batches]
        self._steps = steps

    @property
    def workers(self) -> list[BaseProcess]:
        """Empty: there are no worker processes."""
        return []

    @property
    def threads(self) -> list[threading.Thread]:
        """Empty: there are no reader threads."""
        return []

    def start(self, epoch: int, step: int) -> Iterator[Fetched]:
        """Start the batches of ``epoch`` from ``step`` on."""
        return islice(self._again(), None if self._steps is None else self._steps - step)

    def close(self) -> None:
        """Does nothing, since there is nothing to end."""

    def _again(self) -> Iterator[Fetched]:
        while True:
            yield from self._batches

    def nbytes(self) -> int:
        """Memory of the batches in bytes."""
        return sum(batch_bytes(fetched.batch) for fetched in self._batches)


def _pinned(batch: Batch) -> Batch:
    return {name: array.pin_memory() for name, array in batch.items()}


def keep_samples(
    config: LoaderConfig,
    source: SampleDataset,
    plan: BatchSampler,
    specs: Sequence[ArraySpec],
    recorder: Recorder = NULL,
) -> ReplayedSamples:
    """Reads and keeps the samples of the first batches of ``plan``.

    Raises:
        DataError: they cannot be read.
    """
    batches = (source.__getitems__(plan.batch(0, step).tolist()) for step in range(len(plan)))
    records = (record for batch in _first(config, batches, batch_bytes) for record in samples_of(batch, specs))
    return ReplayedSamples(len(source), specs, records, recorder)


def keep_batches(config: LoaderConfig, source: SampleDataset, plan: BatchSampler) -> ReplayedBatches:
    """Reads and keeps the first batches of ``plan``.

    Raises:
        DataError: they cannot be read.
    """
    batches = (source.__getitems__(plan.batch(0, step).tolist()) for step in range(len(plan)))
    return ReplayedBatches(list(_first(config, batches, batch_bytes)), len(plan), pin=config.pin_memory)


def keep_records(config: LoaderConfig, start: Start, specs: Sequence[ArraySpec], plan: PipePlan) -> ReplayStart:
    """Reads and keeps the records of the first batches of the first non-empty part of ``plan``.

    Raises:
        DataError: they cannot be read.
    """
    return ReplayStart(plan, specs, _first(config, _records(start, plan), _bytes_of))


def keep_batches_of_records(
    config: LoaderConfig,
    start: Start,
    specs: Sequence[ArraySpec],
    plan: PipePlan,
) -> ReplayedBatches:
    """Keeps the same batches as tensors.

    Raises:
        DataError: they cannot be read.
    """
    batches = map(Fetched.opened, BatchAssembler(IterableWrapper(_records(start, plan), deepcopy=False), specs))
    steps = None if plan.endless else len(plan)
    return ReplayedBatches(list(_first(config, batches, batch_bytes)), steps, pin=config.pin_memory)


def _records(start: Start, plan: PipePlan) -> Iterator[list[Record]]:
    lengths = plan.part_lengths(0)
    part = next(part for part, length in enumerate(lengths) if length)
    return islice(start(0, part), lengths[part])


def _bytes_of(records: list[Record]) -> int:
    return sum(array.nbytes for _, sample in records for array in sample.values())


def _first(config: LoaderConfig, items: Iterator[_ItemT], size_of: Callable[[_ItemT], int]) -> Iterator[_ItemT]:
    """Takes items until the limit of their number is reached or the next might not fit into memory."""
    total = largest = 0
    for count, item in enumerate(items, 1):
        size = size_of(item)
        total, largest = total + size, max(largest, size)
        yield item
        if count >= config.replay_batches or total + largest > config.replay_bytes:
            return
