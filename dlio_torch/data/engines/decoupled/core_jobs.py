"""Read plans as jobs of the read core: submission, results, and the errors of jobs that failed."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dlio_torch.data.engines.decoupled.block_pool import BlockPool, Memory
from dlio_torch.data.engines.decoupled.copy_plan import extents_row, records_row
from dlio_torch.data.engines.decoupled.core_use import record_uses
from dlio_torch.data.engines.decoupled.group_plan import ReadPlan
from dlio_torch.data.engines.decoupled.group_reader import Reading, extent_error
from dlio_torch.data.engines.decoupled.open_files import OpenFile
from dlio_torch.data.engines.decoupled.warm_blocks import WarmBlocks
from dlio_torch.data.workers.worker_errors import no_batch
from dlio_torch.errors import DlioError
from dlio_torch.formats.core.chunk_decoder import native_file
from dlio_torch.formats.core.layout import Ints
from dlio_torch.iotrace.recorder.spans import Recorder
from dlio_torch.native.memory import address_of
from dlio_torch.native.read_core import CHUNKS, COPIES, TOO_SHORT, UNSUPPORTED, ReadCore, Report
from dlio_torch.syserrors import unreadable


class Job(NamedTuple):
    """Plan that the read core carries out.

    Attributes:
        plan: the reads.
        memory: block that they fill; ``None``: the core takes one of the warm blocks when it begins.
        handle: of the core's job; 0: Python has to carry it out.
    """

    plan: ReadPlan
    memory: Memory | None
    handle: int


def _nothing() -> None:
    """Does nothing during a wait."""


def no_tail(plan: ReadPlan) -> int:
    """No bytes behind those that are read."""
    return 0


class Jobs:
    """Read plans that the threads of a read core carry out.

    Args:
        core: the threads.
        warm: memory of plans that are not too large for it; ``None``: all take ``blocks``.
        blocks: memory of the others.
        reading: carries out what the core cannot, in the calling thread.
        recorder: takes spans ``read``.
        timeout_s: seconds to wait for a job; 0 disables the limit.
        tail: bytes of a block behind those that are read, for a plan.

    Attributes:
        idle: is called during long waits, which its exception ends.
    """

    def __init__(
        self,
        core: ReadCore,
        warm: WarmBlocks | None,
        blocks: BlockPool,
        reading: Reading,
        recorder: Recorder,
        timeout_s: float,
        tail: Callable[[ReadPlan], int],
    ) -> None:
        self.idle: Callable[[], None] = _nothing
        self._tail = tail
        self._core = core
        self._warm, self._blocks = warm, blocks
        self._reading = reading
        self._recorder = recorder
        self._timeout_s = timeout_s

    def submit(self, plan: ReadPlan) -> Job:
        """Starts the reads of a plan.

        Raises:
            RunFailed: there is not so much memory.
        """
        tasks, warm, size = task_rows(plan), self._warm, plan.size + self._tail(plan)
        if tasks is None:
            return Job(plan, self._blocks.take(size), 0)
        rows, recorded = tasks[0], self._recorder.enabled
        if warm is not None and size <= warm.size:
            warm.reserve()
            kept = plan, tasks, warm
            return Job(plan, None, self._core.submit(address_of(rows), len(rows), 0, kept, recorded=recorded))
        memory = self._blocks.take(size)
        handle = self._core.submit(
            address_of(rows), len(rows), address_of(memory), (plan, tasks, memory), recorded=recorded
        )  # fmt: skip
        return Job(plan, memory, handle)

    def cancel(self) -> bool:
        """Gives up all jobs; returns whether all have ended in time."""
        return self._core.cancel(_take_back)

    @property
    def is_idle(self) -> bool:
        """Whether no thread reads."""
        return self._core.is_idle

    def first(self, jobs: Sequence[Job]) -> Job:
        """Waits for one of some jobs and returns it.

        Raises:
            RunFailed: none was complete in time.
        """
        for job in jobs:
            if not job.handle:
                return job
        handle = self._core.wait([job.handle for job in jobs], self._timeout_s or None, self.idle)
        if handle is None:
            raise no_batch("reader threads", self._timeout_s)
        return next(job for job in jobs if job.handle == handle)

    def finish(self, job: Job) -> tuple[Memory, list[int]]:
        """Ends a job that :meth:`first` gave.

        Returns:
            The block that it has filled, and the numbers of its batches, if the core has recorded them.

        Raises:
            DlioError: it could not read everything.
        """
        plan, memory, handle = job
        if not handle:
            assert memory is not None
            self._by_python(plan, memory)
            return memory, []
        base, report = self._core.finish(handle)
        if memory is None:
            assert self._warm is not None
            memory = self._warm.lend(base, plan.size + self._tail(plan))
        self._reading.mover.cold = report is not None and report.cold
        if report is None:
            return memory, []
        numbers = record_uses(self._recorder, plan, report) if len(report.uses) else []
        if report.result == UNSUPPORTED:
            self._by_python(plan, memory)
        elif report.result:
            raise failure(plan, report)
        return memory, numbers

    def _by_python(self, plan: ReadPlan, memory: Memory) -> None:
        for part in self._reading.parts(plan, memory):
            part()


def _take_back(kept: tuple[ReadPlan, Any, WarmBlocks | Memory], base: int) -> None:
    """Returns the block of a job that has ended to the warm ones."""
    if base and isinstance(kept[2], WarmBlocks):
        kept[2].take_back(base)


def is_native(plan: ReadPlan) -> bool:
    """Whether the read core can carry out a plan."""
    return all(records.layout.native_file() is not None for records in plan.records)


def is_read_by_planning(plan: ReadPlan) -> bool:
    """Whether nothing is left to read: its files were read, and decoded, when they were opened."""
    layouts = [file.layout for file in plan.files if isinstance(file, OpenFile)]
    left = len(plan.extents.offsets) or plan.chunks or plan.records
    return not left and any(layout.once or layout.read_bytes for layout in layouts)


def task_rows(plan: ReadPlan) -> tuple[Ints, list[Any]] | None:
    """The plan as rows of tasks of the read core, and the arrays that they name beside the plan's.

    ``None`` if the core cannot carry it out.
    """
    if plan.row is not None:
        return plan.row, []
    if not is_native(plan):
        return None
    rows: list[tuple[int, ...]] = []
    kept: list[Any] = []
    if len(plan.extents.offsets):
        rows.append(extents_row(plan.descriptors, plan.extents))
    for copies in plan.copies:
        arrays = copies.sources, copies.lengths, copies.to
        rows.append((COPIES, len(copies.sources), 0, *map(address_of, arrays), 0, 0))
    rows += map(records_row, plan.records)
    for descriptor, chunks in plan.chunks:
        file, more = native_file(chunks, descriptor)
        offsets, sizes = np.ascontiguousarray(chunks.offsets), more[1]
        kept += [file, more, offsets]
        rows.append((CHUNKS, len(offsets), 0, address_of(offsets), address_of(sizes), 0, 0, address_of(file)))
    if not rows:  # nothing to read: one empty task
        rows.append((COPIES, 0, 0, 0, 0, 0, 0, 0))
    return np.array(rows, np.int64), kept


def failure(plan: ReadPlan, report: Report) -> DlioError:
    """The error of a job that failed."""
    errno, item = None if report.result == TOO_SHORT else report.result, report.item
    task = report.task - int(len(plan.extents.offsets) > 0)
    if task < 0:
        path, extents = plan.paths[int(plan.descriptors[item])], plan.extents
        return extent_error(path, int(extents.offsets[item]), int(extents.lengths[item]), report.got, errno)
    task -= len(plan.copies)
    if task < 0:
        raise MemoryError("no memory for a job of the read core")
    if task < len(plan.records):
        assert errno is not None  # a record that is cut needs another decoder, which says so
        return unreadable(plan.records[task].layout.path, OSError(errno, os.strerror(errno)))
    descriptor, chunks = plan.chunks[task - len(plan.records)]
    return extent_error(
        plan.paths[descriptor], int(chunks.offsets[item]), int(chunks.sizes[item]), report.got, errno
    )  # fmt: skip
