"""Arrivals of groups from workers: which worker has published one, and whether workers have ended their run or died."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess

from dlio_torch.data.engines.decoupled.event_descriptors import clear_event
from dlio_torch.data.engines.decoupled.shared_memory import RING, Region, SharedMemory
from dlio_torch.data.workers.exits import WorkerLimits, exit_of
from dlio_torch.data.workers.worker_errors import no_batch

_SLICE_S = 0.1  # most seconds of a wait before workers are looked at


class Arrivals:
    """Groups of one run that workers have published and the trainer has not received.

    Args:
        shared: has the bell that workers ring.
        regions: of the workers.
        run: number of the run.
        workers: gives the processes.
        timeout_s: seconds to wait for a group; 0 disables the limit.
        limits: those that workers may meet.
    """

    def __init__(
        self,
        shared: SharedMemory,
        regions: Sequence[Region],
        run: int,
        workers: Callable[[], Sequence[BaseProcess]],
        timeout_s: float,
        limits: WorkerLimits,
    ) -> None:
        self._limits = limits
        self._bell = shared.bell
        self._poll = select.poll()
        self._poll.register(self._bell, select.POLLIN)
        self._regions = regions
        self._run = run
        self._workers = workers
        self._timeout_s = timeout_s

    def of(self, worker: int) -> int | None:
        """Waits for a group of one worker; returns its number, or ``None`` if it has ended the run.

        Raises:
            RunFailed: none came in time.
            DlioError, RuntimeError: a worker died.
        """
        return self._wait(lambda: self._first([worker], in_order=True))

    def next(self, last: int, *, in_order: bool) -> int | None:
        """Waits for a group of the worker whose turn it is; returns that, or ``None`` if all have ended the run.

        Args:
            last: the worker before; -1: none.
            in_order: workers take turns; else any.

        Raises:
            RunFailed: none came in time.
            DlioError, RuntimeError: a worker died.
        """
        count = len(self._regions)
        turns = [(last + 1 + number) % count for number in range(count)]
        return self._wait(lambda: self._first(turns, in_order=in_order))

    def _first(self, turns: Sequence[int], *, in_order: bool) -> tuple[int | None, bool]:
        """The first of some workers that has a group, and whether there is nothing more to wait for."""
        going_on = False
        for worker in turns:
            ended = self._regions[worker].ended == self._run  # looked at first: groups are published before
            if self._has_group(worker):
                return worker, True
            if not ended:
                if in_order:
                    return None, False
                going_on = True
        return None, not going_on

    def _has_group(self, worker: int) -> bool:
        region = self._regions[worker]
        while region.received < region.published:
            if region.ring[region.received % RING, 0] == self._run:
                return True
            region.received += 1  # of a run that was given up
        return False

    def _wait(self, first_group: Callable[[], tuple[int | None, bool]]) -> int | None:
        worker, is_over = first_group()
        end = time.monotonic() + (self._timeout_s or float("inf"))
        while not is_over:
            if self._poll.poll(_SLICE_S * 1000):
                clear_event(self._bell)
            elif time.monotonic() >= end:
                raise no_batch("loader workers", self._timeout_s)
            else:
                self._check_workers()
            worker, is_over = first_group()
        return worker

    def _check_workers(self) -> None:
        workers = self._workers()
        died = exit_of(workers, self._limits)
        if died is not None:
            raise died
        for worker in workers:
            if not worker.is_alive():
                raise RuntimeError(f"the loader worker (pid {worker.pid}) exited unexpectedly")
