"""Recorded trainings and fitted recipes for tests, from lists of calls."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from io_events import Call, recording, table

from dlio_torch.fit.data_set import DataFit
from dlio_torch.fit.finding import Finding, Findings, findings
from dlio_torch.fit.fit_recording import FittedTraining
from dlio_torch.fit.recorded_training import RecordedTraining, with_samples
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.iotrace.events.torch_calls import TorchCalls, read_torch_calls


def passes(files: Iterable[str], count: int = 2, size: int = 4096, reads: int = 40) -> list[Call]:
    """Each pass opens each file, reads it in pieces of ``size`` and closes it."""
    ops = [("open", -1, -1), *(("read", size * place, size) for place in range(reads)), ("close", -1, -1)]
    rows = [(file, *op) for _ in range(count) for file in files for op in ops]
    return [
        Call(op, offset, moved, 10 * place, 10 * place + 5, file)
        for place, (file, op, offset, moved) in enumerate(rows)
    ]


def recorded(calls: Iterable[Call], **facts: Any) -> Recording:
    """A recording of the verb ``trace``."""
    return recording(table(calls), kind="trace", facts={"exit_code": 0, **facts}, runtime_s=2.0)


def training_of(source: Recording, torch: TorchCalls | None = None) -> RecordedTraining:
    """A recorded training without loaders."""
    calls = torch or read_torch_calls(Path("/nowhere"))
    return RecordedTraining(source, calls, with_samples(source), None, None, 1)


def fitted(values: Iterable[Finding], files: Iterable[str] = (), gaps: Iterable[str] = (), ranks: int = 1) -> Any:
    """Values of a recipe that reproduces the calls on ``files``."""
    result = findings(values, gaps, files)
    return FittedTraining(result, DataFit(Findings(), "npz", tuple(files), 1, None), ranks)
