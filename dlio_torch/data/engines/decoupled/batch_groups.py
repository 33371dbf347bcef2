"""Groups of batches, each read into one block of memory and cut into tensors."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from dlio_torch.compute.emulate import Preprocess
from dlio_torch.data.dataset.fetched import Fetched, failed
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.dataset.provenance import BatchRecorder, BatchStart
from dlio_torch.data.dataset.verification import check_contents
from dlio_torch.data.engines.decoupled.block_arrays import BlockArray, host_array, in_host_memory, tensor_of
from dlio_torch.data.engines.decoupled.block_pool import BlockPool
from dlio_torch.data.engines.decoupled.device_blocks import DeviceBlocks
from dlio_torch.data.engines.decoupled.device_reading import DeviceReading
from dlio_torch.data.engines.decoupled.epoch import Share
from dlio_torch.data.engines.decoupled.epoch_plans import Plans
from dlio_torch.data.engines.decoupled.group_plan import ArraySection, Planner, ReadPlan
from dlio_torch.data.engines.decoupled.group_reader import Reading
from dlio_torch.data.engines.decoupled.readahead_hints import Ahead
from dlio_torch.data.order.orders import BatchProducer, Indices
from dlio_torch.errors import DlioError
from dlio_torch.formats.core.batch import INDEX, LENGTHS, Batch, as_tensor, batch_bytes
from dlio_torch.formats.core.format import Format
from dlio_torch.iotrace.recorder.spans import Recorder


@dataclass(frozen=True)
class DecoupledSource:
    """Source of samples for the decoupled engine.

    Attributes:
        fmt: tells where the samples lie.
        manifest: names the files.
        recorder: takes the spans.
        preprocess: CPU time to spend on each sample.
        verify: compare each sample with what was generated.
    """

    fmt: Format
    manifest: Manifest
    recorder: Recorder
    preprocess: Preprocess | None = None
    verify: bool = False


@dataclass(frozen=True)
class GroupSpec:
    """Division of an epoch's batches into groups.

    Attributes:
        steps: the steps whose batches are wanted.
        each: batches of a group.
        batch_bytes: bytes of a batch in the mean.
        share: which of how many shares of the groups these are.
        ahead: groups of which the system is told before they are read, where the cache is cold.
    """

    steps: range
    each: int
    batch_bytes: float
    share: tuple[int, int] = (0, 1)
    ahead: int = 0

    def __len__(self) -> int:
        """Number of groups of this share."""
        return len(range(self.share[0], -(-len(self.steps) // self.each), self.share[1]))

    def steps_of(self, number: int) -> range:
        """The steps of one group of this share."""
        first = (number * self.share[1] + self.share[0]) * self.each
        return self.steps[first : first + self.each]


@dataclass(frozen=True)
class GroupTools:
    """Objects that make groups; an engine uses the same ones in all epochs.

    Attributes:
        planner: finds the extents of samples.
        reading: moves bytes.
        blocks: memory.
        array: an array of a block: its rows can be cut.
    """

    planner: Planner
    reading: Reading | DeviceReading
    blocks: BlockPool | DeviceBlocks
    array: BlockArray = host_array


class GroupLayout(NamedTuple):
    """Layout of a block with batches, a part of its plan.

    Attributes:
        indices: sample numbers of all batches, one after another.
        counts: samples of each batch.
        sections: the arrays; the ends of samples that are all alike are not needed.
    """

    indices: Indices
    counts: tuple[int, ...]
    sections: Sequence[ArraySection]


class BatchGroups:
    """Groups of batches of one epoch; implements ``epoch.Groups``.

    Args:
        source: what is read.
        spec: which groups.
        producer: gives the sample numbers of a step.
        tools: what they are made with.
    """

    def __init__(self, source: DecoupledSource, spec: GroupSpec, producer: BatchProducer, tools: GroupTools) -> None:
        self._source = source
        self._spec = spec
        self._groups = len(spec)
        self._size, self._last_size = (
            round(len(spec.steps_of(number)) * spec.batch_bytes) for number in (0, self._groups - 1)
        )
        self._producer = producer
        self._planner, self._array = tools.planner, tools.array
        self._reading: Any = tools.reading  # blocks and reading are for memory of the same kind
        self._blocks: Any = tools.blocks
        self._batch_recorder = BatchRecorder(source.recorder)
        self._is_plain = not (source.recorder.enabled or source.verify or source.preprocess)
        # Nothing here refers back to the groups: what they hold is free as soon as nobody makes them any more.
        self._plans = plans = Plans(
            tools.planner, lambda number: [producer(step) for step in spec.steps_of(number)], self._groups
        )
        self._ahead = Ahead(plans, self._groups, spec.ahead, tools.reading.mover)

    def __len__(self) -> int:
        """Number of groups."""
        return self._groups

    def size(self, number: int) -> int:
        """Mean bytes of a group."""
        return self._size if number < self._groups - 1 else self._last_size

    def make(self, number: int, share: Share) -> list[Fetched]:
        """Makes the batches of a group; a batch that cannot be read becomes an error without affecting the others."""
        begun, steps = self._batch_recorder.begin(), self._spec.steps_of(number)
        try:
            return self._read_batches(lambda: self.plan(number), share, begun)
        except DlioError as error:
            if len(steps) == 1:
                return [failed(error)]
        return [item for step in steps for item in self._alone(step, share)]

    def steps(self, number: int) -> range:
        """The steps of a group."""
        return self._spec.steps_of(number)

    def plan(self, number: int) -> ReadPlan:
        """Takes the plan of a group, once.

        Raises:
            DataError: a file is missing or damaged.
        """
        return self._ahead.take(number)

    def plan_step(self, step: int) -> ReadPlan:
        """Plans the batch of one step alone.

        Raises:
            DataError: a file is missing or damaged.
        """
        return self._planner([self._producer(step)])

    def first_plan(self) -> ReadPlan | None:
        """The plan of the first group, which can still be taken; ``None`` if it cannot be planned."""
        try:
            return self._plans.peek(0)
        except DlioError:
            return None

    def _alone(self, step: int, share: Share) -> list[Fetched]:
        try:
            return self._read_batches(lambda: self.plan_step(step), share, self._batch_recorder.begin())
        except DlioError as error:
            return [failed(error)]

    def _read_batches(self, planned: Callable[[], ReadPlan], share: Share, begun: BatchStart | None) -> list[Fetched]:
        plan = planned()
        memory = self._blocks.take(plan.size)
        share(self._reading.parts(plan, memory))
        return self._cut(plan, memory, begun)

    def cut(self, plan: ReadPlan, memory: Any, numbers: Sequence[int]) -> list[Fetched]:
        """Cuts a block that the read core has filled into the batches of its plan.

        Args:
            plan: of the block.
            memory: the block.
            numbers: of the batches; empty: they are recorded here, or not at all.
        """
        if not numbers:
            return self._cut(plan, memory, self._batch_recorder.begin())
        return [Fetched(batch, number) for batch, number in zip(self._batches(plan, memory), numbers, strict=True)]

    def _cut(self, plan: ReadPlan, memory: Any, begun: BatchStart | None) -> list[Fetched]:
        """Cuts a filled block into the batches of its plan."""
        recorder = self._batch_recorder
        if self._is_plain:
            return [Fetched(batch) for batch in batches_of(plan, memory, self._array)]
        fetched: list[Fetched] = []
        for batch in self._batches(plan, memory):
            # The first one has all of the reading: the others cost no more than what is done for them alone.
            fetched.append(recorder.end(begun, batch))
            begun = recorder.begin()
        return fetched

    def _batches(self, plan: ReadPlan, memory: Any) -> Iterator[Batch]:
        add, clock, source = self._source.recorder.add, time.perf_counter_ns, self._source
        recorded = source.recorder.enabled
        cut: list[Batch] = []
        for number, count in enumerate(plan.counts):
            if source.preprocess is not None:
                began = clock()
                source.preprocess.burn(count)
                add("preprocess", began, clock())
            began = clock()
            cut = cut or batches_of(plan, memory, self._array)
            batch = cut[number]
            if recorded:
                add("collate", began, clock(), bytes=batch_bytes(batch))
            if source.verify:
                check_contents(in_host_memory(batch), source.fmt, source.manifest)
            yield batch


def batches_of(plan: ReadPlan | GroupLayout, memory: Any, array: BlockArray = host_array) -> list[Batch]:
    """The batches of a block as views of its memory.

    Args:
        plan: of the block.
        memory: of the block.
        array: an array of such memory.
    """
    # NumPy cuts: any operation of torch gives up the interpreter lock, which then has to be waited for.
    samples = list(pairwise([0, *accumulate(plan.counts)]))
    batches: list[Batch] = [{INDEX: as_tensor(plan.indices[low:high])} for low, high in samples]
    for section in plan.sections:
        spec, ends = section.spec, section.ends
        borders = samples
        if spec.variable:
            row = math.prod(spec.shape) * spec.dtype.itemsize
            rows, lengths = ends // row, np.diff(ends) // row
            borders = [(int(rows[low]), int(rows[high])) for low, high in samples]
        whole = array(memory, spec, borders[-1][1], section.first)
        for batch, (low, high) in zip(batches, borders, strict=True):
            batch[spec.name] = tensor_of(whole[low:high])
        if spec.variable:
            for batch, (low, high) in zip(batches, samples, strict=True):
                batch[spec.name + LENGTHS] = as_tensor(lengths[low:high])
    return batches
