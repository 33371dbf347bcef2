"""Reads what a recorded program asked torch for: its loaders, data sets, epochs, indices, batches and saved states.

Each process that asked torch for something owns one file ``rank<r>-<pid>[-n].torch`` in the events folder, of JSON
lines (:mod:`dlio_torch.iotrace.recorder.torch_hook` writes it).  Numbers of loaders and data sets count per process,
from 0.  A loader worker uses the numbers of the process that made its loader (:attr:`TorchProcess.parent_pid`).  Times
are ``time.perf_counter_ns()`` of the recording machine, the clock of its spans.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from dlio_torch.iotrace.events.call_names import printable
from dlio_torch.iotrace.events.state_item import StateItem, state_item
from dlio_torch.iotrace.events.torch_call_lines import TorchLine, take_lines

BATCH_COLUMNS = ("rank", "pid", "loader", "epoch", "batch", "position", "index")
"""Columns of :attr:`TorchCalls.batches`: one row for each key that a sampler gave."""


@dataclass(frozen=True)
class ProcessFact:
    """A fact of one process.

    Attributes:
        rank: rank of the process.
        pid: its process id; numbers of loaders and data sets count in it.
    """

    rank: int
    pid: int


@dataclass(frozen=True)
class TorchProcess(ProcessFact):
    """A process that imported torch; of child processes, one that used a loader or saved something.

    Attributes:
        parent_pid: the process that made its loader, for a loader worker; else the process that started it.
        role: ``trainer``, ``loader worker <n>`` or the name of another child process.
        python: version of Python.
        torch: version of torch.
        torchdata: version of torchdata; None if it was not imported.
        world_size: number of ranks; None if nothing tells it.
        launcher: program that started the ranks; None if nothing tells it.
        loader: loader that a worker works for, by its number in the parent process; None for other processes.
        worker: number of the worker; None for other processes.
    """

    parent_pid: int
    role: str
    python: str
    torch: str | None
    torchdata: str | None
    world_size: int | None
    launcher: str | None
    loader: int | None
    worker: int | None


@dataclass(frozen=True)
class TorchDataset(ProcessFact):
    """A data set that a loader reads.

    Attributes:
        id: number of the data set.
        class_name: module and class.
        style: ``map``, ``iterable``, ``datapipe`` or ``nodes``.
        length: number of samples; None if the data set does not tell it.
    """

    id: int
    class_name: str
    style: Literal["map", "iterable", "datapipe", "nodes"]
    length: int | None


@dataclass(frozen=True)
class TorchLoader(ProcessFact):
    """A loader and its options, as they are when it is first iterated.

    Attributes:
        id: number of the loader.
        class_name: module and class.
        dataset: number of its data set.
        batch_size: samples of a batch; None if a batch sampler of the program decides it, or without batches.
        drop_last: whether a last smaller batch is left out.
        sampler: ``class`` of the sampler, and those of its attributes that are numbers, truth values or None.
        batch_sampler: class of the batch sampler; None without batches.
        num_workers: worker processes (or threads, of nodes).
        prefetch_factor: batches ahead for each worker; None without workers.
        pin_memory: whether batches are copied to pinned memory.
        start_method: of the workers: ``fork``, ``spawn``, ``forkserver``, ``thread``; None without workers.
        persistent_workers: whether workers live for more than one epoch.
        in_order: whether batches come in the order of the sampler.
        timeout_s: seconds to wait for a batch; 0 without limit.
        collate: function that makes a batch of samples.
    """

    id: int
    class_name: str
    dataset: int
    batch_size: int | None
    drop_last: bool
    sampler: Mapping[str, Any]
    batch_sampler: str | None
    num_workers: int
    prefetch_factor: int | None
    pin_memory: bool
    start_method: str | None
    persistent_workers: bool
    in_order: bool
    timeout_s: float
    collate: str | None


@dataclass(frozen=True)
class LoaderEpoch(ProcessFact):
    """One iteration over a loader.

    Attributes:
        loader: number of the loader.
        epoch: number of the iteration over this loader, from 0.
        start_ns: begin of the call that makes the iterator.
        end_ns: end; None if it is not known, as the program ended or forgot the iterator.
        batches: batches that the program took; None if not known.
        exhausted: whether the loader had no more batches; None if not known.
    """

    loader: int
    epoch: int
    start_ns: int
    end_ns: int | None = None
    batches: int | None = None
    exhausted: bool | None = None


@dataclass(frozen=True)
class BatchArray:
    """An array of a batch: its place in the batch (``0``, ``image``, ``1.mask``), shape and element type."""

    path: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class BatchArrays(ProcessFact):
    """The arrays of a batch; they hold for the later batches of this loader until the next entry.

    Attributes:
        loader: number of the loader.
        batch: number of the batch in its epoch, from 0.
        arrays: its arrays.
    """

    loader: int
    batch: int
    arrays: tuple[BatchArray, ...]


@dataclass(frozen=True)
class SavedState(ProcessFact):
    """A call that saves or loads a state.

    Attributes:
        kind: ``save`` or ``load``.
        call: ``torch.save``, ``torch.load``, ``dcp.save``, ``dcp.async_save`` or ``dcp.load``.
        path: file or folder; None if the call names none.
        start_ns: begin of the call.
        end_ns: end of the call.
        tensors: number of tensors.
        bytes: bytes of their storages, each counted once.
        state: its tensors and other values, in its order; empty if they are not known.
    """

    kind: Literal["save", "load"]
    call: str
    path: str | None
    start_ns: int
    end_ns: int
    tensors: int
    bytes: int
    state: tuple[StateItem, ...] = ()


@dataclass(frozen=True)
class TorchCalls:
    """Requests of all processes of a recorded program to torch.

    Attributes:
        processes: processes, by rank and pid.
        datasets: data sets, in the order of their numbers.
        loaders: loaders, likewise.
        epochs: iterations over loaders, in the order in which they began.
        batches: what samplers gave; columns :data:`BATCH_COLUMNS`.  ``batch`` counts what the sampler gave in an epoch,
            ``position`` the keys of a batch.  ``index`` holds integers; if a program has other keys, also their texts.
        arrays: shapes and types of batches.
        saves: saved and loaded states, in the order in which they began.
        notes: what a reader must know, one sentence each.
    """

    processes: tuple[TorchProcess, ...]
    datasets: tuple[TorchDataset, ...]
    loaders: tuple[TorchLoader, ...]
    epochs: tuple[LoaderEpoch, ...]
    batches: pd.DataFrame
    arrays: tuple[BatchArrays, ...]
    saves: tuple[SavedState, ...]
    notes: tuple[str, ...]


def read_torch_calls(directory: Path | str) -> TorchCalls:
    """Reads all ``.torch`` files of an events folder, also those of processes that still run.

    Damaged lines are left out, with a note.

    Args:
        directory: the events folder; without such files the result is empty.
    """
    content = _Content()
    for path in sorted(Path(directory).glob("rank*.torch")):
        take_lines(path, content.take, content.notes)
    return TorchCalls(
        processes=tuple(process for _, process in sorted(content.processes.items())),
        datasets=tuple(content.datasets),
        loaders=tuple(content.loaders),
        epochs=tuple(sorted(content.epochs.values(), key=lambda epoch: epoch.start_ns)),
        batches=_frame(content.batches),
        arrays=tuple(content.arrays),
        saves=tuple(sorted(content.saves, key=lambda state: state.start_ns)),
        notes=tuple(dict.fromkeys(content.notes)),
    )


class _Content:
    """Content of the files read so far."""

    def __init__(self) -> None:
        self.processes: dict[tuple[int, int], TorchProcess] = {}
        self.datasets: list[TorchDataset] = []
        self.loaders: list[TorchLoader] = []
        self.epochs: dict[tuple[int, int, int, int], LoaderEpoch] = {}
        self.batches: list[tuple[Any, ...]] = []
        self.arrays: list[BatchArrays] = []
        self.saves: list[SavedState] = []
        self.notes: list[str] = []

    def take(self, line: TorchLine) -> None:
        """Adds a line; raises KeyError, TypeError or ValueError for a damaged one."""
        if line.kind in ("save", "load"):
            items = tuple(state_item(*entry) for entry in line.values.pop("state", ()))
            self.saves.append(SavedState(kind=line.kind, **line.values, state=items))  # type: ignore[arg-type]
        else:
            _READERS[line.kind](self, line.values)

    def take_process(self, values: dict[str, Any]) -> None:
        # A later line knows more than the one at the start.
        self.processes[values["rank"], values["pid"]] = TorchProcess(**values)

    def take_epoch(self, values: dict[str, Any]) -> None:
        self.epochs[_key(values)] = LoaderEpoch(**values)

    def take_epoch_end(self, values: dict[str, Any]) -> None:
        end = {name: values[name] for name in ("end_ns", "batches", "exhausted")}
        self.epochs[_key(values)] = replace(self.epochs[_key(values)], **end)

    def take_indices(self, values: dict[str, Any]) -> None:
        place = (*_key(values), values["batch"])
        first = values.get("position", 0)
        self.batches += [(*place, position, index) for position, index in enumerate(values["indices"], first)]

    def take_arrays(self, values: dict[str, Any]) -> None:
        arrays = tuple(
            BatchArray(printable(str(array["path"])), tuple(map(int, array["shape"])), str(array["dtype"]))
            for array in values.pop("arrays")
        )
        self.arrays.append(BatchArrays(**values, arrays=arrays))


def _key(values: Mapping[str, Any]) -> tuple[int, int, int, int]:
    return values["rank"], values["pid"], values["loader"], values["epoch"]


_READERS: dict[str, Callable[[_Content, dict[str, Any]], None]] = {
    "process": _Content.take_process,
    "dataset": lambda content, values: content.datasets.append(TorchDataset(**values)),
    "loader": lambda content, values: content.loaders.append(TorchLoader(**values)),
    "epoch": _Content.take_epoch,
    "epoch_end": _Content.take_epoch_end,
    "indices": _Content.take_indices,
    "arrays": _Content.take_arrays,
    "note": lambda content, values: content.notes.append(printable(str(values["text"]))),
}


def _frame(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=list(BATCH_COLUMNS))
    whole = [name for name in BATCH_COLUMNS if name != "index" or not rows or frame["index"].dtype.kind == "i"]
    return frame.astype(dict.fromkeys(whole, "int64"))
