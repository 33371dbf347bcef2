"""A recorded training: its data calls, each with the sample that it was made for, and its loaders.

The recording of a program with the import hook holds both system calls and what torch's loaders were asked for.  A
call belongs to a sample if it began while its thread was inside ``dataset[i]``; a call of another thread of the
process, such as a library's reader thread, belongs to the sample that was being read at that time.  Recordings of other
tools have no loaders; what follows from the calls alone is found from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from dlio_torch.analysis.run_recording import open_recording
from dlio_torch.fit.repeated_loaders import join_repeated_loaders
from dlio_torch.fit.unusable_recordings import (
    refuse_damaged,
    refuse_incomplete,
    refuse_without_reads,
    refuse_without_training,
)
from dlio_torch.iotrace.events.call_names import CLASSES, MAP, READ, SYNC, WRITE, class_codes
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.iotrace.events.torch_calls import LoaderEpoch, TorchCalls, TorchDataset, TorchLoader, read_torch_calls
from dlio_torch.iotrace.figures.call_selection import data_only
from dlio_torch.run_directory.run_dir import RunDir

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RecordedLoader:
    """A loader of the program, as the first rank used it.

    Attributes:
        loader: what it was made with.
        dataset: its data set.
        epochs: iterations over it, in order.
        fetches: spans ``fetch`` of these iterations: columns of the event table, ``step`` is the batch.
        indices: columns ``rank, epoch, batch, position, index`` of the samples that its sampler gave; all ranks.
    """

    loader: TorchLoader
    dataset: TorchDataset | None
    epochs: tuple[LoaderEpoch, ...]
    fetches: pd.DataFrame
    indices: pd.DataFrame

    @property
    def batches(self) -> int:
        """Number of batches that the first rank fetched."""
        return len(self.fetches)


@dataclass(frozen=True)
class RecordedTraining:
    """A recording, with what a recipe is made of.

    Attributes:
        recording: without calls on files of the program and of the system.
        torch: what torch was asked for; without loaders if the import hook could not enter.
        calls: the I/O calls of ``recording``; further columns ``sample`` (index, -1: none), ``dataset`` (id, -1),
            ``batch`` (-1) and ``reading`` (number of the span ``sample``, -1).
        training: the loader of training; ``None``: none was recorded.
        evaluation: the loader of evaluation; ``None``: none was recorded.
        world_size: number of ranks.
    """

    recording: Recording
    torch: TorchCalls
    calls: pd.DataFrame
    training: RecordedLoader | None
    evaluation: RecordedLoader | None
    world_size: int

    @property
    def data_calls(self) -> pd.DataFrame:
        """Calls on the files that hold the samples: those that are read, mapped or opened for a sample."""
        return self.calls[self.calls["file"].isin(self.data_files)]

    @property
    def data_files(self) -> list[str]:
        """Paths of the files that hold the samples, sorted; see :func:`files_of_samples`."""
        return files_of_samples(self)

    @property
    def own_data_ns(self) -> int | None:
        """Begin of the first sample, if the program wrote the files of its samples before; else ``None``."""
        of_samples = self.calls[self.calls["dataset"] >= 0]
        if of_samples.empty:
            return None
        begin = int(of_samples["start_ns"].min())
        before = self.data_calls[self.data_calls["start_ns"] < begin]
        stored = np.isin(class_codes(before), [CLASSES.index(WRITE), CLASSES.index(SYNC)])
        return begin if stored.any() else None  # written by another name and renamed, it is made durable at least

    @property
    def begin_ns(self) -> int:
        """Begin of the first fetch of training, or of the first call without loaders."""
        if self.training is not None and self.training.batches:
            return int(self.training.fetches["start_ns"].min())
        return int(self.calls["start_ns"].min())


def read_training(path: Path | str) -> RecordedTraining:
    """Reads the recording of a training.

    Args:
        path: a folder of the verb ``trace``, or a log that :func:`dlio_torch.analysis.run_recording.open_recording`
            reads.

    Raises:
        DataError: nothing can be read there, or the recording is of no training; the message says what is missing.
    """
    recording = open_recording(path)
    refuse_incomplete(recording)
    refuse_damaged(recording)
    kept = data_only(recording)
    torch = read_torch_calls(RunDir(kept.path).events if kept.kind == "trace" else kept.path)
    kept, torch = join_repeated_loaders(kept, torch, with_samples(kept))
    loaders = list(_loaders(kept, torch))
    training = _training(loaders)
    calls = with_samples(kept)
    refuse_without_reads(kept, calls)
    refuse_without_training(kept, torch, calls)
    world_size = kept.world_size or max((process.world_size or 1 for process in torch.processes), default=1)
    evaluation = _evaluation(loaders, training)
    return RecordedTraining(kept, torch, calls, training, evaluation, world_size)


def files_of_samples(training: RecordedTraining) -> list[str]:
    """Paths of the files that are read or mapped for samples; else, of those that are read at all."""
    calls = training.calls
    codes = class_codes(calls)
    touched = calls[np.isin(codes, [CLASSES.index(READ), CLASSES.index(MAP)]) & calls["file"].notna().to_numpy()]
    of_samples = touched[touched["dataset"] >= 0]
    chosen = of_samples if len(of_samples) else touched
    return sorted(str(name) for name in chosen["file"].unique())


def with_samples(recording: Recording) -> pd.DataFrame:
    """The I/O calls of a recording with the columns ``sample``, ``dataset``, ``batch`` and ``reading``."""
    calls, spans = recording.io.reset_index(drop=True), recording.spans
    samples = spans[spans["op"] == "sample"]
    owner = _owners(calls, samples)
    columns = {
        "sample": samples["offset"].to_numpy(),
        "dataset": np.array([_number(name) for name in samples["file"]], dtype=np.int64),
        "batch": samples["step"].to_numpy(),
        "reading": np.arange(len(samples), dtype=np.int64),
    }
    known = owner >= 0
    for name, values in columns.items():
        column = np.full(len(calls), -1, np.int64)
        column[known] = values[owner[known]]
        calls[name] = column
    return calls


def _owners(calls: pd.DataFrame, spans: pd.DataFrame) -> Ints:
    """For each call the row of the span within which it began, -1 without one: of its thread, or else its process."""
    owner = np.full(len(calls), -1, np.int64)
    for key in (["rank", "pid", "tid"], ["rank", "pid"]):
        groups = _rows_by(spans, key)
        for name, rows in _rows_by(calls, key).items():
            open_rows = rows[owner[rows] < 0]
            if name not in groups or not len(open_rows):
                continue
            within = groups[name]
            starts, ends = (spans[column].to_numpy()[within] for column in ("start_ns", "end_ns"))
            order = np.argsort(starts, kind="stable")
            begins = calls["start_ns"].to_numpy()[open_rows]
            place = np.searchsorted(starts[order], begins, side="right") - 1
            inside = (place >= 0) & (begins < ends[order][place])
            owner[open_rows[inside]] = within[order][place[inside]]
    return owner


def _rows_by(frame: pd.DataFrame, key: list[str]) -> dict[object, Ints]:
    """Positions of the rows of each group."""
    return {name: np.asarray(rows, np.int64) for name, rows in frame.groupby(key, sort=False).indices.items()}


def _loaders(recording: Recording, torch: TorchCalls) -> Iterator[RecordedLoader]:
    """The loaders of the first rank that were iterated, in the order of their first iteration."""
    spans = recording.spans
    fetches = spans[(spans["op"] == "fetch") & (spans["rank"] == spans["rank"].min())]
    datasets = {(dataset.rank, dataset.id): dataset for dataset in reversed(torch.datasets)}
    for loader in torch.loaders:
        mine = fetches[(fetches["pid"] == loader.pid) & (fetches["file"] == f"loader {loader.id}")]
        epochs = [epoch for epoch in torch.epochs if (epoch.pid, epoch.loader) == (loader.pid, loader.id)]
        if mine.empty:
            continue
        indices = torch.batches[torch.batches["loader"] == loader.id].drop(columns=["pid", "loader"])
        dataset = datasets.get((loader.rank, loader.dataset))
        yield RecordedLoader(loader, dataset, tuple(epochs), mine, indices)


def _training(loaders: list[RecordedLoader]) -> RecordedLoader | None:
    """The loader with the most batches; of several with as many the first."""
    return max(loaders, key=lambda loader: loader.batches, default=None)


def _evaluation(loaders: list[RecordedLoader], training: RecordedLoader | None) -> RecordedLoader | None:
    """The other loader with the most batches."""
    return _training([loader for loader in loaders if loader is not training])


def _number(name: object) -> int:
    """Number at the end of ``dataset 3``; -1 without one."""
    word = str(name).rpartition(" ")[2]
    return int(word) if word.isdigit() else -1
