"""Times of a run's batches in step order: production, transfer to the trainer, and the steps that use them.

What the pipeline model (:mod:`dlio_torch.analysis.advice.loader_model`) replays.  Times of making are those that the
thread would have needed with a core of its own: its time in the kernel's run queue is left out and counted apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dlio_torch.analysis.advice.transfer_times import TransferTime, fitted
from dlio_torch.analysis.producers import Floats, Key, Producer, producers_of
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.iotrace.figures.intervals import Intervals, covered, union
from dlio_torch.iotrace.figures.row_groups import group
from dlio_torch.train.steps import EVAL, TRAIN, Steps

_NS = 1e-9
_LIMIT = 2000  # batches of all ranks: enough for any figure, and a model that answers in milliseconds


@dataclass(frozen=True)
class RankTimes:
    """Times of one rank's batches in step order, in seconds; all arrays have one entry per batch.

    Attributes:
        epoch: epoch, from 1.
        measured: whether all steps that the batch served count (no warm-up).
        steps: steps that it served.
        fetch: what the trainer waited for it.
        before: from the batch to the allreduce of its steps: copies to a GPU and compute.
        reduce: their allreduces.
        after: the rest of its steps: checkpoints and the tool's own time.
        production: making it, without the wait for a core; NaN: not recorded.
        asleep: of that, how long the thread was blocked; NaN: not told.
        delay: how long the thread waited for a core while it made it; NaN: not told.
        read: of ``production``, spent in reading and decoding.
        preprocess: of ``production``, spent in preprocessing.
        transfer: what a transfer took, with the smallest part of the trainer and with the largest that fit the
            run; None where the trainer's own thread made the batches.
        begun: from the first step of its epoch asking for a batch to the begin of this one.
        idle: share of the producers' time in which they had no batch to make.
        producers: number of threads that produced the batches.
        by_trainer: whether the trainer's own thread produced them.
        turns: whether threads read in turn.
    """

    epoch: NDArray[np.int64]
    measured: NDArray[np.bool_]
    steps: NDArray[np.int64]
    fetch: Floats
    before: Floats
    reduce: Floats
    after: Floats
    production: Floats
    asleep: Floats
    delay: Floats
    read: Floats
    preprocess: Floats
    transfer: tuple[TransferTime, TransferTime] | None
    begun: Floats
    idle: float | None
    producers: int
    by_trainer: bool
    turns: bool


def rank_times(recording: Recording, steps: Mapping[int, Steps]) -> list[RankTimes] | None:
    """Collects the batch times of every rank; of a long run, only those of its first batches.

    Args:
        recording: the events of the run.
        steps: its records of steps, by rank.

    Returns:
        One for each rank, or None where the making of batches was not recorded.
    """
    spans = recording.spans
    merged = fetched_batches(spans)
    if merged is None or not steps:
        return None
    # Calls and devices would tell apart what a read waited for, which does not matter here.
    producers = producers_of(spans, recording.events.frame.iloc[:0], True)
    turns = spans[spans["op"] == "turn"]
    limit = max(100, _LIMIT // len(steps))
    ranks = []
    for rank, records in sorted(steps.items()):
        rows = merged[(merged["rank"] == rank).to_numpy()].sort_values("step")
        rank_batches = _of_rank(records, rows, _RankProducers(rank, producers, turns), limit)
        if rank_batches is None:
            return None
        ranks.append(rank_batches)
    return ranks


def fetched_batches(spans: pd.DataFrame) -> pd.DataFrame | None:
    """Joins each fetch with the production of its batch, columns ``*_made``; None where either was not recorded."""
    fetches = spans[spans["op"] == "fetch"]
    batches = spans[spans["op"] == "batch"].drop_duplicates(["rank", "offset"])
    if not len(fetches) or not len(batches):
        return None
    merged: pd.DataFrame = fetches.merge(batches, on=["rank", "offset"], how="inner", suffixes=("", "_made"))
    return merged


class ServedSteps(NamedTuple):
    """Training steps of one rank, grouped by the batch that served them.

    Attributes:
        trains: places of the training steps among all records.
        first: for each batch, the place of its first step among ``trains``.
        row: for each batch, the place of its row among those given.
        steps: for each batch, the number of steps that it served.
    """

    trains: NDArray[np.int64]
    first: NDArray[np.int64]
    row: NDArray[np.int64]
    steps: NDArray[np.int64]


def batches_of_steps(records: Steps, rows: pd.DataFrame) -> ServedSteps | None:
    """Groups the steps of one rank by batch; None if the production of some batch was not recorded.

    Args:
        records: records of the rank's steps.
        rows: its rows of :func:`fetched_batches`, in step order.
    """
    trains = np.flatnonzero(records["phase"] != EVAL)
    places = rows["step"].to_numpy() - 1  # place among the training steps
    if not places.size or places[-1] >= trains.size:
        return None
    number, row = np.full((2, trains.size), -1, np.int64)
    number[places], row[places] = rows["offset"].to_numpy(), np.arange(places.size)
    epoch = records["epoch"][trains].astype(np.int64)
    # A batch may serve several steps; those after its first one ask the loader for nothing.
    first = np.flatnonzero(np.concatenate(([True], (np.diff(number) != 0) | (np.diff(epoch) != 0))))
    if (row[first] < 0).any():
        return None
    return ServedSteps(trains, first, row[first], np.diff(np.append(first, trains.size)))


class _RankProducers:
    """The producers of one rank, and the times that they wait for their turn to read."""

    def __init__(self, rank: int, producers: Mapping[Key, Producer], turns: pd.DataFrame) -> None:
        self._rank, self._producers = rank, producers
        self._turns = turns[(turns["rank"] == rank).to_numpy()]
        self.in_turn = len(self._turns) > 0

    def of(self, rows: pd.DataFrame) -> Iterator[tuple[NDArray[np.int64], Producer, Intervals]]:
        """Yields for each producer thread: the rows of its batches, the thread, and its waits for a turn."""
        keys = rows[["pid_made", "tid_made"]].to_numpy()
        for pid, tid in sorted({(int(pid), int(tid)) for pid, tid in keys}):
            turns = self._turns[((self._turns["pid"] == pid) & (self._turns["tid"] == tid)).to_numpy()]
            waits = union(turns["start_ns"].to_numpy(), turns["end_ns"].to_numpy())
            yield np.flatnonzero((keys == (pid, tid)).all(axis=1)), self._producers[self._rank, pid, tid], waits


def _of_rank(records: Steps, rows: pd.DataFrame, producers: _RankProducers, limit: int) -> RankTimes | None:
    served = batches_of_steps(records, rows)
    if served is None:
        return None
    trains, row = served.trains, served.row[:limit]
    follows = _follows(records, trains, served.first)[:limit]
    first, steps = served.first[:limit], served.steps[:limit]
    rows, records = rows.iloc[row], records[trains]
    epoch = records["epoch"][first].astype(np.int64)
    upto = int(first[-1] + steps[-1])

    def summed(name: str) -> NDArray[np.int64]:
        sums: NDArray[np.int64] = np.add.reduceat(records[name][:upto].astype(np.int64), first)
        return sums

    start, fetch = records["start_ns"][first], records["fetch_ns"][first].astype(np.int64)
    compute, reduce = summed("copy_ns") + summed("compute_ns"), summed("allreduce_ns")
    parts = summed("fetch_ns") + compute + reduce + summed("checkpoint_ns")
    length = np.where(follows >= 0, follows - start, parts)
    opened = np.array([start[epoch == number][0] for number in epoch])
    by_trainer = bool(((rows["pid"] == rows["pid_made"]) & (rows["tid"] == rows["tid_made"])).all())
    return RankTimes(
        epoch=epoch,
        measured=np.add.reduceat((records["phase"][:upto] == TRAIN).astype(int), first) == steps,
        steps=steps,
        fetch=_seconds(fetch),
        before=_seconds(compute),
        reduce=_seconds(reduce),
        after=np.maximum(length - fetch - compute - reduce, 0) * _NS,
        transfer=None if by_trainer else _transfer(rows, start, fetch, epoch),
        begun=(rows["start_ns_made"].to_numpy() - opened) * _NS,
        idle=None if by_trainer else _idle(rows, producers),
        producers=len(rows[["pid_made", "tid_made"]].drop_duplicates()),
        by_trainer=by_trainer,
        turns=producers.in_turn,
        **_production(rows, producers),
    )


def _seconds(nanoseconds: NDArray[np.int64]) -> Floats:
    seconds: Floats = nanoseconds.astype(float) * _NS
    return seconds


def _follows(records: Steps, trains: NDArray[np.int64], first: NDArray[np.int64]) -> NDArray[np.int64]:
    """Time of the next request for a batch in the same epoch, ns; -1 if none follows before an evaluation."""
    here = trains[first]
    following = np.append(here[1:], -1)
    # Records of an evaluation may lie between any two steps, also those that one batch serves.
    steps = np.append(np.diff(first), 0)
    joined = (following == here + steps) & (records["epoch"][following] == records["epoch"][here])
    when: NDArray[np.int64] = np.where(joined, records["start_ns"][following], -1)
    return when


def _transfer(
    rows: pd.DataFrame, start: NDArray[np.int64], fetch: NDArray[np.int64], epoch: NDArray[np.int64]
) -> tuple[TransferTime, TransferTime] | None:
    first = start[0]
    requested, ended, had = (
        _seconds(times - first) for times in (start, rows["end_ns_made"].to_numpy(np.int64), start + fetch)
    )
    producers = group([rows["pid_made"].to_numpy(), rows["tid_made"].to_numpy()]).codes
    return fitted(requested, ended, had, producers, epoch)


def _production(rows: pd.DataFrame, producers: _RankProducers) -> dict[str, Floats]:
    """Seconds of each batch's production: in total, asleep, waiting for a core, reading, preprocessing."""
    columns = {name: np.full(len(rows), np.nan) for name in ("production", "asleep", "delay", "read", "preprocess")}
    begins = rows["start_ns_made"].to_numpy()
    for mine, producer, waits in producers.of(rows):
        batch = np.searchsorted(producer.start, begins[mine])
        start, end = producer.start[batch], producer.end[batch]
        delay, turn = producer.delay[batch], covered(waits, start, end)
        runs = 1 - np.nan_to_num(delay)
        # While the thread waited for its turn, it counts as reading what the others read.
        reading = covered(producer.work["read"], start, end) + covered(producer.work["decode"], start, end) - turn
        columns["production"][mine] = np.maximum((end - start) * runs - turn, 0) * _NS
        columns["asleep"][mine] = producer.asleep_ns[batch] * _NS
        columns["delay"][mine] = delay * (end - start) * _NS
        columns["read"][mine] = np.maximum(reading, 0) * runs * _NS
        columns["preprocess"][mine] = covered(producer.work["preprocess"], start, end) * runs * _NS
    return columns


def _idle(rows: pd.DataFrame, producers: _RankProducers) -> float | None:
    used = [producer for _, producer, _ in producers.of(rows)]
    span = sum(int(producer.end[-1] - producer.start[0]) for producer in used)
    busy = sum(int((producer.end - producer.start).sum()) for producer in used)
    return max(0.0, 1 - busy / span) if span else None
