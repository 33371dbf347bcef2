"""Decoupled engine: threads that read batches by the extents of their samples."""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from multiprocessing.process import BaseProcess
from typing import Protocol

from dlio_torch.config.schema import LoaderConfig
from dlio_torch.data.engines.decoupled.batch_groups import BatchGroups, DecoupledSource, GroupSpec, GroupTools
from dlio_torch.data.engines.decoupled.block_arrays import BlockArray, device_array, host_array
from dlio_torch.data.engines.decoupled.block_pool import BlockPool, Blocks
from dlio_torch.data.engines.decoupled.core_epoch import CoreEpoch
from dlio_torch.data.engines.decoupled.core_jobs import Jobs, is_native, is_read_by_planning, no_tail
from dlio_torch.data.engines.decoupled.device_blocks import DeviceBlocks, current_gpu
from dlio_torch.data.engines.decoupled.device_files import device_file_opener
from dlio_torch.data.engines.decoupled.device_reading import DeviceReading
from dlio_torch.data.engines.decoupled.epoch import Epoch
from dlio_torch.data.engines.decoupled.facts import THREADS
from dlio_torch.data.engines.decoupled.group_plan import Planner, ReadPlan
from dlio_torch.data.engines.decoupled.group_reader import Reading
from dlio_torch.data.engines.decoupled.lane_batches import LaneGroups
from dlio_torch.data.engines.decoupled.open_files import Files
from dlio_torch.data.engines.decoupled.prefetch_window import window_of
from dlio_torch.data.engines.decoupled.reading_io import open_reading_mover, ring_depth
from dlio_torch.data.engines.decoupled.shared_block_pool import SharedBlocks
from dlio_torch.data.engines.decoupled.streams import KeptGroups, PlannedBatches
from dlio_torch.data.engines.decoupled.switch_interval import SHORT
from dlio_torch.data.engines.decoupled.warm_blocks import PrivateWarmBlocks, SharedWarmBlocks, WarmBlocks
from dlio_torch.data.order.lanes_plan import LanesPlan
from dlio_torch.data.order.orders import BatchProducer
from dlio_torch.data.order.pipe_plan import PipePlan
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.stream_plan import StreamPlan
from dlio_torch.data.workers.placement import UNPLACED, NativeThread, Placement, ReadingThread
from dlio_torch.formats.core.direct_file import BLOCK
from dlio_torch.formats.core.format import Format
from dlio_torch.native import NativeUnavailable
from dlio_torch.native.extents import Mover
from dlio_torch.native.read_core import ReadCore

_GROUP_BYTES = 6 << 20  # small batches are made together up to this size
_FILLS = 4  # times that a group fills the queue of a ring, which runs empty at the end of a group
_SHARES = 4  # groups of each worker at least, where there are enough batches
_HINTED = 16  # groups of which the system is told on a cold cache, at most
_CLOSING_S = 2.0
_ENDLESS = 1 << 40  # steps
_GROUPS_KEPT = 64  # groups of a stream whose order is known again, more than are under way
_SCATTERED = ("shuffled", "strided")  # orders in which each sample of a batch may lie in a file of its own
_STREAMED = 64  # most batches of a group of a stream: its order is worked out sample by sample


class Sampler(Protocol):
    """Protocol of a sampler of single samples."""

    @property
    def batch_size(self) -> int:
        """Number of samples of the largest batch."""

    def __len__(self) -> int:
        """Number of batches in an epoch."""

    def batch_producer(self, epoch: int) -> BatchProducer:
        """Returns the function that gives the sample numbers of each step."""


class DecoupledEngine:
    """Engine whose reader threads fill memory blocks with groups of batches.

    Args:
        config: the options of ``loader``.
        source: what is read.
        sampler: which samples, in which order.
        mover: reads and copies; ``None``: the best of this machine.
        blocks: the memory of batches; ``None``: of this process.
        share: which of how many shares of the groups, or parts of a plan, this engine makes.
        placement: CPUs of the reader threads.
        tail: bytes of a block behind those that are read, for a plan.

    Attributes:
        blocks: the memory of batches.
    """

    def __init__(
        self,
        config: LoaderConfig,
        source: DecoupledSource,
        sampler: Sampler | PipePlan,
        mover: Mover | None = None,
        *,
        blocks: BlockPool | None = None,
        share: tuple[int, int] = (0, 1),
        placement: Placement = UNPLACED,
        tail: Callable[[ReadPlan], int] = no_tail,
    ) -> None:
        self._placement = placement
        self._config = config
        self._source = source
        self._sampler = sampler
        self._share = share
        if isinstance(sampler, PipePlan) and sampler.parts != share[1]:
            raise ValueError(f"the plan has {sampler.parts} parts, but {share[1]} workers share the batches")
        self._batch_bytes = mean_batch_bytes(source.fmt, sampler)
        self._window = window_of(config, self._batch_bytes)
        self._threads = config.read_threads or THREADS
        self._depth = ring_depth(config)
        request = min(config.transfer_size, self._batch_bytes / sampler.batch_size)
        self._group_bytes = max(_GROUP_BYTES, int(_FILLS * self._depth * request))
        # A stream is done with a file when the next one takes its place.
        held = sampler.interleave + self._threads if isinstance(sampler, StreamPlan) else None
        limit = config.max_open_files * self._threads
        self._files = Files(source.fmt, source.manifest, source.recorder, limit, held)
        self._direct = direct = source.fmt.config.direct_io
        self._planner = Planner(source.fmt.specs(), source.manifest, self._files, block=BLOCK if direct else 0)
        # A mover that is given, and memory of a GPU, need Python's threads.
        self._may_use_core = mover is None and config.read_to == "host" and source.preprocess is None
        self._tail = tail
        self._core: ReadCore | None = None
        self._warm: WarmBlocks | None = None
        mover = mover or open_reading_mover(config, direct=direct)
        self.blocks: BlockPool | DeviceBlocks
        self._reading: Reading | DeviceReading
        if config.read_to == "device":
            self._array: BlockArray = device_array
            self.blocks, self._reading = self._to_device(mover, limit)
        else:
            self._array = host_array
            self.blocks = blocks or Blocks(self._threads + 2, self._window, pinned=config.pin_memory, direct=direct)
            self._reading = Reading(mover, config.transfer_size, self._threads, source.recorder)
        self._epoch: Epoch | CoreEpoch | None = None

    def _to_device(self, mover: Mover, limit: int) -> tuple[DeviceBlocks, DeviceReading]:
        """Memory of the current GPU, and reads that go there."""
        opener, request, recorder = device_file_opener(), self._config.transfer_size, self._source.recorder
        return DeviceBlocks(current_gpu()), DeviceReading(opener, mover, request, self._threads, recorder, limit)

    @property
    def workers(self) -> list[BaseProcess]:
        """Empty, because threads read."""
        return []

    @property
    def threads(self) -> Sequence[ReadingThread]:
        """The reader threads: those of the current epoch, or those of the read core."""
        if isinstance(self._epoch, Epoch):
            return self._epoch.threads
        return [] if self._core is None else [NativeThread(number) for number in self._core.thread_numbers]

    def start(self, epoch: int, step: int) -> Epoch | CoreEpoch:
        """Start the batches of ``epoch`` from ``step`` on."""
        with SHORT.during(self):
            return self._start(epoch, step)

    def _start(self, epoch: int, step: int) -> Epoch | CoreEpoch:
        self._stop()
        config, size = self._config, self._batch_bytes
        each = 1
        if self._source.preprocess is None:  # else the trainer would wait for the CPU work on batches behind
            each = max(1, int(min(self._group_bytes, self._window // (self._threads + 1)) // size))
        groups = self._groups(epoch, step, each, size)
        jobs = self._jobs(groups)
        if jobs is not None:
            room = self._room()
            most = None if room is None else max(1, room // len(groups.steps(0)))
            self._epoch = CoreEpoch(groups, jobs, limit=self._window, in_order=config.in_order, most=most)
            return self._epoch
        self._epoch = Epoch(
            groups,
            threads=self._threads,
            limit=self._window,
            in_order=config.in_order,
            timeout_s=config.timeout_s,
        )
        self._placement.place_threads(self._epoch.threads)
        return self._epoch

    def _jobs(self, groups: BatchGroups) -> Jobs | None:
        """Jobs of the read core, if it can read these groups."""
        if not self._may_use_core or type(groups) is not BatchGroups or not len(groups):
            return None
        plan = groups.first_plan()
        # Python's threads open files whose samples are read, or decoded, by that: the trainer would do it one by one.
        if plan is not None and (not is_native(plan) or is_read_by_planning(plan)):
            return None
        config = self._config
        if self._core is None:
            try:
                block = BLOCK if self._direct else 0
                self._core = ReadCore(self._threads, config.transfer_size, block, self._depth)
            except NativeUnavailable:
                self._may_use_core = False
                return None
            self._warm = None
            self._placement.place_threads(self.threads)
        if isinstance(self.blocks, Blocks | SharedBlocks):
            first = 0 if plan is None else plan.size + self._tail(plan)
            self._warm_up(self._core, self.blocks, max(1, groups.size(0), first))
        assert isinstance(self._reading, Reading)
        assert not isinstance(self.blocks, DeviceBlocks)
        return Jobs(
            self._core, self._warm, self.blocks, self._reading, self._source.recorder, config.timeout_s, self._tail
        )

    def _warm_up(self, core: ReadCore, blocks: Blocks | SharedBlocks, size: int) -> None:
        """Sees to blocks of at least ``size`` bytes."""
        if self._warm is not None and self._warm.size >= size:
            return
        if self._warm is not None:
            self._warm.retire()
        if any(spec.variable for spec in self._source.fmt.specs()):
            size += size // 4
        if isinstance(blocks, SharedBlocks):
            self._warm = SharedWarmBlocks(core, blocks, size)
            return
        # Those that are read ahead, the one that the trainer has, and the one that it drops when it has the next.
        most = max(self._threads, self._window // size) + 2
        self._warm = PrivateWarmBlocks(core, blocks, size, most)

    def _groups(self, epoch: int, step: int, each: int, size: float) -> BatchGroups:
        plan, source = self._sampler, self._source
        tools = GroupTools(self._planner, self._reading, self.blocks, self._array)
        share, shares = self._share
        left = plan.left(epoch, step) if isinstance(plan, PipePlan) else None  # steps of each share
        steps = range(step, len(plan)) if left is None else range(min(left[share], _ENDLESS))
        if shares > 1:  # each worker gets some, and parts come in groups of the same size
            least = len(steps) // shares if left is None else min(filter(None, left), default=0)
            each = max(1, min(each, least // _SHARES))
        room = self._room()
        if room is not None:
            each = min(each, max(1, room // (self._threads + 1)))
        hinted = max(1, min(_HINTED, int(self._window // (each * size))))
        if room is not None:
            hinted = max(1, min(hinted, room // each - self._threads))
        if not isinstance(plan, PipePlan):
            spec = GroupSpec(steps, each, size, self._share, hinted)
            return BatchGroups(source, spec, plan.batch_producer(epoch), tools)
        each = min(each, _STREAMED)
        part, done = plan.positions(epoch, step)[share]
        spec = GroupSpec(steps, each, size)
        if isinstance(plan, LanesPlan):
            threads, limit = self._threads, self._window
            return LaneGroups(source, spec, plan, (part, done), threads, limit, tools)
        if isinstance(plan, StreamPlan) and plan.keeps:
            return KeptGroups(source, spec, plan.part_entries(epoch, part, done), tools)
        batches = PlannedBatches(islice(plan.part_batches(epoch, part), done, None), 0, each * _GROUPS_KEPT)
        return BatchGroups(source, replace(spec, ahead=hinted), batches, tools)

    def _room(self) -> int | None:
        """Maximum number of batches planned at once, so that all their files can be open; ``None``: no limit."""
        plan, files = self._sampler, self._source.manifest.num_files
        scattered = isinstance(plan, BatchSampler) and plan.spec.order in _SCATTERED
        if not scattered or files <= self._files.limit:
            return None
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        each = self._source.fmt.files_per_sample()
        return max(1, (most // 2 - self._files.limit) // (plan.batch_size * each))

    def close(self) -> None:
        """End the threads; a thread still inside a read after two seconds is left to end after that read."""
        self._stop()
        if self._core is not None:
            self._core.close()
            self._core = None
        self._files.close()
        if isinstance(self._reading, DeviceReading):
            self._reading.close()

    def _stop(self) -> None:
        if self._epoch is None:
            return
        if isinstance(self._epoch, CoreEpoch):
            if not self._epoch.stop() and self._core is not None:
                self._core.close()  # its threads end after their reads; others read the next epoch
                self._core = None
            self._epoch = None
            return
        self._epoch.stop()
        end = time.monotonic() + _CLOSING_S
        for thread in self._epoch.threads:
            thread.join(max(0.0, end - time.monotonic()))
        self._epoch = None


def mean_batch_bytes(fmt: Format, sampler: Sampler | PipePlan) -> float:
    """Mean bytes of a batch, at least 1."""
    if isinstance(sampler, LanesPlan):
        each: float = sum(math.prod(spec.shape) * spec.dtype.itemsize for spec in sampler.cut(fmt.specs()))
    else:
        each = fmt.sample_bytes()
    return max(1.0, each * sampler.batch_size)
