"""The threads that make batches, and what each of them did at any time; see :mod:`dlio_torch.analysis.stalls`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dlio_torch.analysis.intervals import EMPTY, Intervals, Ints, covered, difference, intersection, union
from dlio_torch.analysis.io.groups import group

Floats = NDArray[np.float64]
Key = tuple[int, int, int]
"""Rank, process and thread."""

READ = ("read", "open")
WORK = ("decode", "preprocess", "collate")
"""Spans of a thread; what is inside several of these and :data:`READ` counts as the first of them."""

_USE = ("asleep", "run_delay", "kernel")
_OPS = (*READ, *WORK, "batch", "turn", *_USE)
_THREAD = ("rank", "pid", "tid")


@dataclass(frozen=True)
class Segments:
    """Pieces of time of one thread, each within one of its batches.

    Attributes:
        wait: for each piece, the place of the wait that it is a part of.
        batch: the place of its batch among the thread's.
        start: begin, ns.
        end: end, ns.
    """

    wait: Ints
    batch: Ints
    start: Ints
    end: Ints


@dataclass(frozen=True)
class Crowd:
    """How long the threads of a rank that make batches had wanted a core, and waited for one, up to any time.

    Attributes:
        at: times, ns.
        wanted: thread-nanoseconds in which a thread ran or could have run, up to then.
        waited: those in which it waited for a core.
    """

    at: Ints
    wanted: Floats
    waited: Floats

    def share(self, start: Ints, end: Ints) -> Floats:
        """For any intervals, the share of the time wanted that was waited; 0 where no batch was being made."""
        wanted, waited = (
            np.interp(end, self.at, sums) - np.interp(start, self.at, sums) for sums in (self.wanted, self.waited)
        )
        share: Floats = np.divide(waited, wanted, out=np.zeros(len(wanted)), where=wanted > 0)
        return np.clip(share, 0, 1)


_NOBODY = Crowd(np.zeros(1, np.int64), np.zeros(1), np.zeros(1))


class Maker:
    """One thread, with its batches in order of time.

    ``device_works``, ``kernel_share`` and ``crowd`` are set by :func:`makers_of`, which knows the other threads.

    Args:
        spans: its spans.
        inside: intervals of its I/O calls; None where calls were not recorded.
        others: of the threads of its process, the union of their spans by name: they count while this thread
            waits for its turn.
    """

    def __init__(self, spans: pd.DataFrame, inside: Intervals | None, others: dict[str, Intervals]) -> None:
        ops = _by_op(spans)
        batches = spans[spans["op"] == "batch"].sort_values("start_ns", kind="stable")
        self.start, self.end = batches["start_ns"].to_numpy(), batches["end_ns"].to_numpy()
        self._length = np.maximum(self.end - self.start, 1)
        turn = ops["turn"]
        taken = EMPTY
        self.work: dict[str, Intervals] = {}
        for name in (*WORK, "read"):
            own = union_of([ops[op] for op in (READ if name == "read" else (name,))])
            mine = union_of([own, intersection(others[name], turn)]) if turn[0].size else own
            self.work[name] = difference(mine, taken)
            taken = union_of([taken, mine])
        self._calls = inside
        use = {name: self._of_batches(spans[spans["op"] == name]) for name in _USE}
        self.device_bytes = use["asleep"][1]
        self.delay = np.clip(use["run_delay"][0] / self._length, 0, 1)  # shares of the batch's time; NaN: unknown
        self.kernel_ns = use["kernel"][0]
        self.asleep_ns = np.maximum(use["asleep"][0] - covered(turn, self.start, self.end), 0)
        self.awake = 1 - np.clip(use["asleep"][0] / self._length, 0, 1)
        self.read_ns = covered(self.work["read"], self.start, self.end)
        with np.errstate(divide="ignore", invalid="ignore"):
            asleep = np.where(self.read_ns > 0, self.asleep_ns / self.read_ns, np.nan)
        self.asleep = np.minimum(asleep, 1 - self.delay)  # share of the reads' time; NaN: unknown, or no reads
        preprocessing = covered(self.work["preprocess"], self.start, self.end)
        self.busy_ns = np.maximum((self._length - preprocessing) * (1 - self.delay) - self.asleep_ns, 0)
        self.device_works = np.ones(self.start.size, bool)
        self.kernel_share = np.nan
        self.crowd = _NOBODY

    def _of_batches(self, spans: pd.DataFrame) -> tuple[Floats, Ints]:
        """Length in ns (NaN: none) and ``bytes`` of the span that begins with each batch."""
        lengths, sizes = np.full(self.start.size, np.nan), np.zeros(self.start.size, np.int64)
        at = np.searchsorted(self.start, spans["start_ns"].to_numpy())
        known = at < self.start.size
        known[known] = self.start[at[known]] == spans["start_ns"].to_numpy()[known]
        lengths[at[known]] = (spans["end_ns"] - spans["start_ns"]).to_numpy()[known]
        sizes[at[known]] = spans["bytes"].to_numpy()[known]
        return lengths, sizes

    def since_before(self) -> Ints:
        """For each batch the begin of the one before it."""
        return np.concatenate((self.start[:1], self.start[:-1]))

    def idle_before(self, ready: Ints) -> Floats:
        """How long the thread had no batch to make, before it began the one that ended at ``ready``; NaN: the first."""
        at = np.searchsorted(self.end, ready)
        before = self.end[np.maximum(at - 1, 0)]
        return np.where(at > 0, np.maximum(self.start[np.minimum(at, self.start.size - 1)] - before, 0), np.nan)

    def segments(self, start: Ints, end: Ints) -> Segments:
        """What of any intervals ``[start, end)`` lies in the thread's batches."""
        low = np.searchsorted(self.end, start, side="right")
        high = np.searchsorted(self.start, end, side="left")
        counts = np.maximum(high - low, 0)
        wait = np.repeat(np.arange(start.size), counts)
        batch = np.arange(wait.size) - np.repeat(np.cumsum(counts) - counts, counts) + low[wait]
        return Segments(wait, batch, np.maximum(start[wait], self.start[batch]), np.minimum(end[wait], self.end[batch]))

    def cut(self, pieces: Segments) -> dict[str, Floats]:
        """What the thread did in each piece, ns by part; NaN: not measured."""
        within = {name: covered(times, pieces.start, pieces.end) for name, times in self.work.items()}
        delay = self.delay[pieces.batch]
        runs = 1 - np.nan_to_num(delay)
        parts = {name: within[name] * runs for name in WORK}
        parts["starved"] = (pieces.end - pieces.start) * delay
        read, asleep = within["read"], self.asleep[pieces.batch]
        # A batch without reads of its own may wait for those of another thread; their like is not known.
        told = ~np.isnan(asleep) | (read == 0)
        asleep = np.nan_to_num(asleep)
        busy = np.maximum(read * (runs - asleep), 0)
        kernel = busy * self.kernel_share
        if self._calls is not None:
            calls = covered(self._calls, pieces.start, pieces.end)
            kernel = np.clip(calls * runs - read * asleep, 0, busy)
        told &= ~np.isnan(kernel)
        has_decode = self.work["decode"][0].size > 0
        parts["device"] = np.where(told, read * asleep * self.device_works[pieces.batch], np.nan)
        parts["page_cache"] = np.where(told, kernel, np.nan)
        parts["decode"] += np.where(told, busy - kernel, 0.0 if has_decode else np.nan)
        parts["read"] = np.where(told, 0.0, read * runs)
        return parts


def makers_of(spans: pd.DataFrame, calls: pd.DataFrame, device_counted: bool) -> dict[Key, Maker]:
    """Every thread that made a batch.

    Args:
        spans: spans of a run.
        calls: its I/O calls; empty where they were not recorded.
        device_counted: see :func:`dlio_torch.analysis.stalls.attribute`.
    """
    threads = _split(spans[spans["op"].isin(_OPS)], _THREAD)
    made: dict[Key, pd.DataFrame] = {
        (key[0], key[1], key[2]): rows for key, rows in threads.items() if (rows["op"] == "batch").any()
    }
    recorded = len(calls) > 0
    of_process = _split(calls, _THREAD[:2])
    of_thread = _split(calls, _THREAD)
    processes: dict[tuple[int, ...], list[Key]] = {}
    for key in made:
        processes.setdefault(key[:2], []).append(key)
    makers: dict[Key, Maker] = {}
    for process, keys in processes.items():
        everyone = [_by_op(made[key]) for key in keys]
        others = {
            name: union_of([ops[op] for ops in everyone for op in (READ if name == "read" else (name,))])
            for name in (*WORK, "read")
        }
        for key in keys:
            # A library's own threads work for the only one that makes batches here.
            rows = of_process.get(process) if len(keys) == 1 else of_thread.get(key)
            inside = EMPTY if rows is None else union(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
            if recorded:
                inside = intersection(inside, union_of([_by_op(made[key])[op] for op in READ]))
            makers[key] = Maker(made[key], inside if recorded else None, others)
    _compare(makers, device_counted)
    return makers


def _compare(makers: dict[Key, Maker], device_counted: bool) -> None:
    """What one thread's figures do not tell: when a device was at work, how much of a rank's work is the kernel's."""
    everyone = list(makers.values())
    if device_counted and everyone:
        delivered = union_of([(one.start[one.device_bytes > 0], one.end[one.device_bytes > 0]) for one in everyone])
        for one in everyone:
            one.device_works = covered(delivered, one.since_before(), one.end) > 0
    for rank in {key[0] for key in makers}:
        of_rank = [one for key, one in makers.items() if key[0] == rank]
        known = [~np.isnan(one.kernel_ns) & ~np.isnan(one.busy_ns) for one in of_rank]
        busy = sum(float(one.busy_ns[some].sum()) for one, some in zip(of_rank, known, strict=True))
        kernel = sum(float(one.kernel_ns[some].sum()) for one, some in zip(of_rank, known, strict=True))
        crowd = _crowd(of_rank)
        for one in of_rank:
            one.kernel_share = min(kernel / busy, 1.0) if busy > 0 else np.nan
            one.crowd = crowd


def _crowd(makers: Sequence[Maker]) -> Crowd:
    """Each batch's figures, spread evenly over its time."""
    start, end = (np.concatenate([getattr(one, name) for one in makers]) for name in ("start", "end"))
    if not start.size:
        return _NOBODY
    times = np.concatenate((start, end))
    order = np.argsort(times, kind="stable")
    at = times[order]
    sums = []
    for name in ("awake", "delay"):
        share = np.nan_to_num(np.concatenate([getattr(one, name) for one in makers]))
        slope = np.cumsum(np.concatenate((share, -share))[order])
        sums.append(np.concatenate(([0.0], np.cumsum(slope[:-1] * np.diff(at)))))
    return Crowd(at, sums[0], sums[1])


def union_of(sets: Sequence[Intervals]) -> Intervals:
    """The union of any number of sets, which need not be sorted."""
    return union(np.concatenate([one[0] for one in sets]), np.concatenate([one[1] for one in sets])) if sets else EMPTY


def _by_op(spans: pd.DataFrame) -> dict[str, Intervals]:
    found = {}
    for op in (*READ, *WORK, "turn"):
        rows = spans[spans["op"] == op]
        found[op] = union(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
    return found


def _split(rows: pd.DataFrame, by: Sequence[str]) -> dict[tuple[int, ...], pd.DataFrame]:
    """The rows of each process or thread, in their order."""
    if not len(rows):
        return {}
    columns = [rows[name].to_numpy() for name in by]
    groups = group(columns)
    order = np.argsort(groups.codes, kind="stable")
    pieces = np.split(order, np.cumsum(groups.counts())[:-1])
    return {tuple(int(column[piece[0]]) for column in columns): rows.iloc[piece] for piece in pieces}
