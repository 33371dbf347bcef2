"""Streams of whole files in the decoupled engine, which knows their order from the plan before reading.

Where samples are delivered in the order in which files are read, a group is what it always is.  Where a shuffle
pool, or a file whose samples are permuted, stands between, files are read in their own order to memory of single
samples, as far ahead as the pool reaches, and batches are put together from there: storage sees large requests,
one after another, whatever the shuffle.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from dlio_torch.data.dataset.fetched import Fetched, failed
from dlio_torch.data.dataset.provenance import BatchStart
from dlio_torch.data.engines.decoupled.batch_groups import BatchGroups, DecoupledSource, GroupSpec, GroupTools
from dlio_torch.data.engines.decoupled.buffer_pool import BufferPool, Ints
from dlio_torch.data.engines.decoupled.epoch import Share
from dlio_torch.data.order.orders import Indices
from dlio_torch.errors import DlioError
from dlio_torch.native.memory import address_of

Entries = Iterator[tuple[list[int], list[int]]]
"""Batches, and the samples that are read into memory for each."""


class PlannedBatches:
    """Batches of a plan, for threads that request steps in approximate order.

    Args:
        batches: of all steps from ``first`` on.
        first: step of the first one.
        keep: steps behind the latest one that can be asked for, and asked for again.
    """

    def __init__(self, batches: Iterator[list[int]], first: int, keep: int) -> None:
        self._batches = batches
        self._next = first
        self._keep = keep
        self._lock = threading.Lock()
        self._ready: dict[int, Indices] = {}

    def __call__(self, step: int) -> Indices:
        """Sample numbers of the batch of a step; int64 of ``(batch_size,)``."""
        with self._lock:
            while step >= self._next:
                self._ready[self._next] = np.array(next(self._batches), np.int64)
                self._ready.pop(self._next - self._keep, None)
                self._next += 1
            return self._ready[step]


@dataclass
class _Fill:
    """Samples that are read into memory for a group.

    Attributes:
        indices: the samples.
        done: set when they are there, or cannot be.
        error: why they cannot.
        addresses: of each sample.
        sizes: bytes of its arrays; of shape ``(samples, arrays)``.
    """

    indices: Indices
    done: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None
    addresses: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    sizes: Ints = field(default_factory=lambda: np.zeros((0, 0), np.int64))


@dataclass(frozen=True)
class _ScheduledGroup:
    """Work of a group: reads ``fill``, then cuts ``batches`` from samples that this and earlier groups have read.

    Attributes:
        fill: see above.
        batches: sample numbers of each.
        sources: of each sample of each batch, the fill that it is in and its position there.
    """

    fill: _Fill
    batches: Sequence[Indices]
    sources: Sequence[Sequence[tuple[_Fill, int]]]


class _Schedule:
    """Thread-safe scheduler of groups in order."""

    def __init__(self, entries: Entries, steps: range, each: int) -> None:
        self._entries = entries
        self._left = len(steps)
        self._each = each
        self._lock = threading.Lock()
        self._next = 0
        self._waiting: dict[int, _ScheduledGroup] = {}
        self._held: dict[int, list[tuple[_Fill, int]]] = {}  # what is in memory of each sample

    def __call__(self, number: int) -> _ScheduledGroup:
        with self._lock:
            while number >= self._next:
                self._waiting[self._next] = self._deal()
                self._next += 1
            return self._waiting.pop(number)

    def _deal(self) -> _ScheduledGroup:
        pairs = [next(self._entries) for _ in range(min(self._each, self._left))]
        self._left -= len(pairs)
        entered = [sample for _, entries in pairs for sample in entries]
        fill = _Fill(np.array(entered, np.int64))
        for position, sample in enumerate(entered):
            self._held.setdefault(sample, []).append((fill, position))
        sources = [[self._pop(sample) for sample in batch] for batch, _ in pairs]
        return _ScheduledGroup(fill, [np.array(batch, np.int64) for batch, _ in pairs], sources)

    def _pop(self, sample: int) -> tuple[_Fill, int]:
        held = self._held[sample]
        source = held.pop(0)
        if not held:
            del self._held[sample]
        return source


class KeptGroups(BatchGroups):
    """Groups of batches whose samples are read in file order and kept in memory until delivery.

    Args:
        source: what is read.
        spec: which groups.
        entries: the batches, and what comes into memory for each.
        tools: what they are made with.
    """

    def __init__(self, source: DecoupledSource, spec: GroupSpec, entries: Entries, tools: GroupTools) -> None:
        batches = PlannedBatches(iter(()), 0, 1)  # the schedule says what a group is made of
        super().__init__(source, spec, batches, tools)
        self._schedule = _Schedule(entries, spec.steps, spec.each)
        self._buffers = BufferPool()

    def make(self, number: int, share: Share) -> list[Fetched]:
        """Makes the batches of a group; every batch that needs a sample of an unreadable fill becomes an error."""
        begun = self._batch_recorder.begin()
        group = self._schedule(number)
        self._fill(group.fill, share)
        # Earlier groups have been begun earlier, and wait only for those before them.
        for fill in {id(fill): fill for sources in group.sources for fill, _ in sources}.values():
            fill.done.wait()
        fetched: list[Fetched] = []
        good = [not any(fill.error is not None for fill, _ in sources) for sources in group.sources]
        if all(good):
            return self._put_together(group.batches, group.sources, share, begun)
        for batch, sources, whole in zip(group.batches, group.sources, good, strict=True):
            if whole:
                fetched += self._put_together([batch], [sources], share, self._batch_recorder.begin())
                continue
            error = next(fill.error for fill, _ in sources if fill.error is not None)
            if not isinstance(error, DlioError):
                raise error
            fetched.append(failed(error))
        return fetched

    def _fill(self, fill: _Fill, share: Share) -> None:
        try:
            if len(fill.indices):
                plan, fill.addresses, fill.sizes = self._planner.apart(fill.indices, self._buffers.take)
                share(self._reading.parts_at(plan, 0))
        except BaseException as error:
            fill.error = error
        finally:
            fill.done.set()

    def _put_together(
        self,
        batches: Sequence[Indices],
        sources: Sequence[Sequence[tuple[_Fill, int]]],
        share: Share,
        begun: BatchStart | None,
    ) -> list[Fetched]:
        addresses, sizes = self._locations([source for each in sources for source in each])
        plan = self._planner.joined(batches, sizes)
        memory = self._blocks.take(plan.size)
        base = address_of(memory)
        begins = np.cumsum(sizes, axis=1) - sizes
        to = np.stack([base + section.first + section.ends[:-1] for section in plan.sections], axis=1)
        share(
            self._reading.copies(
                (addresses[:, None] + begins).reshape(-1), np.ascontiguousarray(sizes).reshape(-1), to.reshape(-1)
            )
        )
        self._buffers.give(addresses, sizes.sum(axis=1))
        return self._cut(plan, memory, begun)

    def _locations(self, sources: Sequence[tuple[_Fill, int]]) -> tuple[Ints, Ints]:
        """Address of each sample and bytes of its arrays."""
        by_fill: dict[int, tuple[_Fill, list[int], list[int]]] = {}
        for slot, (fill, position) in enumerate(sources):
            _, slots, positions = by_fill.setdefault(id(fill), (fill, [], []))
            slots.append(slot)
            positions.append(position)
        addresses = np.empty(len(sources), np.int64)
        arrays = next(iter(by_fill.values()))[0].sizes.shape[1]
        sizes = np.empty((len(sources), arrays), np.int64)
        for fill, slots, positions in by_fill.values():
            addresses[slots], sizes[slots] = fill.addresses[positions], fill.sizes[positions]
        return addresses, sizes
