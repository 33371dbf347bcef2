"""Derives the load of one rank from a recorded program, which has no batches and no description of its loader.

The whole program is one rank.  Its readers are the threads that read data files.  A read call stands for a sample; a
batch is a group of consecutive calls of one reader.  The time that a reader spends in calls is the measured storage's
and is replaced by the described one; the time between its calls stays: as compute where the main thread reads alone, as
production on a core where other threads or processes read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dlio_torch.analysis.advice.loader_replay import LoaderSetup
from dlio_torch.analysis.producers import Floats
from dlio_torch.errors import PreconditionError
from dlio_torch.iotrace.events.call_names import CLASSES, OPEN, READ, class_codes
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.iotrace.figures.access_order import jumps
from dlio_torch.iotrace.figures.call_selection import data_only, select
from dlio_torch.prediction.rank_workload import RankWorkload
from dlio_torch.units import counted

_LEAST_SHARE = 0.01  # of the read calls, from which on a thread counts as a reader
_MOST_BATCHES = 1000  # of a reader
_AHEAD = 2  # batches that a reader of its own runs ahead, as torch's workers do
_IN_ORDER = 0.5  # share of reads that follow the one before, from which on the program reads in order


@dataclass(frozen=True)
class _Reader:
    """Batches of one thread: seconds in calls, seconds between calls."""

    inside: Floats
    between: Floats


def recorded_workload(recording: Recording) -> RankWorkload:
    """Derives the workload of one rank from the recording of a program.

    Args:
        recording: of the verb ``trace``, of ``iotrace.record``, or a log with each call.

    Raises:
        PreconditionError: no reads of data files were recorded.
    """
    calls = select(data_only(recording))
    codes = class_codes(calls)
    reads = calls[(codes == CLASSES.index(READ)) & (calls["bytes"].to_numpy() > 0)]
    opens = int((codes == CLASSES.index(OPEN)).sum())
    groups = [group.sort_values("start_ns") for _, group in reads.groupby(["pid", "tid"], sort=True)]
    threads = [group for group in groups if len(group) >= max(2, _LEAST_SHARE * len(reads))]
    if not threads:
        raise PreconditionError(
            f"{recording.path}: no thread of the recorded program read a data file twice, so there is nothing to "
            "predict from",
            hint="record a program that reads its data by read calls; accesses to mapped files are not calls",
        )
    reads = pd.concat(threads)
    size = max(1, -(-max(map(len, threads)) // _MOST_BATCHES))  # read calls of a batch
    readers = [_reader(thread, size) for thread in threads]
    inside, between = (np.concatenate([getattr(part, name) for part in readers]) for name in ("inside", "between"))
    alone = len(threads) == 1 and (threads[0]["pid"] == threads[0]["tid"]).all()
    nothing = np.zeros(inside.size)
    elapsed = float(reads["end_ns"].max() - reads["start_ns"].min()) / 1e9
    batches, total = len(reads) / size, float(reads["bytes"].sum())
    setup = LoaderSetup("trainer") if alone else LoaderSetup("workers", len(threads), _AHEAD * len(threads))
    return RankWorkload(
        samples=float(size),
        cpu=nothing if alone else between,
        locked=0.0,
        blocked=nothing,
        slept=inside,
        compute=between if alone else nothing,
        after=nothing,
        compute_ratio=None,
        serial=0.0,
        sending=0.0,
        setup=setup,
        bytes=total / batches,
        requests=float(size),
        in_order=_in_order(reads) > _IN_ORDER,
        opens=opens / batches,
        first_opens=0.0,
        header_requests=None,
        load_bytes=0.0,
        files=max(1, int(reads["file"].nunique())),
        stored_bytes=total / len(reads),
        epoch_samples=len(reads),
        global_batch=0,
        ranks=1,
        barrier=False,
        allreduce_bytes=0.0,
        checkpoint=None,
        measured={"samples_per_s": len(reads) / elapsed, "au": None, "wait_share": None, "between_epochs": None},
        notes=tuple(_notes(recording, len(threads), size, alone)),
    )


def _reader(thread: pd.DataFrame, size: int) -> _Reader:
    start, end = (thread[name].to_numpy(np.float64) for name in ("start_ns", "end_ns"))
    number = np.arange(len(start)) // size
    gaps = np.append(np.maximum(start[1:] - end[:-1], 0.0), 0.0)
    durations = np.maximum(end - start, 0.0)
    return _Reader(np.bincount(number, durations) / 1e9, np.bincount(number, gaps) / 1e9)


def _in_order(reads: pd.DataFrame) -> float:
    """Share of reads that begin at the end of the read before, of the same thread in the same file."""
    between = jumps(reads)
    return float((between == 0).mean()) if between.size else 1.0


def _notes(recording: Recording, threads: int, size: int, alone: bool) -> list[str]:
    who = "its main thread reads" if alone else f"{counted(threads, 'thread or process', 'threads or processes')} read"
    kept = "compute" if alone else "production on a core"
    lines = [
        f"a recorded program is one rank, {who}; a sample stands for one read call, a batch for "
        f"{counted(size, 'call')}, an epoch for all calls of the recording",
        f"the time between the calls of a reader counts as {kept}; the time of the calls is replaced by that of the "
        "described storage",
    ]
    if not recording.trusted_times:
        lines.append("strace slowed the program down, so the times between its calls are too long")
    return lines
