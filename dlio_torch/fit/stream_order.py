"""Order of a recorded iterable data set: which process reads which files, in which order, how far ahead.

An iterable data set gives no indices.  Its order follows from the calls that its processes make while they are asked
for samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pandas as pd

from dlio_torch.fit.data_set import DataFit
from dlio_torch.fit.finding import Confidence, Finding, Findings, findings
from dlio_torch.fit.recorded_training import RecordedLoader, RecordedTraining
from dlio_torch.iotrace.events.call_names import CLASSES, MAP, OPEN, READ, class_codes
from dlio_torch.iotrace.figures.call_selection import within
from dlio_torch.units import counted

Ints = npt.NDArray[np.int64]

_MOST = 0.9
_FEWEST = 4
"""Samples in a pool below which it is not told from the buffer of a file."""


@dataclass(frozen=True)
class ReaderPass:
    """Reads of one process in one iteration over the loader.

    Attributes:
        rank: rank of the process.
        epoch: number of the iteration.
        calls: its calls on the data set, by time.
        items: end of each item that it gave, nanoseconds, ascending.
    """

    rank: int
    epoch: int
    calls: pd.DataFrame
    items: Ints

    @property
    def reads(self) -> pd.DataFrame:
        """Calls that move bytes, or map a file."""
        return self.calls[np.isin(class_codes(self.calls), [CLASSES.index(READ), CLASSES.index(MAP)])]

    @property
    def files(self) -> list[str]:
        """Files in the order of their first read."""
        return [str(name) for name in self.reads["file"].drop_duplicates()]

    @property
    def opens(self) -> int:
        """Number of opens."""
        return int((class_codes(self.calls) == CLASSES.index(OPEN)).sum())


@dataclass(frozen=True)
class StreamReads:
    """All passes over a data set.

    Attributes:
        passes: of all processes and iterations, by rank, iteration and process.
        samples: samples of a file, the mean.
        items: samples of an item of the data set; 1 unless it gives batches.
    """

    passes: Sequence[ReaderPass]
    samples: float
    items: int


def fit_stream(training: RecordedTraining, recorded: RecordedLoader, data: DataFit) -> Findings:
    """Options of the group ``access`` for an iterable data set."""
    name = recorded.dataset.class_name if recorded.dataset is not None else "the data set"
    reads = stream_reads(training, recorded, data)
    block = samples_of_an_open(reads)
    values = [Finding("access.pattern", "stream", f"{name} is an iterable data set")]
    values += _order(reads)
    values += _partition(reads, training.world_size)
    values += _blocks(reads, block)
    values += _reading(reads, block)
    return findings(values, _gaps(reads, block))


def is_stream(recorded: RecordedLoader) -> bool:
    """Whether the data set gives its samples by itself: no index asks for one."""
    dataset = recorded.dataset
    if dataset is None or dataset.style == "map" or not recorded.indices.empty:
        return False
    return dataset.style != "nodes" or dataset.length is None


def stream_reads(training: RecordedTraining, recorded: RecordedLoader, data: DataFit) -> StreamReads:
    """Passes of the processes that read the data set of a loader for its samples."""
    calls = training.calls[within(training.calls, data.files) & (training.calls["dataset"] >= 0)]
    spans = training.recording.spans
    items = spans[(spans["op"] == "sample") & (spans["file"] == f"dataset {recorded.loader.dataset}")]
    passes: list[ReaderPass] = []
    for rank, pid in sorted(set(zip(calls["rank"].tolist(), calls["pid"].tolist(), strict=True))):
        of_process = calls[(calls["rank"] == rank) & (calls["pid"] == pid)]
        passes += _passes(of_process, items[items["pid"] == pid], rank, _starts(training, recorded, rank))
    passes.sort(key=lambda entry: (entry.rank, entry.epoch))
    return StreamReads(passes, data.samples / max(1, len(data.files)), samples_of_an_item(training, recorded))


def samples_of_an_item(training: RecordedTraining, recorded: RecordedLoader) -> int:
    """Samples of an item of an iterable data set: those of a batch, if it gives batches."""
    loader = recorded.loader
    if loader.batch_size is not None:
        return 1
    sizes = [
        entry.arrays[0].shape[0]
        for entry in training.torch.arrays
        if entry.loader == loader.id and entry.arrays and entry.arrays[0].shape
    ]
    return max(sizes, default=1)


def samples_of_an_open(reads: StreamReads) -> int:
    """Consecutive samples that are read after each open, if files are opened for parts of them; 0: for all."""
    by_epoch: dict[tuple[int, int], tuple[int, set[str]]] = {}
    for entry in reads.passes:
        opens, files = by_epoch.get((entry.rank, entry.epoch), (0, set()))
        by_epoch[entry.rank, entry.epoch] = opens + entry.opens, files | set(entry.files)
    ratios = [opens / len(files) for opens, files in by_epoch.values() if files]
    ratio = float(np.median(ratios)) if ratios else 0.0
    block = round(reads.samples / ratio) if ratio >= 2 else 0
    return block if 0 < block < reads.samples else 0


def _starts(training: RecordedTraining, recorded: RecordedLoader, rank: int) -> Ints:
    """Begin of each iteration of a rank."""
    epochs = [epoch for epoch in training.torch.epochs if epoch.rank == rank and epoch.loader == recorded.loader.id]
    return np.array(sorted(epoch.start_ns for epoch in epochs), np.int64)


def _epochs(times: pd.Series[int], starts: Ints) -> Ints:
    """Number of the iteration during which each time is."""
    epochs: Ints = np.maximum(np.searchsorted(starts, times.to_numpy(), side="right") - 1, 0)
    return epochs


def _passes(calls: pd.DataFrame, items: pd.DataFrame, rank: int, starts: Ints) -> Iterator[ReaderPass]:
    """Passes of one process, from its calls and its items."""
    epochs, of_items = _epochs(calls["start_ns"], starts), _epochs(items["start_ns"], starts)
    for epoch in np.unique(epochs).tolist():
        ends = np.sort(items["end_ns"].to_numpy()[of_items == epoch])
        yield ReaderPass(rank, epoch, calls[epochs == epoch].sort_values("start_ns"), ends)


# --- order and division of the files ----------------------------------------------------------------------


def _order(reads: StreamReads) -> Iterator[Finding]:
    steps = [after > before for entry in reads.passes for before, after in pairwise(_units(entry))]
    if not steps:
        yield Finding("access.order", "sequential", "each process reads a single file", "assumed")
        return
    ascending = float(np.mean(steps))
    order = "sequential" if ascending > _MOST else "shuffled"
    evidence = f"{ascending:.0%} of {counted(len(steps), 'step')} from file to file are to a later one"
    yield Finding("access.order", order, evidence, "likely" if len(steps) >= 8 else "assumed")


def _units(entry: ReaderPass) -> list[str]:
    """Files in the order of their opens, or of their first reads if none was opened."""
    opened = entry.calls["file"][class_codes(entry.calls) == CLASSES.index(OPEN)]
    return [str(name) for name in opened] or entry.files


def _partition(reads: StreamReads, ranks: int) -> Iterator[Finding]:
    if ranks < 2:
        yield Finding("access.partition", "files", "a single rank reads all files")
        return
    files = {
        rank: [_files_of(reads, rank, epoch) for epoch in sorted({entry.epoch for entry in reads.passes})]
        for rank in range(ranks)
    }
    common = float(np.mean([_common(*pair) for pair in zip(files[0], files[1], strict=True)]))
    evidence = f"{common:.0%} of the files of a rank are read by another one in the same epoch"
    yield Finding("access.partition", "none" if common > 0.5 else "files", evidence, "likely")
    if common <= 0.5 and any(before != after for before, after in pairwise(files[0])):
        yield Finding("access.shard", "after_shuffle", "a rank reads other files in each epoch", "likely")


def _files_of(reads: StreamReads, rank: int, epoch: int) -> frozenset[str]:
    return frozenset(
        name for entry in reads.passes if (entry.rank, entry.epoch) == (rank, epoch) for name in entry.files
    )


def _common(mine: frozenset[str], other: frozenset[str]) -> float:
    return len(mine & other) / max(1, min(len(mine), len(other)))


def _blocks(reads: StreamReads, block: int) -> Iterator[Finding]:
    if block:
        opens = sum(entry.opens for entry in reads.passes)
        files = len({name for entry in reads.passes for name in entry.files})
        evidence = f"{counted(opens, 'open')} of {counted(files, 'file')}, each before {counted(block, 'sample')}"
        yield Finding("access.unit", "block", evidence, "likely")
        yield Finding("access.block_samples", block, evidence, "likely")


# --- how files are read -----------------------------------------------------------------------------------


def _reading(reads: StreamReads, block: int) -> Iterator[Finding]:
    """Whole files, pool, interleaved files and repeats."""
    if block:
        return
    in_turn = max((files_in_turn(entry.reads) for entry in reads.passes), default=1)
    if in_turn > 1:
        yield Finding("access.interleave", in_turn, f"a process reads {in_turn} files in turn", "likely")
    pool, confidence, evidence = _pool(reads)
    if pool:
        yield Finding("access.shuffle_pool", pool, evidence, confidence)
    passes = max((_times_read(entry) for entry in reads.passes), default=0)
    if passes > 1:
        yield Finding("access.repeat", True, f"a process reads its files {passes} times in an iteration", "likely")


def _pool(reads: StreamReads) -> tuple[int, Confidence, str]:
    """Samples in the shuffle pool of a process: those that it has read and not given."""
    ahead = [pool_size(entry, reads.items) for entry in reads.passes]
    if not ahead or max(ahead) < _FEWEST:
        return 0, "assumed", ""
    pool, given = max(ahead), max(len(entry.items) * reads.items for entry in reads.passes)
    evidence = f"a process reads up to {counted(pool, 'sample')} before it gives them"
    if pool >= _MOST * given:
        return pool, "assumed", f"{evidence}, which are all of an iteration: a pool may be larger"
    return pool, "likely", evidence


def pool_size(entry: ReaderPass, samples_per_item: int) -> int:
    """Samples in the pool of a process: those that it had read and not given; 0 or 1: none.

    A read that brings several samples is no pool.
    """
    reads = entry.calls[class_codes(entry.calls) == CLASSES.index(READ)]
    moved = np.maximum(reads["bytes"].to_numpy(), 0).astype(np.float64)
    if not moved.sum() or len(entry.items) < 2:
        return 0
    per_sample = moved.sum() / (len(entry.items) * samples_per_item)
    ends = np.sort(reads["end_ns"].to_numpy())
    read = np.concatenate([[0.0], np.cumsum(moved)])[np.searchsorted(ends, entry.items, side="right")]
    given = np.arange(1, len(entry.items) + 1) * samples_per_item
    ahead = float((read / per_sample - given).max())
    # A pool of n samples gives the first one when it holds n.
    return int(max(0, round(ahead + 2 - max(1.0, float(moved.max()) / per_sample))))


def files_in_turn(reads: pd.DataFrame) -> int:
    """Number of files that a process reads in turn; 1: one after another.

    Args:
        reads: of one process, by time.
    """
    codes, names = pd.factorize(reads["file"])
    if len(codes) < 2:
        return 1
    switches = int(np.count_nonzero(np.diff(codes)))
    if switches < 2 * len(names):
        return 1
    places = [np.flatnonzero(codes == code) for code in range(len(names))]
    first, last = (np.array([place[end] for place in places]) for end in (0, -1))
    return int(max(((first <= place) & (last >= place)).sum() for place in first))


def _times_read(entry: ReaderPass) -> int:
    """Times that a process reads its files in an iteration: those of the byte where it begins to read a file."""
    reads = entry.reads[class_codes(entry.reads) == CLASSES.index(READ)]
    if reads.empty:
        return 1
    begins = reads.groupby("file", observed=True)["offset"]
    return min(int((offsets == offsets.iloc[0]).sum()) for _, offsets in begins)


# --- what options do not express --------------------------------------------------------------------------


def _gaps(reads: StreamReads, block: int) -> Iterator[str]:
    if block:
        return
    if any(_is_read_by_all(group) for group in _of_iterations(reads)):
        yield "each worker of a rank reads the same files; the recipe deals the files to the workers"


def _of_iterations(reads: StreamReads) -> Iterator[list[ReaderPass]]:
    """Passes of each rank and iteration."""
    for key in sorted({(entry.rank, entry.epoch) for entry in reads.passes}):
        yield [entry for entry in reads.passes if (entry.rank, entry.epoch) == key]


def _is_read_by_all(passes: Sequence[ReaderPass]) -> bool:
    """Whether several workers read the same files."""
    return len(passes) > 1 and all(set(passes[0].files) == set(entry.files) for entry in passes[1:])
