"""Samples that are read for lanes: each whole into its own buffer, window by window.

How long a sample is, its file tells before it is read; so lanes can be dealt while samples are still coming.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dlio_torch.data.dataset.verification import check_contents
from dlio_torch.data.engines.decoupled.batch_groups import DecoupledSource, batches_of
from dlio_torch.data.engines.decoupled.buffer_pool import BufferPool, Ints
from dlio_torch.data.engines.decoupled.epoch import Part, Share
from dlio_torch.data.engines.decoupled.group_plan import Planner, ReadPlan
from dlio_torch.data.engines.decoupled.group_reader import Reading
from dlio_torch.errors import DlioError
from dlio_torch.formats.core.batch import Batch
from dlio_torch.native.memory import address_of


@dataclass(eq=False, slots=True)
class Incoming:
    """One request of a lane for a sample; a repeated request is another object.

    Attributes:
        number: of the sample.
        rows: rows of its shortest array; valid once its window is known.
        error: why it cannot be read.
        address: of its memory.
        sizes: bytes of its arrays; empty: it has no memory.
        done: set when it is in memory, or cannot be; ``None``: only its length was asked for.
    """

    number: int
    rows: int = 0
    error: BaseException | None = None
    address: int = 0
    sizes: Sequence[int] = ()
    done: threading.Event | None = None


@dataclass(eq=False)
class SampleWindow:
    """Samples that are read together.

    Attributes:
        samples: in the order in which lanes ask for them.
        whole: they are read; else only their lengths are found.
        known: the lengths of all are there, or errors.
        done: set when they are in memory, or cannot be.
        plans: what is still to be read, and for which samples.
    """

    samples: Sequence[Incoming]
    whole: bool
    known: bool = False
    plans: list[tuple[Sequence[Incoming], ReadPlan]] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)


def one_by_one(parts: Sequence[Part]) -> None:
    """Runs all parts in the current thread."""
    for part in parts:
        part()


class IncomingReader:
    """Thread-safe reader of samples and their lengths.

    Args:
        source: what is read.
        planner: finds extents.
        reading: moves bytes.
    """

    def __init__(self, source: DecoupledSource, planner: Planner, reading: Reading) -> None:
        self._source = source
        self._planner = planner
        self._reading = reading
        self._buffers = BufferPool()
        specs = source.fmt.specs()
        self._row_bytes = np.array([math.prod(spec.shape) * spec.dtype.itemsize for spec in specs], np.int64)
        self._cut = [number for number, spec in enumerate(specs) if spec.variable]
        self._lengths = np.full(source.manifest.num_samples, -1, np.int64)  # those that were found without reading

    def find(self, window: SampleWindow) -> None:
        """Find the lengths of a window's samples; their files stay open until the samples are read."""
        find = self._placed if window.whole else self._measured
        try:
            window.plans = find(window.samples)
        except DlioError:
            for sample in window.samples:  # a damaged file costs its own samples alone
                try:
                    window.plans += find([sample])
                except DlioError as error:
                    sample.error = error.with_traceback(None)
        except BaseException as error:
            self._failed(window, error)

    def read(self, window: SampleWindow, share: Share) -> None:
        """Read a window whose lengths are known."""
        try:
            for samples, plan in window.plans:
                self._read(samples, plan, share)
        except BaseException as error:
            self._failed(window, error)
        finally:
            window.plans = []  # files need not stay open for them
            window.done.set()

    def take_back(self, samples: Sequence[Incoming]) -> None:
        """Free the memory of these samples."""
        kept = [sample for sample in samples if sample.sizes]
        if kept:
            addresses = np.array([sample.address for sample in kept], np.int64)
            self._buffers.give(addresses, np.array([sum(sample.sizes) for sample in kept], np.int64))

    @staticmethod
    def _failed(window: SampleWindow, error: BaseException) -> None:
        for sample in window.samples:
            sample.error = sample.error or error

    def _placed(self, samples: Sequence[Incoming]) -> list[tuple[Sequence[Incoming], ReadPlan]]:
        plan, addresses, sizes = self._planner.apart(_numbers(samples), self._buffers.take)
        rows = self._rows(sizes).tolist()
        for sample, length, address, each in zip(samples, rows, addresses.tolist(), sizes.tolist(), strict=True):
            sample.rows, sample.address, sample.sizes = length, address, each
        return [(samples, plan)]

    def _measured(self, samples: Sequence[Incoming]) -> list[tuple[Sequence[Incoming], ReadPlan]]:
        numbers = _numbers(samples)
        unknown = np.unique(numbers[self._lengths[numbers] < 0])
        if len(unknown):
            self._lengths[unknown] = self._rows(self._planner.sizes(unknown))
        for sample, length in zip(samples, self._lengths[numbers].tolist(), strict=True):
            sample.rows = length
        return []

    def _rows(self, sizes: Ints) -> Ints:
        rows: Ints = (sizes[:, self._cut] // self._row_bytes[self._cut]).min(axis=1)
        return rows

    def _read(self, samples: Sequence[Incoming], plan: ReadPlan, share: Share) -> None:
        try:
            share(self._reading.parts_at(plan, 0))
            self._finish(samples)
        except DlioError as error:
            if len(samples) == 1:
                samples[0].error = error.with_traceback(None)
                return
            for sample in samples:
                self._read_alone(sample)

    def _read_alone(self, sample: Incoming) -> None:
        address = np.array([sample.address], np.int64)
        try:
            plan, _, _ = self._planner.apart(_numbers([sample]), lambda _: address)
            one_by_one(self._reading.parts_at(plan, 0))
            self._finish([sample])
        except DlioError as error:
            sample.error = error.with_traceback(None)

    def _finish(self, samples: Sequence[Incoming]) -> None:
        """Preprocess and verify samples that were read."""
        source = self._source
        if source.preprocess is not None:
            began = time.perf_counter_ns()
            source.preprocess.burn(len(samples))
            source.recorder.add("preprocess", began, time.perf_counter_ns())
        if source.verify:
            check_contents(self._joined(samples), source.fmt, source.manifest)

    def _joined(self, samples: Sequence[Incoming]) -> Batch:
        """Makes a batch of whole samples by copying them."""
        indices, sizes = _numbers(samples), np.array([sample.sizes for sample in samples], np.int64)
        plan = self._planner.joined([indices], sizes)
        memory = np.empty(plan.size, np.uint8)
        to = np.stack([section.first + section.ends[:-1] for section in plan.sections], axis=1)
        bases = np.array([sample.address for sample in samples], np.int64)
        begins = np.cumsum(sizes, axis=1) - sizes
        sources = (bases[:, None] + begins).ravel()
        one_by_one(self._reading.copies(sources, sizes.ravel(), to.ravel() + address_of(memory)))
        return batches_of(plan, memory)[0]


def _numbers(samples: Sequence[Incoming]) -> Ints:
    return np.array([sample.number for sample in samples], np.int64)
