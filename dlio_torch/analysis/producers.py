"""Producer threads of batches, and what each does over time; see :mod:`dlio_torch.analysis.stalls`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dlio_torch.iotrace.figures.intervals import EMPTY, Intervals, Ints, covered, difference, intersection, union
from dlio_torch.iotrace.figures.row_groups import group

Floats = NDArray[np.float64]
Key = tuple[int, int, int]
"""Identity of a producer: rank, process and thread."""

READ = ("read", "open")
WORK = ("decode", "preprocess", "collate")
"""Spans of a thread in which it works; time in several of these and :data:`READ` counts for the first."""

_USE = ("asleep", "run_delay", "kernel")
_OPS = (*READ, *WORK, "batch", "turn", *_USE)
_THREAD = ("rank", "pid", "tid")


@dataclass(frozen=True)
class Segments:
    """Time intervals of one producer thread, each within one of its batches.

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
class CoreDemand:
    """Time in which a rank's producers needed a core, and waited for one, summed up to given moments.

    Attributes:
        times: moments, ns.
        wanted: thread-nanoseconds in which a thread ran or could have run, up to then.
        waited: those in which it waited for a core.
    """

    times: Ints
    wanted: Floats
    waited: Floats

    def share(self, start: Ints, end: Ints) -> Floats:
        """Share of the needed core time that was spent waiting, for any intervals; 0 if no batch was in production."""
        wanted, waited = (
            np.interp(end, self.times, sums) - np.interp(start, self.times, sums) for sums in (self.wanted, self.waited)
        )
        share: Floats = np.divide(waited, wanted, out=np.zeros(len(wanted)), where=wanted > 0)
        return np.clip(share, 0, 1)


_NOBODY = CoreDemand(np.zeros(1, np.int64), np.zeros(1), np.zeros(1))


class Producer:
    """A thread that produces batches, with its batches in order of time.

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
            spans_of_name = union_of([ops[op] for op in (READ if name == "read" else (name,))])
            mine = union_of([spans_of_name, intersection(others[name], turn)]) if turn[0].size else spans_of_name
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
        self.core_demand = _NOBODY

    def _of_batches(self, spans: pd.DataFrame) -> tuple[Floats, Ints]:
        """Length in ns (NaN: none) and bytes of the span that begins with each batch."""
        lengths, sizes = np.full(self.start.size, np.nan), np.zeros(self.start.size, np.int64)
        batch = np.searchsorted(self.start, spans["start_ns"].to_numpy())
        known = batch < self.start.size
        known[known] = self.start[batch[known]] == spans["start_ns"].to_numpy()[known]
        lengths[batch[known]] = (spans["end_ns"] - spans["start_ns"]).to_numpy()[known]
        sizes[batch[known]] = spans["bytes"].to_numpy()[known]
        return lengths, sizes

    def since_before(self) -> Ints:
        """Begin of the preceding batch, for each batch."""
        return np.concatenate((self.start[:1], self.start[:-1]))

    def idle_before(self, ready: Ints) -> Floats:
        """Idle time of the thread before the batch that ended at ``ready``, ns; NaN for its first batch."""
        batch = np.searchsorted(self.end, ready)
        before = self.end[np.maximum(batch - 1, 0)]
        return np.where(batch > 0, np.maximum(self.start[np.minimum(batch, self.start.size - 1)] - before, 0), np.nan)

    def segments(self, start: Ints, end: Ints) -> Segments:
        """Parts of any intervals ``[start, end)`` that lie in the thread's batches."""
        low = np.searchsorted(self.end, start, side="right")
        high = np.searchsorted(self.start, end, side="left")
        counts = np.maximum(high - low, 0)
        wait = np.repeat(np.arange(start.size), counts)
        batch = np.arange(wait.size) - np.repeat(np.cumsum(counts) - counts, counts) + low[wait]
        return Segments(wait, batch, np.maximum(start[wait], self.start[batch]), np.minimum(end[wait], self.end[batch]))

    def cut(self, pieces: Segments) -> dict[str, Floats]:
        """Nanoseconds of each kind of work in each segment; NaN if it was not measured."""
        within = {name: covered(times, pieces.start, pieces.end) for name, times in self.work.items()}
        delay = self.delay[pieces.batch]
        runs = 1 - np.nan_to_num(delay)
        parts = {name: within[name] * runs for name in WORK}
        parts["starved"] = (pieces.end - pieces.start) * delay
        read, asleep = within["read"], self.asleep[pieces.batch]
        # A batch without reads of its own may wait for those of another thread; their like is not known.
        known = ~np.isnan(asleep) | (read == 0)
        asleep = np.nan_to_num(asleep)
        busy = np.maximum(read * (runs - asleep), 0)
        kernel = busy * self.kernel_share
        if self._calls is not None:
            calls = covered(self._calls, pieces.start, pieces.end)
            kernel = np.clip(calls * runs - read * asleep, 0, busy)
        known &= ~np.isnan(kernel)
        has_decode = self.work["decode"][0].size > 0
        parts["device"] = np.where(known, read * asleep * self.device_works[pieces.batch], np.nan)
        parts["page_cache"] = np.where(known, kernel, np.nan)
        parts["decode"] += np.where(known, busy - kernel, 0.0 if has_decode else np.nan)
        parts["read"] = np.where(known, 0.0, read * runs)
        return parts


def producers_of(spans: pd.DataFrame, calls: pd.DataFrame, device_counted: bool) -> dict[Key, Producer]:
    """Collects all threads that produced a batch.

    Args:
        spans: spans of a run.
        calls: its I/O calls; empty where they were not recorded.
        device_counted: see :func:`dlio_torch.analysis.stalls.attribute`.
    """
    threads = _split(spans[spans["op"].isin(_OPS)], _THREAD)
    spans_of_thread: dict[Key, pd.DataFrame] = {
        (key[0], key[1], key[2]): rows for key, rows in threads.items() if (rows["op"] == "batch").any()
    }
    recorded = len(calls) > 0
    of_process = _split(calls, _THREAD[:2])
    of_thread = _split(calls, _THREAD)
    processes: dict[tuple[int, ...], list[Key]] = {}
    for key in spans_of_thread:
        processes.setdefault(key[:2], []).append(key)
    producers: dict[Key, Producer] = {}
    for process, keys in processes.items():
        everyone = [_by_op(spans_of_thread[key]) for key in keys]
        others = {
            name: union_of([ops[op] for ops in everyone for op in (READ if name == "read" else (name,))])
            for name in (*WORK, "read")
        }
        for key in keys:
            # A library's own threads work for the only one that makes batches here.
            rows = of_process.get(process) if len(keys) == 1 else of_thread.get(key)
            inside = EMPTY if rows is None else union(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
            if recorded:
                inside = intersection(inside, union_of([_by_op(spans_of_thread[key])[op] for op in READ]))
            producers[key] = Producer(spans_of_thread[key], inside if recorded else None, others)
    _compare(producers, device_counted)
    return producers


def _compare(producers: dict[Key, Producer], device_counted: bool) -> None:
    """Sets the figures that need all threads: device activity, and the kernel's share of a rank's work."""
    everyone = list(producers.values())
    if device_counted and everyone:
        delivered = union_of(
            [
                (producer.start[producer.device_bytes > 0], producer.end[producer.device_bytes > 0])
                for producer in everyone
            ]
        )
        for producer in everyone:
            producer.device_works = covered(delivered, producer.since_before(), producer.end) > 0
    for rank in {key[0] for key in producers}:
        of_rank = [producer for key, producer in producers.items() if key[0] == rank]
        known = [~np.isnan(producer.kernel_ns) & ~np.isnan(producer.busy_ns) for producer in of_rank]
        busy = sum(float(producer.busy_ns[some].sum()) for producer, some in zip(of_rank, known, strict=True))
        kernel = sum(float(producer.kernel_ns[some].sum()) for producer, some in zip(of_rank, known, strict=True))
        core_demand = _core_demand(of_rank)
        for producer in of_rank:
            producer.kernel_share = min(kernel / busy, 1.0) if busy > 0 else np.nan
            producer.core_demand = core_demand


def _core_demand(producers: Sequence[Producer]) -> CoreDemand:
    """Sums up the core demand of batches, each spread evenly over its time."""
    start, end = (np.concatenate([getattr(producer, name) for producer in producers]) for name in ("start", "end"))
    if not start.size:
        return _NOBODY
    times = np.concatenate((start, end))
    order = np.argsort(times, kind="stable")
    ordered = times[order]
    sums = []
    for name in ("awake", "delay"):
        share = np.nan_to_num(np.concatenate([getattr(producer, name) for producer in producers]))
        slope = np.cumsum(np.concatenate((share, -share))[order])
        sums.append(np.concatenate(([0.0], np.cumsum(slope[:-1] * np.diff(ordered)))))
    return CoreDemand(ordered, sums[0], sums[1])


def union_of(sets: Sequence[Intervals]) -> Intervals:
    """Union of any number of interval sets, which need not be sorted."""
    return (
        union(
            np.concatenate([intervals[0] for intervals in sets]), np.concatenate([intervals[1] for intervals in sets])
        )
        if sets
        else EMPTY
    )


def _by_op(spans: pd.DataFrame) -> dict[str, Intervals]:
    by_op = {}
    for op in (*READ, *WORK, "turn"):
        rows = spans[spans["op"] == op]
        by_op[op] = union(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
    return by_op


def _split(rows: pd.DataFrame, by: Sequence[str]) -> dict[tuple[int, ...], pd.DataFrame]:
    """Splits the rows by process or thread, and keeps their order."""
    if not len(rows):
        return {}
    columns = [rows[name].to_numpy() for name in by]
    pieces = group(columns).split()
    return {tuple(int(column[piece[0]]) for column in columns): rows.iloc[piece] for piece in pieces}
