"""Storage requests of a run's batches, from its recorded calls or, without them, from its read spans.

A request is an open, a read, a close or a query of attributes of a data file.  It belongs to the batch that its thread
produced at that time.  Threads that produce no batches (those of a library) work for the batch of their process that
was begun last.  Calls outside of the production of batches belong to none.

A thread whose request was answered may have to wait for a core, which is not the storage's time.  The kernel tells how
long each batch's thread waited; the time is taken from the parts of the batch that took longer than usual, in
proportion to what they took longer::

    excess    max(0, duration - first quartile of its kind), for requests and for the time between them
    end      -= excess * min(1, wait of the batch for a core / sum of the excesses of the batch)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dlio_torch.analysis.advice.batch_times import batches_of_steps, fetched_batches
from dlio_torch.analysis.producers import READ as READ_SPANS
from dlio_torch.analysis.producers import Floats
from dlio_torch.iotrace.events.call_names import CLASSES, CLOSE, META, OPEN, READ, class_codes
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.iotrace.figures.call_selection import select_frame, within
from dlio_torch.iotrace.figures.intervals import Ints
from dlio_torch.iotrace.figures.row_groups import group
from dlio_torch.train.steps import TRAIN, Steps

Source = Literal["calls", "spans"]


@dataclass(frozen=True)
class StorageRequests:
    """Requests of all ranks, in the order of their ends; arrays with one entry per request.

    Attributes:
        start: begin, ns.
        end: end, without the wait for a core, ns.
        bytes: bytes that the request moved; 0 for an open or a close.
        kind: number of the kind of request; those of one kind, of one power of two of bytes, cost alike.
        batch: number of its batch among those of all ranks (:attr:`RankBatches.rows`); -1: none.
        lane: number of its thread.
    """

    start: Ints
    end: Ints
    bytes: Ints
    kind: Ints
    batch: Ints
    lane: Ints


@dataclass(frozen=True)
class RankBatches:
    """Training batches of one rank in step order; arrays with one entry per batch.

    Attributes:
        rows: number of the batch among those of all ranks.
        epoch: epoch, from 1.
        measured: whether all steps that the batch served count (no warm-up).
        compute_s: compute time that these steps requested, s.
        bytes: bytes of its tensors.
        by_trainer: whether the trainer's own thread produced the batches.
    """

    rows: Ints
    epoch: Ints
    measured: NDArray[np.bool_]
    compute_s: Floats
    bytes: Ints
    by_trainer: bool


def rank_batches(recording: Recording, steps: Mapping[int, Steps]) -> list[RankBatches] | None:
    """Collects the training batches of every rank; None where their production was not recorded."""
    produced = _produced(recording.spans)
    merged = fetched_batches(recording.spans)
    if merged is None or not steps:
        return None
    number = dict(zip(zip(produced["rank"], produced["offset"], strict=True), range(len(produced)), strict=True))
    ranks = []
    for rank, records in sorted(steps.items()):
        rows = merged[(merged["rank"] == rank).to_numpy()].sort_values("step")
        served = batches_of_steps(records, rows)
        if served is None:
            return None
        trains, first, row = records[served.trains], served.first, rows.iloc[served.row]
        same = (row["pid"] == row["pid_made"]) & (row["tid"] == row["tid_made"])
        ranks.append(
            RankBatches(
                rows=np.array([number[rank, offset] for offset in row["offset"]], np.int64),
                epoch=trains["epoch"][first].astype(np.int64),
                measured=np.add.reduceat((trains["phase"] == TRAIN).astype(int), first) == served.steps,
                compute_s=np.add.reduceat(trains["requested_ns"].astype(np.int64), first) * 1e-9,
                bytes=trains["bytes"][first].astype(np.int64),
                by_trainer=bool(same.all()),
            )
        )
    return ranks


def requests_of_calls(recording: Recording, data: Iterable[Path | str]) -> StorageRequests:
    """Recorded calls on the data.

    Args:
        recording: events of the run.
        data: the data set, or the copies of it that were read.
    """
    calls = select_frame(recording.events.frame, classes=(OPEN, READ, CLOSE, META))
    calls = calls[within(calls, data)]
    codes = class_codes(calls)
    moved = np.where(codes == CLASSES.index(READ), calls["bytes"].clip(lower=0), 0)
    return _requests(calls, moved.astype(np.int64), codes.astype(np.int64), recording.spans)


def requests_of_spans(recording: Recording) -> StorageRequests:
    """Recorded spans of reads and opens, which contain the time of the format's library.

    A span within another one of its thread is a part of that one.  Where a read does not name its bytes, all reads
    count as one byte for each nanosecond that they took.
    """
    spans = recording.spans
    rows = _outermost(spans[spans["op"].isin(READ_SPANS).to_numpy()])
    reads = (rows["op"] == "read").to_numpy()
    size, length = rows["bytes"].to_numpy(np.int64), (rows["end_ns"] - rows["start_ns"]).to_numpy(np.int64)
    known = bool((size[reads] > 0).all())
    moved = np.where(reads, size if known else length, 0)
    return _requests(rows, moved, reads.astype(np.int64), spans)


def _outermost(rows: pd.DataFrame) -> pd.DataFrame:
    """The spans that no other span of their thread contains; of equal ones the read."""
    rows = rows.assign(open=(rows["op"] != "read").to_numpy()).sort_values(
        ["rank", "pid", "tid", "start_ns", "end_ns", "open"], ascending=[True, True, True, True, False, True]
    )
    outer = np.ones(len(rows), bool)
    for mine in _places(rows, ("rank", "pid", "tid")).values():
        end = rows["end_ns"].to_numpy()[mine]
        outer[mine[1:]] = end[1:] > np.maximum.accumulate(end)[:-1]
    kept: pd.DataFrame = rows[outer]
    return kept


def _produced(spans: pd.DataFrame) -> pd.DataFrame:
    """Produced batches of all ranks, those of evaluations included; their positions are the numbers of batches."""
    batches: pd.DataFrame = spans[(spans["op"] == "batch").to_numpy()].drop_duplicates(["rank", "offset"])
    return batches


def _requests(rows: pd.DataFrame, moved: Ints, codes: Ints, spans: pd.DataFrame) -> StorageRequests:
    produced = _produced(spans)
    batch = np.full(len(rows), -1, np.int64)
    for mine, number in _assigned(rows, produced):
        batch[mine] = number
    lane = group([rows[name].to_numpy() for name in ("rank", "pid", "tid")]).codes
    kind = codes * 64 + np.log2(np.maximum(moved, 1)).astype(np.int64)
    length = (rows["end_ns"] - rows["start_ns"]).to_numpy(np.int64)
    start = rows["start_ns"].to_numpy(np.int64)
    end = start + length - _core_waits(length, kind, batch, produced, spans)
    order = np.argsort(end, kind="stable")
    return StorageRequests(*(column[order] for column in (start, end, np.asarray(moved, np.int64), kind, batch, lane)))


def _core_waits(length: Ints, kind: Ints, batch: Ints, produced: pd.DataFrame, spans: pd.DataFrame) -> Ints:
    """Time of each request in which its thread waited for a core, ns; see the module's text."""
    waits = spans[(spans["op"] == "run_delay").to_numpy()]
    keys = ["rank", "pid", "tid", "start_ns"]
    joined = produced[[*keys, "end_ns"]].merge(waits[[*keys, "end_ns"]], on=keys, how="left", suffixes=("", "_wait"))
    waited = (joined["end_ns_wait"] - joined["start_ns"]).fillna(0).to_numpy(float)
    mine = batch >= 0
    excess = np.where(mine, _excess(length, kind), 0.0)
    inside = np.bincount(batch[mine], length[mine], len(produced))
    between = np.maximum((joined["end_ns"] - joined["start_ns"]).to_numpy(float) - inside, 0.0)
    more = np.bincount(batch[mine], excess[mine], len(produced)) + _excess(between, np.zeros(between.size, np.int64))
    share = np.minimum(1.0, np.divide(waited, more, out=np.zeros(more.size), where=more > 0))
    taken: Ints = np.where(mine, excess * share[batch], 0.0).astype(np.int64)
    return taken


def _excess(length: NDArray[Any], kind: Ints) -> Floats:
    """Time by which each part took longer than the first quartile of its kind."""
    groups = group([kind])
    order, first = groups.sort(length)
    usual = length[order][first + groups.counts() // 4]
    more: Floats = np.maximum(length - usual[groups.codes], 0.0)
    return more


def _assigned(rows: pd.DataFrame, produced: pd.DataFrame) -> Iterator[tuple[Ints, Ints]]:
    """Yields for each thread the places of its requests, and the number of the batch of each."""
    processes = _places(produced, ("rank", "pid"))
    threads = _places(produced, ("rank", "pid", "tid"))
    begin, end = produced["start_ns"].to_numpy(), produced["end_ns"].to_numpy()
    start = rows["start_ns"].to_numpy()
    for thread, mine in _places(rows, ("rank", "pid", "tid")).items():
        of_process = processes.get(thread[:2])
        if of_process is None:
            continue
        makes = threads.get(thread)
        others = _begun_last(start[mine], of_process, begin)
        if makes is None:
            yield mine, others
            continue
        others = np.where((others >= 0) & (start[mine] < end[others]), others, -1)
        number = _begun_last(start[mine], makes, begin)
        yield mine, np.where((number >= 0) & (start[mine] < end[number]), number, others)


def _begun_last(times: Ints, batches: Ints, begin: Ints) -> Ints:
    """The batch, of those given, that was begun last at each time; -1: none."""
    ordered = batches[np.argsort(begin[batches], kind="stable")]
    place = np.searchsorted(begin[ordered], times, side="right") - 1
    return np.where(place >= 0, ordered[np.maximum(place, 0)], -1)


def _places(rows: pd.DataFrame, by: tuple[str, ...]) -> dict[tuple[int, ...], Ints]:
    """Positions of the rows of each process or thread."""
    if not len(rows):
        return {}
    columns = [rows[name].to_numpy() for name in by]
    return {tuple(int(column[piece[0]]) for column in columns): piece for piece in group(columns).split()}
