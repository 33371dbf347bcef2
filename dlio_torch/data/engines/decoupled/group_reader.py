"""Execution of read plans: extents are read to their destination, chunks are decoded first.

A large plan falls into parts, which threads that have nothing else to do may take.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dlio_torch.data.engines.decoupled.block_pool import Memory
from dlio_torch.data.engines.decoupled.epoch import Part
from dlio_torch.data.engines.decoupled.group_plan import ReadPlan
from dlio_torch.errors import DataError
from dlio_torch.formats.core.chunk_decoder import open_chunk_decoder
from dlio_torch.formats.core.direct_file import not_permitted
from dlio_torch.formats.core.layout import Chunks, Ints, Records
from dlio_torch.iotrace.recorder.spans import Recorder
from dlio_torch.native.extents import ExtentError, Mover
from dlio_torch.native.memory import address_of
from dlio_torch.native.swapping import open_swapper
from dlio_torch.syserrors import unreadable

_PART_BYTES = 2 << 20
"""Minimum bytes of work per thread."""


class Reading:
    """Thread-safe division of read plans into parts.

    Args:
        mover: reads and copies.
        request: most bytes of a read request.
        threads: parts into which a large plan falls.
        recorder: takes spans ``read`` and ``decode``.

    Attributes:
        mover: as given.
    """

    def __init__(self, mover: Mover, request: int, threads: int, recorder: Recorder) -> None:
        self.mover = mover
        self._request = request
        self._threads = threads
        self._recorder = recorder
        self._decoder = open_chunk_decoder()
        self._local = threading.local()

    def parts(self, plan: ReadPlan, memory: Memory) -> list[Part]:
        """Divides the reads that fill ``memory`` into parts, which any thread may run and which raise DataError."""
        return self.parts_at(plan, address_of(memory))

    def parts_at(self, plan: ReadPlan, base: int) -> list[Part]:
        """Same as :meth:`parts`, for memory that begins at an address."""
        parts: list[Part] = []
        for low, high in cuts(plan.extents.lengths, self._threads):
            parts.append(partial(self._read, plan, low, high, base))
        if plan.copies:
            sources, lengths, to = (
                np.concatenate([getattr(part, name) for part in plan.copies]) for name in ("sources", "lengths", "to")
            )
            parts += self.copies(sources, lengths, to + base)
        for records in plan.records:
            for low, high in cuts(records.spans, self._threads):
                parts.append(partial(self._take_apart, records, low, high, base))
        for descriptor, chunks in plan.chunks:
            # A chunk that is inflated takes the time of reading several times its size.
            for low, high in cuts(np.full(len(chunks.offsets), chunks.size, np.int64), self._threads):
                parts.append(partial(self._decode, plan.paths[descriptor], descriptor, chunks, low, high, base))
        return parts

    def copies(self, sources: Ints, lengths: Ints, to: Ints) -> list[Part]:
        """Divides copies of memory extents, given by addresses, into parts."""
        return [
            partial(self.mover.copy, sources[low:high], lengths[low:high], to[low:high])
            for low, high in cuts(lengths, self._threads)
        ]

    def _read(self, plan: ReadPlan, low: int, high: int, base: int) -> None:
        extents, descriptors = plan.extents, plan.descriptors[low:high]
        began = time.perf_counter_ns()
        lengths, to = extents.lengths[low:high], extents.to[low:high] + base
        self._fill(plan.paths, descriptors, extents.offsets[low:high], lengths, to)
        if extents.turned is not None:
            open_swapper().swap(to, lengths, extents.turned[low:high])
        if self._recorder.enabled:
            path = str(next(iter(plan.paths.values()))) if len(plan.paths) == 1 else None
            size = int(lengths.sum())
            self._recorder.add("read", began, time.perf_counter_ns(), file=path, bytes=size)

    def _take_apart(self, records: Records, low: int, high: int, base: int) -> None:
        began = time.perf_counter_ns()
        records.layout.read(records, low, high, base, self._request)
        if self._recorder.enabled:
            size = int(records.spans[low:high].sum())
            self._recorder.add("read", began, time.perf_counter_ns(), file=str(records.layout.path), bytes=size)

    def _decode(self, path: Path, descriptor: int, chunks: Chunks, low: int, high: int, base: int) -> None:
        add, clock = self._recorder.add, time.perf_counter_ns
        for first, last in _pieces_of(chunks.sizes, low, high, self._request):
            began = clock()
            sizes = chunks.sizes[first:last]
            ends = np.cumsum(sizes)
            starts = ends - sizes
            scratch = self._scratch(int(ends[-1]))
            address = address_of(scratch)
            order = np.argsort(chunks.offsets[first:last], kind="stable")
            which = np.full(len(sizes), descriptor, np.int32)
            paths = {descriptor: path}
            self._fill(paths, which, chunks.offsets[first:last][order], sizes[order], (starts + address)[order])
            read = clock()
            add("read", began, read, file=str(path), bytes=int(ends[-1]))
            self._decoder.decode(path, chunks, first, last, starts + address, base)
            add("decode", read, clock(), file=str(path))

    def _scratch(self, size: int) -> Memory:
        """Scratch memory of this thread, which is reused."""
        memory: Memory | None = getattr(self._local, "scratch", None)
        if memory is None or len(memory) < size:
            memory = self._local.scratch = np.empty(size, np.uint8)
        return memory[:size]

    def _fill(
        self, paths: dict[int, Path], descriptors: npt.NDArray[np.int32], offsets: Ints, lengths: Ints, to: Ints
    ) -> None:
        try:
            self.mover.read(descriptors, offsets, lengths, to, self._request)
        except ExtentError as error:
            extent = error.extent
            wanted = paths[int(descriptors[extent])], int(offsets[extent]), int(lengths[extent])
            raise extent_error(*wanted, error.got, error.errno) from error


def extent_error(path: Path, first: int, length: int, got: int, number: int | None) -> DataError:
    """The error of an extent that could not be read.

    Args:
        path: the file.
        first: first byte of the extent.
        length: its bytes.
        got: bytes of it that were read.
        number: errno; ``None``: the file ended.
    """
    if number == errno.EINVAL:  # of what is asked for here, only a direct read can be invalid
        return not_permitted(path)
    if number is not None:
        return unreadable(path, OSError(number, os.strerror(number)))
    return ended_early(path, first, got, length)


def ended_early(path: Path, first: int, got: int, length: int) -> DataError:
    """The error of a file of which only ``got`` of ``length`` bytes from byte ``first`` on are there."""
    return DataError(
        f"{path} ends at byte {first + got}, but {length} bytes from byte {first} on were requested",
        hint="the file is damaged or incomplete; remove the file and generate the data again",
    )


def cuts(sizes: Ints, most: int) -> Iterator[tuple[int, int]]:
    """Borders of at most ``most`` ranges of about equal sizes; fewer if the ranges would be too small."""
    count = len(sizes)
    if int(sizes.sum()) < 2 * _PART_BYTES:
        if count:
            yield 0, count
        return
    ends = np.cumsum(sizes)
    parts = max(1, min(most, count, int(ends[-1]) // _PART_BYTES))
    borders = np.searchsorted(ends, ends[-1] * np.arange(1, parts) // parts).tolist()
    low = 0
    for high in [*borders, count]:
        if high > low:
            yield low, high
            low = high


def _pieces_of(sizes: Ints, low: int, high: int, limit: int) -> Iterator[tuple[int, int]]:
    """Splits ``low`` to ``high`` into ranges of at most ``limit`` bytes, or of one chunk."""
    while low < high:
        ends = np.cumsum(sizes[low:high])
        last = low + max(1, int(np.searchsorted(ends, limit, side="right")))
        yield low, min(last, high)
        low = last
