"""State of the page cache before an epoch: files are evicted or read, and the cached share is measured.

Each machine has a page cache of its own.  The ranks of a machine share the files among them, so that every machine
evicts or reads all files.  Shares are means over machines; ``None`` means that the file system does not tell.
"""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dlio_torch.config.schema import CacheGoal
from dlio_torch.environment.host import boot_id
from dlio_torch.environment.memory_limits import cache_room
from dlio_torch.environment.mounts import describe_mount
from dlio_torch.errors import PreconditionError
from dlio_torch.storage.local.cache_process import FILES_AT_ONCE, CacheWorker, InProcess
from dlio_torch.storage.rank_group import RankGroup
from dlio_torch.units import format_size

TOLERANCE = 0.03
"""Tolerance: data are cold if at most this share is cached, and warm if at most this share is not cached."""

_ATTEMPTS = 5
_FILES_PER_TASK = 1024
_PAUSE_S = 0.1  # pages under write-back or read-ahead are free a little later


@dataclass(frozen=True)
class DataSize:
    """Amount of data to cache.

    Attributes:
        files: number of files of the data set.
        bytes: their size; of staged copies the mean over machines.
        room_bytes: bytes that the page cache of the machine with the least memory can take; ``None``: not known.
        machines: number of machines that the ranks run on.
    """

    files: int
    bytes: int
    room_bytes: int | None
    machines: int = 1

    @property
    def fits(self) -> bool | None:
        """Whether all data can stay in the page cache of each machine."""
        return None if self.room_bytes is None else self.bytes <= self.room_bytes


@dataclass(frozen=True)
class CachePreparation:
    """Preparation of the page cache before an epoch.

    Attributes:
        epoch: number of the epoch, from 1.
        attempts: times that the data were evicted or read; 0: the cache was only measured.
        seconds: duration, measurement included.
        cached_share_before: share of the data in the page cache, 0 to 1, before the preparation.
        cached_share: the same when the epoch began.
        reached: whether the state of the goal was reached; ``None``: it is ``as_is``, or the share is unknown.
        why: reason that the state was not reached, or that the share is unknown.
    """

    epoch: int
    attempts: int
    seconds: float
    cached_share_before: float | None
    cached_share: float | None
    reached: bool | None
    why: str | None


@dataclass(frozen=True)
class FileShares:
    """Cached shares of single files, over all machines.

    Attributes:
        measured: files whose cached share is known.
        cached: files of which more than :data:`TOLERANCE` lies in the page cache.
        largest: largest cached share of a file; ``None``: no share is known.
    """

    measured: int
    cached: int
    largest: float | None


class CachedFiles(Protocol):
    """The files whose pages are prepared.

    Attributes:
        bytes: of all files; the same on all ranks.
    """

    bytes: int

    def __len__(self) -> int:
        """Number of files."""

    def share(self, first: int, step: int, most: int | None = None) -> Iterator[str]:
        """Paths of every ``step``-th file from ``first`` on, at most about ``most``; no file is looked at."""


def thinned(numbers: range, most: int | None) -> range:
    """Every number, or every n-th one so that at most ``most`` are left."""
    return numbers if most is None or len(numbers) <= most else numbers[:: -(-len(numbers) // most)]


class CacheKeeper:
    """Prepares the page cache before epochs; all ranks make the same calls.

    Args:
        goal: state into which the data are brought.
        files: the files to prepare.
        comm: the ranks.
        worker: runs this rank's tasks on the page cache; ``None``: this process.

    Attributes:
        goal: as given.
        size: amount of data.
        prepared: one entry for each preparation, in order.
    """

    def __init__(self, goal: CacheGoal, files: CachedFiles, comm: RankGroup, worker: CacheWorker | None = None) -> None:
        self.goal = goal
        self._files = files
        self._comm = comm
        self._worker = worker or InProcess()
        self._first, self._step, machines = _rank_on_machine(comm)
        self.size = self._size(machines)
        self.prepared: list[CachePreparation] = []

    def use(self, worker: CacheWorker) -> None:
        """Run tasks by ``worker`` from now on."""
        self._worker = worker

    def prepare(self, epoch: int) -> CachePreparation:
        """Bring the data into the state of the goal; returns the outcome on every rank.

        Raises:
            PreconditionError: ``cache.state=warm``, and the data are larger than the page cache can be.
        """
        began = time.perf_counter()
        self._require_room()
        share = before = self._measure()[0]
        reached: bool | None = None
        refused = worst = None
        attempts = 0
        while self.goal != "as_is" and attempts < _ATTEMPTS and not reached:
            time.sleep(_PAUSE_S * attempts)
            refused = self._run("evict" if self.goal == "cold" else "read")
            attempts += 1
            share, worst = self._measure()
            if share is None:
                break
            reached = share <= TOLERANCE if self.goal == "cold" else share >= 1 - TOLERANCE
        why = self._why(share, reached, worst, refused)
        preparation = CachePreparation(epoch, attempts, time.perf_counter() - began, before, share, reached, why)
        self.prepared.append(preparation)
        return preparation

    def file_shares(self) -> FileShares:
        """Measure the cached share of each file; returns the outcome on every rank."""
        shares = self._worker.run("measure_files", list(self._files.share(self._first, self._step)))
        everyone = [share for rank in self._comm.gather_objects(shares) or [] for share in rank]
        cached = sum(share > TOLERANCE for share in everyone)
        return self._comm.broadcast_object(FileShares(len(everyone), cached, max(everyone, default=None)))

    def _require_room(self) -> None:
        size = self.size
        if self.goal == "warm" and size.fits is False and self._comm.rank == 0:
            raise PreconditionError(
                f"cache.state=warm is not possible: the data have {format_size(size.bytes)}, but the page cache has "
                f"room for only {format_size(size.room_bytes or 0)}",
                hint="set cache=as_is or cache=cold, or use less data",
            )
        self._comm.barrier()

    def _run(self, task: str) -> str | None:
        """Run a task on all files; returns the first error of any rank, ``None`` without errors."""
        refused: list[str] = []
        files = self._files.share(self._first, self._step)
        while batch := list(itertools.islice(files, _FILES_PER_TASK)):
            refused += self._worker.run(task, batch)
        first = next((why for rank in self._comm.gather_objects(refused) or [] for why in rank), None)
        return self._comm.broadcast_object(first)

    def _measure(self) -> tuple[float | None, str | None]:
        """Cached share of the data, and the file with the largest cached share."""
        measured = self._worker.run("measure", list(self._files.share(self._first, self._step, FILES_AT_ONCE)))
        everyone = self._comm.gather_objects(measured)
        return self._comm.broadcast_object(_merge(everyone) if everyone is not None else (None, None))

    def _why(self, share: float | None, reached: bool | None, worst: str | None, refused: str | None) -> str | None:
        """Reason that the cache state was not reached or is unknown, determined by rank 0."""
        why = None
        if self._comm.rank == 0:
            if share is None:
                first = next(self._files.share(0, 1, 1), None)
                kind = describe_mount("", Path(first), {})["file_system"] if first is not None else None
                why = f"the file system ({kind or 'unknown'}) does not report which pages are in the page cache"
            elif reached is False:
                why = refused
                if why is None and self.goal == "cold" and worst is not None:
                    why = str(self._worker.run("why_cached", [worst])[0])
                elif why is None:
                    why = "the system evicted pages as soon as they were read, because memory is short"
        return self._comm.broadcast_object(why)

    def _size(self, machines: int) -> DataSize:
        rooms = [room for room in self._comm.gather_objects(cache_room()) or [] if room is not None]
        room = self._comm.broadcast_object(min(rooms, default=None))
        return DataSize(len(self._files), self._files.bytes, room, machines)


def _rank_on_machine(comm: RankGroup) -> tuple[int, int, int]:
    """Number of this rank on its machine, number of ranks there, and number of machines."""
    everyone = comm.gather_objects((socket.gethostname(), boot_id()))
    places = None
    if everyone is not None:
        # Numbers and not names, as all ranks get those of all.
        _, machines, ranks = np.unique([" ".join(host) for host in everyone], return_inverse=True, return_counts=True)
        before = np.zeros(len(ranks), np.int32)
        places = np.zeros((len(everyone), 2), np.int32)
        for rank, machine in enumerate(machines.tolist()):
            places[rank] = before[machine], ranks[machine]
            before[machine] += 1
    places = comm.broadcast_object(places)
    assert places is not None
    number, of = places[comm.rank].tolist()
    return number, of, round((1 / places[:, 1]).sum())


def _merge(everyone: Sequence[Mapping[str, Any]]) -> tuple[float | None, str | None]:
    """Cached share over all ranks, and the file with the largest share."""
    known = sum(rank["measured_bytes"] for rank in everyone)
    share = sum(rank["cached_bytes"] for rank in everyone) / known if known else None
    worst = max((rank["worst"] for rank in everyone if rank["worst"]), key=lambda pair: pair[1], default=None)
    return share, None if worst is None else worst[0]
