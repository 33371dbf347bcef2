"""Lanes of the decoupled engine: prefetches samples in the order of requests and cuts batches from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dlio_torch.data.dataset.fetched import Fetched, failed
from dlio_torch.data.dataset.provenance import BatchStart
from dlio_torch.data.engines.decoupled.batch_groups import BatchGroups, DecoupledSource, GroupSpec, GroupTools
from dlio_torch.data.engines.decoupled.epoch import Share
from dlio_torch.data.engines.decoupled.group_reader import Reading
from dlio_torch.data.engines.decoupled.incoming_samples import IncomingReader
from dlio_torch.data.engines.decoupled.lane_schedule import Lanes, LaneSchedule
from dlio_torch.data.engines.decoupled.streams import PlannedBatches
from dlio_torch.data.order.lanes_plan import LanesPlan
from dlio_torch.errors import DlioError
from dlio_torch.native.memory import address_of

_WINDOW_BYTES = 1 << 20  # small samples are read together up to this size
_WINDOW_SAMPLES = 64  # and up to this number


class LaneGroups(BatchGroups):
    """Groups of batches that are cut from the samples in lanes.

    Args:
        source: what is read.
        spec: which groups.
        plan: which samples.
        place: part of the plan, and its batches before the first one that is wanted.
        threads: reader threads, which make groups.
        limit: bytes that are read ahead.
        tools: what groups are made with.
    """

    def __init__(
        self,
        source: DecoupledSource,
        spec: GroupSpec,
        plan: LanesPlan,
        place: tuple[int, int],
        threads: int,
        limit: int,
        tools: GroupTools,
    ) -> None:
        whole, cut = source.fmt.specs(), plan.cut(source.fmt.specs())
        # Samples are preprocessed and checked where they are read, as whole ones.
        lanes = replace(source, preprocess=None, verify=False)
        batches = PlannedBatches(iter(()), 0, 1)  # the schedule says what a group is made of
        super().__init__(lanes, spec, batches, replace(tools, planner=tools.planner.of(cut)))
        bytes_of = [[math.prod(spec.shape) * spec.dtype.itemsize for spec in specs] for specs in (whole, cut)]
        self._sizes = np.array(bytes_of[1], np.int64)  # bytes that a lane has in a batch, of each array
        self._strides = np.array(bytes_of[0], np.int64) * [spec.variable for spec in whole]  # from row to row
        window = int(min(_WINDOW_BYTES, limit // (threads + 1)) // max(1.0, source.fmt.sample_bytes()))
        window = max(1, min(window, _WINDOW_SAMPLES, plan.num_samples))
        assert isinstance(tools.reading, Reading)  # lanes are cut in the host's memory
        self._reader = IncomingReader(source, tools.planner, tools.reading)
        self._schedule = LaneSchedule(plan, *place, len(spec.steps), spec.each, self._reader, window, threads)

    def make(self, number: int, share: Share) -> list[Fetched]:
        """Makes the batches of a group; every batch that needs an unreadable sample becomes an error."""
        begun = self._batch_recorder.begin()
        group = self._schedule(number, share)
        try:
            errors = [step.failure() for step in group.steps]
            if not any(errors):
                return self._put_together([step.lanes for step in group.steps], share, begun)
            fetched: list[Fetched] = []
            for step, error in zip(group.steps, errors, strict=True):
                if error is None:
                    fetched += self._put_together([step.lanes], share, self._batch_recorder.begin())
                    continue
                if not isinstance(error, DlioError):
                    raise error
                fetched.append(failed(error))
            return fetched
        finally:
            self._schedule.finish(number, group)

    def _put_together(self, steps: Sequence[Lanes], share: Share, begun: BatchStart | None) -> list[Fetched]:
        lanes = [lane for step in steps for lane in step]
        batches = [np.array([sample.number for sample, _ in step], np.int64) for step in steps]
        whole = np.array([sample.sizes for sample, _ in lanes], np.int64)
        begins = np.array([sample.address for sample, _ in lanes], np.int64)[:, None] + np.cumsum(whole, axis=1) - whole
        firsts = np.array([first for _, first in lanes], np.int64)
        plan = self._planner.joined(batches, np.tile(self._sizes, (len(lanes), 1)))
        memory = self._blocks.take(plan.size)
        to = np.stack([section.first + section.ends[:-1] for section in plan.sections], axis=1) + address_of(memory)
        share(
            self._reading.copies(
                (begins + firsts[:, None] * self._strides).ravel(), np.tile(self._sizes, len(lanes)), to.ravel()
            )
        )
        return self._cut(plan, memory, begun)
