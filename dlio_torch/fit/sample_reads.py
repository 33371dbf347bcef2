"""Readings of samples in a recording: which calls read a sample, found from the loader's samples or the calls alone.

A *reading* is one sample that is read once.  The import hook recorded the readings of loaders.  Without a loader a
reading is what a process reads between two pauses, which is a batch of the program: its steps are far longer than the
time between two calls for one batch.  A reader that works ahead reads several batches without a pause at the beginning
of an epoch; they are cut by the usual bytes of a reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from dlio_torch.errors import DataError
from dlio_torch.fit.opened_samples import OpenedSamples, opened_samples
from dlio_torch.fit.read_pauses import CallColumns, gaps_between, longest, usual_number
from dlio_torch.fit.recorded_files import training_files
from dlio_torch.fit.recorded_training import RecordedTraining
from dlio_torch.iotrace.events.call_names import CLASSES, CLOSE, OPEN, READ, WRITE, class_codes
from dlio_torch.units import counted, format_duration

Ints = npt.NDArray[np.int64]

_SAME = 0.05
"""Relative difference up to which readings count as of one size."""
_LITTLE = 0.001
"""Bytes that are read of a file, relative to those of the file that is read most, up to which it holds no samples."""
_REPEATED = 1.5
"""Readings for each sample from which on the program reads its samples again."""
_NEAR = 5  # calls behind the usual bytes among which a reading may end


@dataclass(frozen=True)
class SampleReads:
    """Readings of a recording.

    Attributes:
        calls: calls on the data files, in the order of time; columns of the event table.
        readings: positions in ``calls`` of the calls of each reading, in the order of their begins.
        ranks: rank of each reading.
        samples: number of the sample of each reading, from 0 on; equal numbers read the same bytes, or have the same
            index.
        rows: reading that stands for each sample.
        start: positions of the calls of the first process before its first reading.
        batches: number of the batch of each reading; batches of all processes have different numbers.
        evidence: how readings are told apart, one line.
        of_loader: whether a loader's samples tell them apart.
    """

    calls: pd.DataFrame
    readings: tuple[Ints, ...]
    ranks: Ints
    samples: Ints
    rows: Ints
    start: Ints
    batches: Ints
    evidence: str
    of_loader: bool

    @property
    def begins(self) -> Ints:
        """Begin of each reading, ns."""
        return self.calls["start_ns"].to_numpy()[[rows[0] for rows in self.readings]]

    @property
    def ends(self) -> Ints:
        """End of each reading, ns."""
        return self.calls["end_ns"].to_numpy()[[rows[-1] for rows in self.readings]]

    @property
    def batch_size(self) -> int:
        """Readings of most batches."""
        return int(np.bincount(np.unique(self.batches, return_counts=True)[1]).argmax())

    @property
    def batch_edges(self) -> pd.DataFrame:
        """Columns ``rank, begin, end`` (ns), a row for each batch in the order of readings."""
        frame = pd.DataFrame({"batch": self.batches, "rank": self.ranks, "begin": self.begins, "end": self.ends})
        edges: pd.DataFrame = frame.groupby("batch", sort=False).agg({"rank": "first", "begin": "min", "end": "max"})
        return edges

    @property
    def passes(self) -> int:
        """How often the sample that is read most often is read by one rank."""
        pairs = np.unique(np.stack([self.ranks, self.samples]), axis=1, return_counts=True)[1]
        return int(pairs.max()) if len(pairs) else 0


def sample_reads(training: RecordedTraining) -> SampleReads:
    """Finds the readings of a recording.

    Raises:
        DataError: the samples of a recorded loader have no calls of their own, as those of mapped files, or as the
            items of a stream that is read in larger pieces.
    """
    files = read_only(training)
    calls = training.calls[training.calls["file"].isin(files)]
    calls = calls.sort_values("start_ns", kind="stable").reset_index(drop=True)
    calls["file"] = calls["file"].cat.set_categories(files)  # codes in the order of names
    if training.training is None:
        return reads_between_pauses(calls)
    dataset = training.training.dataset
    of_samples = (calls["sample"] >= 0) & (class_codes(calls) == CLASSES.index(READ))
    if dataset is None or not (of_samples & (calls["dataset"] == dataset.id)).any():
        raise DataError("which calls read a sample is not known", hint="fit where the data are, in a known format")
    return reads_of_samples(calls, dataset.id)


def read_only(training: RecordedTraining) -> list[str]:
    """Files of training samples that the program does not write itself, as it does with temporary files.

    Without a loader also settings and the like are read; files of which far less is read than of others are left out.
    """
    calls, files = training.calls, training_files(training)
    codes = class_codes(calls)
    written = set(map(str, calls[codes == CLASSES.index(WRITE)]["file"].unique()))
    kept = [name for name in files if name not in written] or files
    if training.training is not None:
        return kept
    reads = calls[(codes == CLASSES.index(READ)) & calls["file"].isin(kept).to_numpy()]
    moved = reads["bytes"].clip(lower=0).groupby(reads["file"].astype(str)).sum()
    return [name for name in kept if moved.get(name, 0) > _LITTLE * moved.max()]


def reads_of_samples(calls: pd.DataFrame, dataset: int) -> SampleReads:
    """Readings of samples that have an index.

    Args:
        calls: on data files, in the order of time; with the columns ``sample``, ``dataset`` and ``reading``.
        dataset: id of the data set of training.
    """
    of_sample = calls[(calls["sample"] >= 0) & (calls["dataset"] == dataset)]
    keys = ["rank", "pid", "dataset", "sample", "reading"]
    groups = [np.asarray(rows.index, np.int64) for _, rows in of_sample.groupby(keys, sort=False)]
    groups.sort(key=lambda rows: int(rows[0]))
    index = calls["sample"].to_numpy()[[rows[0] for rows in groups]]
    numbers, rows, samples = np.unique(index, return_index=True, return_inverse=True)
    evidence = f"calls within dataset[i] belong to sample i; {counted(len(numbers), 'sample')} were read"
    return _reads(calls, groups, samples, rows, evidence, of_loader=True)


def reads_between_pauses(calls: pd.DataFrame) -> SampleReads:
    """Readings between pauses.

    Args:
        calls: on data files, in the order of time; columns of the event table.
    """
    table = CallColumns.of(calls)
    grouped = table.calls.groupby(["rank", "pid"], sort=True).indices.values()
    streams = [np.asarray(rows, np.int64) for rows in grouped]
    opened = opened_samples(table, streams) or _batches_between_pauses(table, streams)
    order = _by_turns(table, opened)
    groups = [opened.readings[number] for number in order]
    samples, rows = _identities(table, groups)
    reads = _reads(table.calls, groups, samples, rows, opened.evidence, of_loader=False)
    return replace(reads, batches=opened.batches[order])


def _batches_between_pauses(table: CallColumns, streams: list[Ints]) -> OpenedSamples:
    """Readings between pauses, each a batch; without pauses what is read from an open to the next one."""
    count, shortest = usual_number([gaps_between(table, stream, stream) for stream in streams])
    groups = [group for stream in streams for group in _parts(table, stream, count)]
    usual = _usual_bytes(table, groups)
    begins = _begins(table, groups, usual)
    groups = [piece for group in groups for piece in _cut(table, group, usual, begins)]
    evidence = "no pauses lie between the reads; a sample is what is read from an open to the next one"
    if count > 1:
        least = f"pauses of at least {format_duration(shortest / 1e9)}"
        evidence = f"{least} lie between the reads; a sample is what is read between two of them"
    return OpenedSamples(groups, np.arange(len(groups)), evidence)


def _reads(
    calls: pd.DataFrame, groups: list[Ints], samples: Ints, rows: Ints, evidence: str, *, of_loader: bool
) -> SampleReads:
    ranks = calls["rank"].to_numpy()[[group[0] for group in groups]]
    start, batches = _before_first(calls, groups), np.arange(len(groups))
    return SampleReads(calls, tuple(groups), ranks, samples, rows, start, batches, evidence, of_loader=of_loader)


def _before_first(calls: pd.DataFrame, groups: list[Ints]) -> Ints:
    """Calls of the process of the first reading before it, that belong to no reading."""
    first = int(groups[0][0])
    pid = calls["pid"].to_numpy()
    taken = np.zeros(len(calls), np.bool_)
    taken[np.concatenate(groups)] = True
    before: Ints = np.flatnonzero((np.arange(len(calls)) < first) & (pid == pid[first]) & ~taken)
    return before


def _parts(table: CallColumns, stream: Ints, count: int) -> Iterator[Ints]:
    """Readings of a process: between pauses, or without pauses from open to open."""
    if count > 1:
        yield from _bursts(table, stream, count)
        return
    opens = np.flatnonzero(table.code[stream] == CLASSES.index(OPEN))
    parts = (part for part in np.split(stream, opens) if len(part))
    yield from (part for part in parts if table.total(part))


def _bursts(table: CallColumns, stream: Ints, count: int) -> Iterator[Ints]:
    """Calls of a process between its ``count - 1`` longest pauses; the end of a file belongs to what reads the file."""
    cuts = longest(gaps_between(table, stream, stream), count - 1) + 1
    codes, files = table.code[stream], table.file[stream]
    at_end = (codes == CLASSES.index(CLOSE)) | ((codes == CLASSES.index(READ)) & (table.moved[stream] == 0))
    continues = np.append(False, at_end[1:] & (files[1:] == files[:-1]))
    moved = [_behind(continues, int(cut)) for cut in cuts]
    yield from (part for part in np.split(stream, np.unique(moved)) if len(part))


def _behind(continues: npt.NDArray[np.bool_], cut: int) -> int:
    """The first place from ``cut`` on that does not continue what is before it."""
    while cut < len(continues) and continues[cut]:
        cut += 1
    return cut


def _usual_bytes(table: CallColumns, groups: list[Ints]) -> int:
    """Bytes of most readings; 0 if they differ."""
    sizes = np.array([table.total(group) for group in groups])
    middle = float(np.median(sizes))
    same = np.abs(sizes - middle) <= _SAME * middle
    return int(middle) if middle and same.mean() > 0.75 else 0


def _cut(table: CallColumns, group: Ints, usual: int, begins: Ints) -> Iterator[Ints]:
    """Pieces of the usual bytes of a longer reading, each from an open or a usual first byte on, if one is near."""
    moved = np.cumsum(table.moved[group])
    count = round(moved[-1] / usual) if usual else 1
    if count < 2 or abs(moved[-1] - count * usual) > _SAME * moved[-1]:
        yield group
        return
    opens = table.code[group] == CLASSES.index(OPEN)
    known = np.flatnonzero(opens | np.isin(table.offset[group], begins))
    cuts = np.searchsorted(moved, usual * np.arange(1, count)) + 1
    for number, cut in enumerate(cuts):
        near = known[(known >= cut) & (known < cut + _NEAR)]
        cuts[number] = near[0] if len(near) else cut
    yield from (part for part in np.split(group, np.unique(cuts)) if len(part))


def _begins(table: CallColumns, groups: list[Ints], usual: int) -> Ints:
    """First bytes of the readings of usual size."""
    single = [group for group in groups if table.total(group) <= (1 + _SAME) * usual]
    offsets = [table.offset[group[table.moved[group] > 0][:1]] for group in single]
    return np.unique(np.concatenate(offsets)) if offsets else np.zeros(0, np.int64)


def _by_turns(table: CallColumns, opened: OpenedSamples) -> Ints:
    """Readings in the order of time; with several ranks their first batches, then their second ones and so on."""
    first = np.array([group[0] for group in opened.readings])
    ranks = table.rank[first]
    if len(np.unique(ranks)) < 2:
        return np.argsort(first, kind="stable")
    batches = pd.Series(opened.batches)
    turn = batches.groupby(ranks).transform(lambda of_rank: pd.factorize(of_rank)[0]).to_numpy()
    return np.lexsort((ranks, turn))


def _identities(table: CallColumns, groups: list[Ints]) -> tuple[Ints, Ints]:
    """Number of the sample of each reading, and the first reading of each sample.

    Samples that are read again are numbered by file and offset.  Where few are, each reading is a sample.
    """
    keys = [_identity(table, group) for group in groups]
    first: dict[tuple[int, int, bytes], int] = {}
    for number, key in enumerate(keys):
        first.setdefault(key, number)
    if _REPEATED * len(first) > len(keys):
        return np.arange(len(keys)), np.arange(len(keys))
    ordered = sorted(first)
    numbers = {key: number for number, key in enumerate(ordered)}
    return np.array([numbers[key] for key in keys], np.int64), np.array([first[key] for key in ordered], np.int64)


def _identity(table: CallColumns, group: Ints) -> tuple[int, int, bytes]:
    """First file and offset of what a reading reads, and all files, offsets and bytes."""
    chosen = group[table.moved[group] > 0]
    if not len(chosen):
        return -1, -1, b""
    columns = np.stack([table.file[chosen], table.offset[chosen], table.moved[chosen]])
    return int(columns[0, 0]), int(columns[1, 0]), columns.tobytes()
