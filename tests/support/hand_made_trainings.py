"""Recorded trainings for tests of ``fit``, made of spans and calls at given times, without a process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
from span_events import Span, recorded

from dlio_torch.fit.data_set import DataFit
from dlio_torch.fit.finding import Finding, findings
from dlio_torch.fit.recorded_training import RecordedLoader, RecordedTraining, with_samples
from dlio_torch.iotrace.events.torch_calls import (
    BATCH_COLUMNS,
    LoaderEpoch,
    SavedState,
    TorchCalls,
    TorchDataset,
    TorchLoader,
)

MS = 1_000_000
PID = 1
NO_INDICES = pd.DataFrame(columns=list(BATCH_COLUMNS))
"""Of a sampler whose indices do not matter."""
NO_FILES = DataFit(findings([Finding("dataset.samples_per_file", 1, "")]), "npz", (), 1, None)
"""A data set without files."""


class TrainingTimes:
    """A training of one process: a fetch takes 1 ms and a step 9 ms.

    Attributes:
        now: time of the next event, ns.
        spans: spans and calls so far.
    """

    def __init__(self) -> None:
        self.now = 0
        self.spans: list[Span] = []
        self._epochs: dict[int, list[LoaderEpoch]] = {0: [], 1: []}
        self._saves: list[SavedState] = []

    def epoch(self, batches: int, loader: int = 0, *, exhausted: bool = True, step_ms: float = 9) -> None:
        """An iteration over a loader; a step follows each fetch."""
        number, start = len(self._epochs[loader]), self.now
        for batch in range(batches):
            self.step(batch, number, loader, step_ms)
        self.now += 1
        self._epochs[loader].append(LoaderEpoch(0, PID, loader, number, start, self.now, batches, exhausted))

    def step(self, batch: int, epoch: int = 0, loader: int = 0, step_ms: float = 9) -> None:
        """A fetch, and the compute after it."""
        name = f"loader {loader}"
        self.add("fetch", MS, file=name, step=batch, offset=epoch)
        self.add("compute", round(step_ms * MS), file=name, step=batch)

    def end_epoch(self, batches: int, *, exhausted: bool) -> None:
        """The end of an epoch of training that was made by steps."""
        epochs = self._epochs[0]
        epochs.append(LoaderEpoch(0, PID, 0, len(epochs), 0, self.now, batches, exhausted))

    def save(self, path: str, call: str = "torch.save", *, sizes: Sequence[int] = (100_000,), **values: Any) -> None:
        """A save of 2 ms that writes a file with write calls of these sizes."""
        start = self.now
        self.write(path if call == "torch.save" else f"{path}/__0_0.distcp", sizes)
        self.now = start + 2 * MS
        given = {"state": (), "tensors": 2, "bytes": sum(sizes), **values}
        self._saves.append(SavedState(0, PID, "save", call, path, start, self.now, **given))

    def load(self, path: str, **values: Any) -> None:
        """A load of 1 ms by ``torch.load``."""
        start, self.now = self.now, self.now + MS
        self._saves.append(SavedState(0, PID, "load", "torch.load", path, start, self.now, 2, 100_000, **values))

    def write(self, path: str, sizes: Sequence[int]) -> None:
        """Write calls on a file."""
        for size in sizes:
            self.call("write", path, size)

    def call(self, op: str, path: str, size: int = -1) -> None:
        """A call of 1 us on a file."""
        self.add(op, 1000, file=path, bytes=size, layer="posix")

    def add(self, op: str, length_ns: int, **values: Any) -> None:
        """A span or call that begins now."""
        self.spans.append(Span(op, self.now, self.now + length_ns, pid=PID, **values))
        self.now += length_ns

    def training(self, *, evaluation: bool = False, length: int = 16) -> RecordedTraining:
        """The recording; with two loaders the second one evaluates."""
        recording = recorded(self.spans)
        torch = TorchCalls((), (), (), (), NO_INDICES, (), tuple(self._saves), ())
        loaders = [self._loader(recording.spans, number, length) for number in ((0, 1) if evaluation else (0,))]
        evaluating = loaders[1] if evaluation else None
        return RecordedTraining(recording, torch, with_samples(recording), loaders[0], evaluating, 1)

    def _loader(self, spans: Any, number: int, length: int) -> RecordedLoader:
        fetches = spans[(spans["op"] == "fetch") & (spans["file"] == f"loader {number}")]
        dataset = TorchDataset(0, PID, number, "program.Samples", "map", length)
        return RecordedLoader(loader(number), dataset, tuple(self._epochs[number]), fetches, NO_INDICES)


def loader(number: int = 0, **changes: Any) -> TorchLoader:
    """A loader of batches of 4 without workers."""
    plain = TorchLoader(
        0, PID, number, "torch.utils.data.dataloader.DataLoader", number, 4, False, {}, None, 0, None, False, None,
        False, True, 0, None,
    )  # fmt: skip
    return replace(plain, **changes)
