"""Readings of samples in a recording: which calls read a sample, found from the loader's samples or the calls alone.

A *reading* is one sample that is read once.  The import hook recorded the readings of loaders.  Without a loader a
reading is what a process reads between two pauses, which is a batch of the program: its steps are far longer than the
time between two calls for one batch.  A reader that works ahead reads several batches without a pause at the beginning
of an epoch; they are cut by the usual bytes of a reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from dlio_torch.errors import DataError
from dlio_torch.fit.recorded_files import training_files
from dlio_torch.fit.recorded_training import RecordedTraining
from dlio_torch.iotrace.events.call_names import CLASSES, CLOSE, OPEN, READ, WRITE, class_codes
from dlio_torch.units import counted, format_duration

Ints = npt.NDArray[np.int64]

_FEWEST_PAUSES = 7
"""Pauses below which the lengths of pauses do not tell batches apart."""
_PAUSE_RATIO = 2.5
"""Ratio by which the shortest pause is longer than the longest time between calls of one batch."""
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
        evidence: how readings are told apart, one line.
        of_loader: whether a loader's samples tell them apart.
    """

    calls: pd.DataFrame
    readings: tuple[Ints, ...]
    ranks: Ints
    samples: Ints
    rows: Ints
    start: Ints
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
    def passes(self) -> int:
        """How often the sample that is read most often is read by one rank."""
        pairs = np.unique(np.stack([self.ranks, self.samples]), axis=1, return_counts=True)[1]
        return int(pairs.max()) if len(pairs) else 0


@dataclass(frozen=True)
class _CallColumns:
    """Columns of the calls as arrays; ``moved`` is the bytes of reads, 0 for other calls."""

    calls: pd.DataFrame
    begin: Ints
    end: Ints
    rank: Ints
    file: Ints
    code: npt.NDArray[np.int8]
    offset: Ints
    moved: Ints

    @classmethod
    def of(cls, calls: pd.DataFrame) -> _CallColumns:
        code = class_codes(calls)
        moved = np.where(code == CLASSES.index(READ), np.maximum(calls["bytes"].to_numpy(), 0), 0)
        begin, end, rank, offset = (calls[name].to_numpy() for name in ("start_ns", "end_ns", "rank", "offset"))
        return cls(calls, begin, end, rank, calls["file"].cat.codes.to_numpy().astype(np.int64), code, offset, moved)

    def total(self, rows: Ints) -> int:
        """Bytes that these calls read."""
        return int(self.moved[rows].sum())


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
    table = _CallColumns.of(calls)
    grouped = table.calls.groupby(["rank", "pid"], sort=True).indices.values()
    streams = [np.asarray(rows, np.int64) for rows in grouped]
    count, shortest = _usual_number(table, streams)
    groups = [group for stream in streams for group in _parts(table, stream, count)]
    usual = _usual_bytes(table, groups)
    begins = _begins(table, groups, usual)
    groups = _by_turns(table, [piece for group in groups for piece in _cut(table, group, usual, begins)])
    samples, rows = _identities(table, groups)
    evidence = "no pauses lie between the reads; a sample is what is read from an open to the next one"
    if count > 1:
        pauses = f"pauses of at least {format_duration(shortest / 1e9)}"
        evidence = f"{pauses} lie between the reads; a sample is what is read between two of them"
    return _reads(table.calls, groups, samples, rows, evidence, of_loader=False)


def _reads(
    calls: pd.DataFrame, groups: list[Ints], samples: Ints, rows: Ints, evidence: str, *, of_loader: bool
) -> SampleReads:
    ranks = calls["rank"].to_numpy()[[group[0] for group in groups]]
    return SampleReads(
        calls, tuple(groups), ranks, samples, rows, _before_first(calls, groups), evidence, of_loader=of_loader
    )


def _before_first(calls: pd.DataFrame, groups: list[Ints]) -> Ints:
    """Calls of the process of the first reading before it, that belong to no reading."""
    first = int(groups[0][0])
    pid = calls["pid"].to_numpy()
    taken = np.zeros(len(calls), np.bool_)
    taken[np.concatenate(groups)] = True
    before: Ints = np.flatnonzero((np.arange(len(calls)) < first) & (pid == pid[first]) & ~taken)
    return before


def _usual_number(table: _CallColumns, streams: list[Ints]) -> tuple[int, float]:
    """Number of readings of most processes, and their shortest pause in ns; 1 without pauses."""
    pauses = [_pauses(_gaps(table, stream)) for stream in streams]
    usual = int(np.median([count for count, _ in pauses]))
    return usual + 1, min(pauses, key=lambda entry: abs(entry[0] - usual))[1]


def _gaps(table: _CallColumns, stream: Ints) -> Ints:
    """Time from the end of a call to the begin of the next one, ns, at least 1."""
    gaps: Ints = np.maximum(table.begin[stream[1:]] - table.end[stream[:-1]], 1)
    return gaps


def _pauses(gaps: Ints) -> tuple[int, float]:
    """Number of pauses and the shortest one: those above the largest step among the longer half of all gaps."""
    ordered = np.sort(gaps)[::-1].astype(np.float64)
    numbers = np.arange(_FEWEST_PAUSES, max(_FEWEST_PAUSES, len(ordered) // 2) + 1)
    numbers = numbers[numbers < len(ordered)]
    if not len(numbers):
        return 0, 0.0
    ratios = ordered[numbers - 1] / ordered[numbers]
    best = int(ratios.argmax())
    return (int(numbers[best]), float(ordered[numbers[best] - 1])) if ratios[best] >= _PAUSE_RATIO else (0, 0.0)


def _parts(table: _CallColumns, stream: Ints, count: int) -> Iterator[Ints]:
    """Readings of a process: between pauses, or without pauses from open to open."""
    if count > 1:
        yield from _bursts(table, stream, count)
        return
    opens = np.flatnonzero(table.code[stream] == CLASSES.index(OPEN))
    parts = (part for part in np.split(stream, opens) if len(part))
    yield from (part for part in parts if table.total(part))


def _bursts(table: _CallColumns, stream: Ints, count: int) -> Iterator[Ints]:
    """Calls of a process between its ``count - 1`` longest pauses; the end of a file belongs to what reads the file."""
    cuts = np.sort(np.argsort(-_gaps(table, stream), kind="stable")[: count - 1]) + 1
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


def _usual_bytes(table: _CallColumns, groups: list[Ints]) -> int:
    """Bytes of most readings; 0 if they differ."""
    sizes = np.array([table.total(group) for group in groups])
    middle = float(np.median(sizes))
    same = np.abs(sizes - middle) <= _SAME * middle
    return int(middle) if middle and same.mean() > 0.75 else 0


def _cut(table: _CallColumns, group: Ints, usual: int, begins: Ints) -> Iterator[Ints]:
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


def _begins(table: _CallColumns, groups: list[Ints], usual: int) -> Ints:
    """First bytes of the readings of usual size."""
    single = [group for group in groups if table.total(group) <= (1 + _SAME) * usual]
    offsets = [table.offset[group[table.moved[group] > 0][:1]] for group in single]
    return np.unique(np.concatenate(offsets)) if offsets else np.zeros(0, np.int64)


def _by_turns(table: _CallColumns, groups: list[Ints]) -> list[Ints]:
    """Readings in the order of time; with several ranks their first readings, then their second ones and so on."""
    first = np.array([group[0] for group in groups])
    ranks = table.rank[first]
    turn = pd.Series(ranks).groupby(ranks).cumcount().to_numpy()
    order = np.lexsort((ranks, turn)) if len(np.unique(ranks)) > 1 else np.argsort(first, kind="stable")
    return [groups[number] for number in order]


def _identities(table: _CallColumns, groups: list[Ints]) -> tuple[Ints, Ints]:
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


def _identity(table: _CallColumns, group: Ints) -> tuple[int, int, bytes]:
    """First file and offset of what a reading reads, and all files, offsets and bytes."""
    chosen = group[table.moved[group] > 0]
    if not len(chosen):
        return -1, -1, b""
    columns = np.stack([table.file[chosen], table.offset[chosen], table.moved[chosen]])
    return int(columns[0, 0]), int(columns[1, 0]), columns.tobytes()
