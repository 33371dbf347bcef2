"""The data set of a recorded training that no known format explains: raw files, and the recorded calls on them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from dlio_torch.fit.finding import Confidence, Finding, Findings, findings
from dlio_torch.fit.recorded_training import RecordedTraining
from dlio_torch.fit.sample_reads import SampleReads, sample_reads
from dlio_torch.formats.core.recorded_samples import RecordedSamples, replaying_format
from dlio_torch.iotrace.events.call_names import CLASSES, CLOSE, MAP, OPEN, READ, SEEK, class_codes
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.units import counted

Ints = npt.NDArray[np.int64]

FILE = "requests.npz"
"""Name of the file of recorded requests beside the recipe."""


@dataclass(frozen=True)
class ReplayedData:
    """A data set of recorded calls.

    Attributes:
        findings: options of the group ``dataset``, and the files that they reproduce.
        format: value of ``dataset.format``.
        samples: calls of the samples.
        reads: readings of the recording.
    """

    findings: Findings
    format: str
    samples: RecordedSamples
    reads: SampleReads


def fit_replayed_data(training: RecordedTraining, reason: str) -> ReplayedData:
    """The recorded calls as a data set.

    Args:
        training: the recording.
        reason: why no known format explains them.
    """
    reads = sample_reads(training)
    samples = _as_counted(recorded_samples(reads), training.recording)
    about = replaying_format()
    folders = _folders(reads, samples)
    count = len(samples.samples)
    confidence: Confidence = "certain" if reads.of_loader else "likely"
    values = [
        Finding("dataset.format", about.name, f"no known format explains the reads: {reason}", confidence),
        Finding("dataset.num_files", folders, f"{counted(len(samples.file_bytes), 'file')} hold the samples", "likely"),
        Finding("dataset.samples_per_file", count // folders, reads.evidence, confidence),
        Finding(f"dataset.{about.option_group}.{about.replay_option}", FILE, "the recorded calls on the data files"),
    ]
    return ReplayedData(findings(values, _gaps(reads), samples.file_bytes), about.name, samples, reads)


def recorded_samples(reads: SampleReads) -> RecordedSamples:
    """The calls of each sample, of its first reading."""
    used = np.concatenate([*reads.readings, reads.start])
    sizes = _sizes(reads.calls.loc[np.sort(used)])
    rows = [reads.readings[row] for row in reads.rows]
    if not reads.of_loader:
        return RecordedSamples(reads.calls, rows, sizes, reads.start)
    opening = _opening(reads)
    return RecordedSamples(reads.calls, _without_opening(reads, rows), sizes, reads.start, opening)


def _as_counted(samples: RecordedSamples, recording: Recording) -> RecordedSamples:
    """The samples with what the counters of a log say of opens and seeks, which it does not record as single calls."""
    if recording.counters is None:
        return samples
    counters = recording.counters[recording.counters["file"].astype(str).isin(samples.file_bytes)]
    if SEEK not in recording.sees and not (counters["seeks"] > 0).any():  # each read names its position
        calls = samples.calls.assign(op=samples.calls["op"].astype(str).replace({"read": "pread"}))
        samples = replace(samples, calls=calls)
    return samples if OPEN in recording.sees else _with_opens(samples, counters)


def _with_opens(samples: RecordedSamples, counters: pd.DataFrame) -> RecordedSamples:
    """Opens of each process as counted: files that a process opens several times are closed between."""
    opens = counters.groupby(counters["file"].astype(str))["opens"].sum()
    calls, opening = samples.calls, {}
    ranks = calls.groupby(calls["file"].astype(str))["rank"].nunique()
    rows = [calls]
    count = len(calls)
    for name in samples.file_bytes:
        times = round(float(opens.get(name, 0)) / int(ranks.get(name, 1)))
        if times > 1:
            names = ["open", "close"] * (times - 1) + ["open"]
            rows.append(pd.DataFrame({"op": names, "file": name, "offset": -1, "bytes": -1}))
            opening[name] = np.arange(count, count + len(names))
            count += len(names)
    columns = ["op", "file", "offset", "bytes"]
    merged = pd.concat([part[columns].astype({"op": str, "file": str}) for part in rows], ignore_index=True)
    return replace(samples, calls=merged, opening={**samples.opening, **opening})


def _sizes(calls: pd.DataFrame) -> dict[str, int]:
    """Sizes of files in bytes: those that are there, or the largest end that was read; sorted by path."""
    moved = np.isin(class_codes(calls), [CLASSES.index(READ), CLASSES.index(MAP)])
    ends = np.where(moved, calls["offset"].to_numpy() + np.maximum(calls["bytes"].to_numpy(), 0), 0)
    largest = pd.Series(ends).groupby(calls["file"].astype(str).to_numpy()).max()
    return {str(name): max(_present(str(name)), int(end)) for name, end in largest.sort_index().items()}


def _present(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _opening(reads: SampleReads) -> dict[str, Ints]:
    """Calls with which a process opens each file that a reading opens and does not close.

    They are those that two such opens have in common, or without a second open those before the first read.
    """
    calls, codes = reads.calls, class_codes(reads.calls)
    begins: dict[str, list[Ints]] = {}
    for group in reads.readings:
        for place in _left_open(calls, codes, group):
            rest = group[place:]
            name = str(calls["file"].iloc[rest[0]])
            begins.setdefault(name, []).append(rest[(calls["file"].iloc[rest] == name).to_numpy()])
    return {name: _common(calls, codes, parts) for name, parts in begins.items()}


def _left_open(calls: pd.DataFrame, codes: npt.NDArray[np.int8], group: Ints) -> Iterator[int]:
    """Places in a reading of the opens that no later close of it closes."""
    files = calls["file"].cat.codes.to_numpy()[group]
    for place in np.flatnonzero(codes[group] == CLASSES.index(OPEN)):
        later = (codes[group[place:]] == CLASSES.index(CLOSE)) & (files[place:] == files[place])
        if not later.any():
            yield int(place)


def _common(calls: pd.DataFrame, codes: npt.NDArray[np.int8], parts: list[Ints]) -> Ints:
    """First calls that all parts share."""
    if len(parts) == 1:
        reads = np.flatnonzero(codes[parts[0]] == CLASSES.index(READ))
        return parts[0][: reads[0]] if len(reads) else parts[0]
    texts = [list(calls.loc[part, ["op", "offset", "bytes"]].astype(str).agg(" ".join, axis=1)) for part in parts]
    length = 0
    for entries in zip(*texts, strict=False):
        if len(set(entries)) > 1:
            break
        length += 1
    return parts[0][:length]


def _without_opening(reads: SampleReads, rows: list[Ints]) -> list[Ints]:
    """Samples without the calls that open files for further samples, and without closes of such files."""
    calls, codes = reads.calls, class_codes(reads.calls)
    opening = {name: len(part) for name, part in _opening(reads).items()}
    result = []
    for group in rows:
        kept = np.ones(len(group), np.bool_)
        files = calls["file"].astype(str).to_numpy()[group]
        for place in _left_open(calls, codes, group):
            same = np.flatnonzero((files == files[place]) & (np.arange(len(group)) >= place))
            kept[same[: opening[files[place]]]] = False
        opened = {files[place] for place in np.flatnonzero(codes[group] == CLASSES.index(OPEN))}
        kept &= (codes[group] != CLASSES.index(CLOSE)) | np.isin(files, list(opened))
        result.append(group[kept])
    return result


def _folders(reads: SampleReads, samples: RecordedSamples) -> int:
    """Number of recorded files if each holds as many consecutive samples as the others; else 1."""
    names = reads.calls["file"].astype(str).to_numpy()
    files = [np.unique(names[group]) for group in samples.samples]
    if any(len(name) != 1 for name in files):
        return 1
    order = [str(name[0]) for name in files]
    count = len(set(order))
    expected = np.repeat(list(dict.fromkeys(order)), len(order) // count)
    return count if len(order) % count == 0 and list(expected) == order else 1


def _gaps(reads: SampleReads) -> Iterator[str]:
    mapped = class_codes(reads.calls) == CLASSES.index(MAP)
    if mapped.any():
        yield "which bytes of its mapped files the program uses is not recorded, so that they are mapped and not read"
    if not reads.of_loader and reads.batch_size == 1:
        yield "the samples of a batch, which the calls do not tell apart: a batch is one sample of the recipe"
