"""Order, loader and steps of a training whose loader was not recorded, from its reads alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from dlio_torch.fit.data_set import DataFit
from dlio_torch.fit.finding import Finding
from dlio_torch.fit.recorded_training import RecordedTraining
from dlio_torch.fit.sample_reads import SampleReads, sample_reads
from dlio_torch.units import counted

Floats = npt.NDArray[np.float64]

_OWN = 1.1
"""Ranks that read a sample, in the mean, up to which each rank has samples of its own."""
_AT_ONCE = 0.5
"""Time between two reads, relative to the median, below which the reader does not wait for the trainer."""


def reads_of(training: RecordedTraining, data: DataFit) -> SampleReads:
    """Readings of a recording without loader."""
    return data.reads if data.reads is not None else sample_reads(training)


def order_of_reads(training: RecordedTraining, data: DataFit) -> Iterator[Finding]:
    """Options of the group ``access``."""
    reads = reads_of(training, data)
    ranks = len(np.unique(reads.ranks))
    if reads.passes < 2:
        yield Finding("access.pattern", "samples", "no bytes are read a second time", "likely")
        yield Finding("access.order", "sequential", "the samples have the order in which they were read", "likely")
        if ranks > 1:
            yield Finding("access.partition", "batches", f"the samples of {ranks} ranks take turns", "likely")
        return
    mine = pd.Series(reads.samples[reads.ranks == reads.ranks.min()])
    times = mine.groupby(mine).cumcount()  # how often each sample was read before: the last epoch may be cut short
    passes = [samples.to_numpy() for _, samples in mine.groupby(times)]
    folders = data.findings.value("dataset.num_files", 1)
    yield from _repeated_order(passes, len(reads.rows) // folders, folders)
    if ranks > 1 and folders in (1, len(reads.rows)):  # else files are dealt
        yield _partition_of_repeats(reads, ranks)


def _repeated_order(passes: Sequence[npt.NDArray[np.int64]], per_file: int, folders: int) -> Iterator[Finding]:
    """Order of samples that several epochs read: ascending, files in random order, or random."""
    steps = [np.diff(samples) for samples in passes]
    if all((each == 1).all() for each in steps):  # in one epoch that may be chance
        yield Finding("access.pattern", "samples", "each epoch reads the files in their order", "likely")
        yield Finding("access.order", "sequential", "each epoch reads the files in their order", "likely")
        return
    inside = [each[samples[1:] % per_file != 0] for each, samples in zip(steps, passes, strict=True)]
    if folders > 1 and per_file > 1 and all((each == 1).all() for each in inside):
        yield Finding("access.pattern", "stream", "each file is read from its start to its end", "likely")
        yield Finding("access.order", "shuffled", "each epoch reads the files in another order", "likely")
        yield Finding("access.partition", "files", "a file is read by one rank in an epoch", "likely")
        return
    yield Finding("access.pattern", "samples", "the places of reads have no order", "likely")
    yield Finding("access.order", "shuffled", "the places of reads have no order", "likely")


def _partition_of_repeats(reads: SampleReads, ranks: int) -> Finding:
    """``access.partition`` of ranks that read samples of all files in several epochs."""
    pairs = np.unique(np.stack([reads.ranks, reads.samples]), axis=1)
    times = pairs.shape[1] / len(reads.rows)  # ranks that read a sample, in the mean
    evidence = f"a sample is read by {times:.2g} of {ranks} ranks in the mean, in {reads.passes} epochs"
    return Finding("access.partition", "slices" if times < _OWN else "batches", evidence, "likely")


def loader_of_reads(training: RecordedTraining, data: DataFit) -> Iterator[Finding]:
    """Options of the group ``loader``."""
    reads = reads_of(training, data)
    workers = reading_processes(reads)
    if workers > 1:
        evidence = f"{workers} processes of a rank read at the same time"
        yield Finding("loader.num_workers", workers, evidence, "likely")
        return
    yield Finding("loader.num_workers", 0, "one process of a rank reads", "likely")
    if not reads_ahead(reads):
        evidence = "the thread that trains reads" if _knows_threads(reads) else "the recording does not name threads"
        yield Finding("loader.read_threads", 0, evidence, "likely" if _knows_threads(reads) else "assumed")
        return
    yield Finding("loader.read_threads", 1, "a thread of its own reads, not the one that trains", "likely")
    ahead = batches_ahead(reads)
    evidence = f"an epoch begins with {counted(ahead + 1, 'batch', 'batches')} without a pause"
    yield Finding("loader.prefetch_batches", max(1, ahead), evidence, "likely")


def amount_of_reads(training: RecordedTraining, data: DataFit) -> Iterator[Finding]:
    """Batch, epochs and steps."""
    reads = reads_of(training, data)
    batch = _batch(reads, data)
    yield Finding("train.batch_size", batch, reads.evidence, "likely")
    smallest = int(np.unique(reads.batches, return_counts=True)[1].min())
    if data.reads is not None and smallest < batch:
        evidence = f"the smallest batch has {smallest} of {batch} samples"
        yield Finding("access.tail", "keep", evidence, "likely")
    yield Finding("train.epochs", reads.passes, f"the same bytes are read {counted(reads.passes, 'time')}", "likely")


def _batch(reads: SampleReads, data: DataFit) -> int:
    """Samples of a batch: its readings of recorded calls, or as many as the files hold over the batches of them."""
    if data.reads is not None:
        return reads.batch_size
    epochs = max(1, reads.passes) * len(np.unique(reads.ranks))
    return max(1, round(data.samples * epochs * reads.batch_size / len(reads.readings)))


def seconds_of_steps(reads: SampleReads) -> Floats:
    """Seconds between two batches of a process; with a reader that is ahead, from begin to begin."""
    begins, ends, ranks = (reads.batch_edges[name].to_numpy() for name in ("begin", "end", "rank"))
    chosen = np.flatnonzero(ranks == ranks.min())
    order = chosen[np.argsort(begins[chosen], kind="stable")]
    if not reads_ahead(reads):
        gaps: Floats = np.maximum(begins[order[1:]] - ends[order[:-1]], 0) / 1e9
        return gaps
    times = np.diff(begins[order]) / 1e9
    waits: Floats = times[times > _AT_ONCE * np.median(times)]
    return waits


def reading_processes(reads: SampleReads) -> int:
    """Most processes of a rank that read at the same time, each from its first to its last reading."""
    first = np.array([group[0] for group in reads.readings])
    spans = pd.DataFrame({name: reads.calls[name].to_numpy()[first] for name in ("rank", "pid")})
    spans["begin"], spans["end"] = reads.begins, reads.ends
    edges = spans.groupby(["rank", "pid"]).agg({"begin": "min", "end": "max"}).reset_index()
    most = 1
    for _, of_rank in edges.groupby("rank"):
        begins, ends = np.sort(of_rank["begin"].to_numpy()), np.sort(of_rank["end"].to_numpy())
        most = max(most, int((np.arange(1, len(begins) + 1) - np.searchsorted(ends, begins)).max()))
    return most


def reads_ahead(reads: SampleReads) -> bool:
    """Whether threads read that are not the first thread of their process."""
    rows = np.array([group[0] for group in reads.readings])
    tid, pid = (reads.calls[name].to_numpy()[rows] for name in ("tid", "pid"))
    return bool(len(rows) and (tid >= 0).all() and (tid != pid).all())


def _knows_threads(reads: SampleReads) -> bool:
    return bool((reads.calls["tid"].to_numpy() >= 0).all())


def batches_ahead(reads: SampleReads) -> int:
    """Batches that the reader reads at the begin of an epoch without waiting for the trainer, without the first one."""
    times = np.diff(reads.batch_edges["begin"].to_numpy())
    slow = np.flatnonzero(times > _AT_ONCE * np.median(times))
    return int(slow[0]) if len(slow) else len(times)
