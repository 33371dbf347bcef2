"""Loaders that a program makes again for each epoch, ``for batch in DataLoader(...)``: one loader with several epochs.

Two loaders of a process are the same one if they have the same options, the second is first iterated after the last
iteration over the first one, and their data sets are the same: one object, or objects of one class and length whose
samples are read from common files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pandas as pd

from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.iotrace.events.torch_calls import TorchCalls, TorchDataset, TorchLoader

Files = Mapping[int, frozenset[str]]
"""Number of a data set -> paths of the files that are read for its samples."""


@dataclass
class _Joined:
    """Numbers of the loaders and data sets of one process that stand for others, and the epochs before theirs."""

    loaders: dict[int, int] = field(default_factory=dict)
    datasets: dict[int, int] = field(default_factory=dict)
    epochs_before: dict[int, int] = field(default_factory=dict)


def join_repeated_loaders(recording: Recording, torch: TorchCalls, calls: pd.DataFrame) -> tuple[Recording, TorchCalls]:
    """Returns recording and requests in which a loader that was made again has the number of the first one.

    Nothing changes if the ranks made different loaders.

    Args:
        recording: of the program.
        torch: what torch was asked for.
        calls: I/O calls of the recording with the column ``dataset``.
    """
    files = _files(calls)
    pids = dict.fromkeys(loader.pid for loader in torch.loaders)
    by_process = [_joined_of(pid, torch, files) for pid in pids]
    if not by_process or not by_process[0].loaders or any(joined != by_process[0] for joined in by_process):
        return recording, torch
    return _renumbered_recording(recording, by_process[0]), _renumbered_calls(torch, by_process[0])


def _files(calls: pd.DataFrame) -> Files:
    known = calls[(calls["dataset"] >= 0) & calls["file"].notna()]
    grouped = known.groupby("dataset")["file"].unique()
    return {int(str(number)): frozenset(map(str, names)) for number, names in grouped.items()}


def _joined_of(pid: int, torch: TorchCalls, files: Files) -> _Joined:
    joined = _Joined()
    datasets = {dataset.id: dataset for dataset in torch.datasets if dataset.pid == pid}
    firsts: list[TorchLoader] = []
    ends: dict[int, int] = {}  # first loader -> end of the last iteration over it or its like
    counts: dict[int, int] = {}
    for loader in sorted((loader for loader in torch.loaders if loader.pid == pid), key=lambda loader: loader.id):
        epochs = [epoch for epoch in torch.epochs if (epoch.pid, epoch.loader) == (pid, loader.id)]
        if not epochs or any(epoch.end_ns is None for epoch in epochs):
            continue
        begin, end = min(epoch.start_ns for epoch in epochs), max(epoch.end_ns or 0 for epoch in epochs)
        ended = (earlier for earlier in firsts if ends[earlier.id] <= begin)
        first = next((earlier for earlier in ended if _is_same(earlier, loader, datasets, files)), None)
        if first is None:
            firsts.append(loader)
            first = loader
        else:
            joined.loaders[loader.id] = first.id
            joined.epochs_before[loader.id] = counts[first.id]
            if loader.dataset != first.dataset:
                joined.datasets[loader.dataset] = first.dataset
        ends[first.id] = end
        counts[first.id] = counts.get(first.id, 0) + len(epochs)
    return joined


def _is_same(first: TorchLoader, later: TorchLoader, datasets: Mapping[int, TorchDataset], files: Files) -> bool:
    if _options(first) != _options(replace(later, id=first.id, dataset=first.dataset)):
        return False
    if first.dataset == later.dataset:
        return True
    old, new = datasets.get(first.dataset), datasets.get(later.dataset)
    if old is None or new is None or replace(new, id=old.id) != old:
        return False
    return not files.get(old.id, frozenset()).isdisjoint(files.get(new.id, frozenset()))


def _options(loader: TorchLoader) -> TorchLoader:
    """The loader without the epoch of its sampler, which ``set_epoch`` changes."""
    return replace(loader, sampler={key: value for key, value in loader.sampler.items() if key != "epoch"})


def _renumbered_recording(recording: Recording, joined: _Joined) -> Recording:
    frame = recording.events.frame
    names = {
        **{f"loader {later}": f"loader {first}" for later, first in joined.loaders.items()},
        **{f"dataset {later}": f"dataset {first}" for later, first in joined.datasets.items()},
    }
    is_span = frame["layer"] == "app"
    text = frame["file"].astype(object)
    before = {f"loader {later}": count for later, count in joined.epochs_before.items()}
    changed = frame.assign(
        file=text.where(~is_span, text.map(lambda name: names.get(name, name))).astype("category"),
        offset=frame["offset"] + text.map(before).where(is_span & (frame["op"] == "fetch")).fillna(0).astype("int64"),
    )
    return replace(recording, events=replace(recording.events, frame=changed))


def _renumbered_calls(torch: TorchCalls, joined: _Joined) -> TorchCalls:
    loaders, before = joined.loaders, joined.epochs_before
    batches = torch.batches.assign(
        epoch=torch.batches["epoch"] + torch.batches["loader"].map(before).fillna(0).astype("int64"),
        loader=torch.batches["loader"].replace(loaders),
    )
    return replace(
        torch,
        processes=tuple(
            process if process.loader is None else replace(process, loader=loaders.get(process.loader, process.loader))
            for process in torch.processes
        ),
        datasets=tuple(dataset for dataset in torch.datasets if dataset.id not in joined.datasets),
        loaders=tuple(
            # Each of the joined loaders started workers of its own.
            replace(loader, persistent_workers=False) if loader.id in loaders.values() else loader
            for loader in torch.loaders
            if loader.id not in loaders
        ),
        epochs=tuple(
            replace(
                epoch,
                loader=loaders.get(epoch.loader, epoch.loader),
                epoch=epoch.epoch + before.get(epoch.loader, 0),
            )
            for epoch in torch.epochs
        ),
        batches=batches,
        arrays=tuple(replace(entry, loader=loaders.get(entry.loader, entry.loader)) for entry in torch.arrays),
    )
