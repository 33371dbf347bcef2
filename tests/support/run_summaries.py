"""Summaries of runs with equal steps, and what a run prints at its end."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

from dlio_torch.analysis.step_metrics import summarise
from dlio_torch.config.schema import CheckpointConfig, Config, TrainConfig
from dlio_torch.report.run_tables import print_report
from dlio_torch.train.steps import STEP_DTYPE, TRAIN, Steps

MS = 1_000_000
CONFIG = Config(
    recipe="cosmic_tagger",
    train=TrainConfig(allreduce_bytes=1000),
    checkpoint=CheckpointConfig(layout="files", every_steps=5),
)
COLD: dict[str, Any] = {"io": [{"rchar": 1000, "read_bytes": 1000, "from_device": 1000}]}
WARM: dict[str, Any] = {"io": [{"rchar": 1000, "read_bytes": 10, "from_device": 10, "cached_share": 0.98}]}


def run(
    *,
    fetch: float = 0,
    compute: float = 10,
    late: float = 0,
    allreduce: float = 0,
    checkpoint: float = 0,
    other: float = 0,
    restart: float = 0,
    phase: int = TRAIN,
) -> Steps:
    """Two epochs of ten equal steps; times in ms, ``restart`` between the epochs."""
    rows, now = [], 0.0
    for epoch in (1, 2):
        for step in range(1, 11):
            spent = (fetch, 0, compute + late, compute, allreduce, checkpoint)
            times = (round(time * MS) for time in (now, *spent))
            rows.append((epoch, step, phase, *times, 4, 1 << 20))
            now += fetch + compute + late + allreduce + checkpoint + other
        now += restart
    return np.array(rows, dtype=STEP_DTYPE)


def summary_of(
    extra: dict[str, Any] | None = None, config: Config = CONFIG, ranks: int = 1, **times: float
) -> dict[str, Any]:
    return summarise([run(**times)] * ranks, config=config, extra=extra)


def printed(summary: dict[str, Any], monkeypatch: pytest.MonkeyPatch, columns: int = 100, **options: Any) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = io.StringIO()
    print_report(summary, stream=stream, **options)
    return stream.getvalue()
