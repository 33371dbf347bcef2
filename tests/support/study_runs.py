"""Runs of a study: their figures made up, or run in this process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from dlio_torch import cli
from dlio_torch.supervision.run_process import Ended


def summary(
    step_s: float,
    *,
    rchar: int = 10_000_000,
    reached: bool | None = None,
    steps: int = 100,
    compute_s: float = 0.01,
    device_share: float | None = 0.25,
) -> dict[str, Any]:
    """A ``summary.json`` of a run with 4 samples of 1,000 bytes a step, all but the compute of it waiting."""
    compute = compute_s / step_s
    return {
        "train": {
            "elapsed_s": steps * step_s,
            "steps": steps,
            "samples_per_s": 4 / step_s,
            "bytes": steps * 4000,
            "samples": steps * 4,
            "why": None,
        },
        "au": {"mean": compute},
        "step": {"fetch_s": {"mean": step_s - compute_s}},
        "shares": {"fetch": 1 - compute, "compute": compute, "allreduce": None},
        "io": {"device_read_share": device_share},
        "cache": {"prepared": [{"epoch": 1, "reached": reached, "cached_share": 0.5, "why": "memory is full"}]},
        "epochs": [[{"epoch": 1, "seconds": 1.0, "io": {"rchar": rchar}}]],
    }


def run_here(command: Sequence[str], log: Path, *, timeout_s: float, cwd: Path | None = None) -> Ended:
    """Takes the place of ``run_process``: the same run, but in this process, where everything is imported already."""
    assert timeout_s > 0
    here = Path.cwd()
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.chdir(cwd or here)
        with log.open("w") as file, redirect_stdout(file), redirect_stderr(file):
            code = cli.main(list(command[3:]))  # without python -m dlio_torch
    finally:
        os.chdir(here)
    return Ended(code, "", 1.0, 1.0, 1)
