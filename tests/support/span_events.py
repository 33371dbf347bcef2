"""Event tables for tests of the training analysis, from lists of spans and calls; and runs that make real ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import numpy as np
import pandas as pd
from overrides import overridden

from dlio_torch import cli
from dlio_torch.analysis.run_recording import open_recording
from dlio_torch.iotrace.events.event_table import COLUMNS, EventTable
from dlio_torch.iotrace.events.recording import Recording

RUN = (
    "recipe=minimal", "scale=paper", "checkpoint=none", "output.progress=false", "train.epochs=1",
    "dataset.samples_per_file=8", "train.warmup_steps=0", "compute.step_s=1ms",
)  # fmt: skip


@dataclass(frozen=True)
class Span:
    op: str
    start: int
    end: int
    rank: int = 0
    pid: int = 1
    tid: int = 1
    offset: int = -1
    bytes: int = -1
    step: int = -1
    file: str | None = None
    layer: str = "app"


def recorded(spans: Iterable[Span]) -> Recording:
    names = [{"start": "start_ns", "end": "end_ns"}.get(field.name, field.name) for field in fields(Span)]
    frame = pd.DataFrame([astuple(span) for span in spans], columns=names, dtype=object)
    for name in ("op", "file", "layer"):
        frame[name] = pd.Categorical(frame[name])
    for name in ("rank", "pid", "tid", "step"):
        frame[name] = frame[name].astype(np.int32)
    for name in ("offset", "bytes", "start_ns", "end_ns"):
        frame[name] = frame[name].astype(np.int64)
    frame = frame[list(COLUMNS)].sort_values("start_ns", kind="stable", ignore_index=True)
    return Recording(Path("x"), "run", EventTable(frame, (), ()), sees=frozenset())


def run(folder: Path, *arguments: str, name: str = "run") -> Recording:
    """A run of this process; its data lie in ``folder/data``."""
    directory = folder / name
    settings = overridden(*RUN, *arguments, f"dataset.root={folder / 'data'}", f"output.dir={directory}")
    assert cli.main(settings) == 0
    return open_recording(directory)
