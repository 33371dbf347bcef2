"""Measures how rank 0 processes the results of all ranks: memory and time of gathering, summing and writing.

python -m benchmarks.starting.results RANKS STEPS FOLDER
"""

from __future__ import annotations

import json
import pickle
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.starting.rank import status
from dlio_torch.analysis.collect import RankResult, collect
from dlio_torch.config.compose import compose
from dlio_torch.iotrace.recorder.io_counters import IoCounters
from dlio_torch.train.result import EpochFigures, TrainResult
from dlio_torch.train.steps import STEP_DTYPE, TRAIN, write_steps


def result(steps: int) -> RankResult:
    """Result of a rank that took a number of steps of 10 ms in one epoch."""
    made = np.zeros(steps, STEP_DTYPE)
    made["epoch"], made["step"], made["phase"], made["samples"] = 1, np.arange(1, steps + 1), TRAIN, 4
    made["start_ns"] = np.arange(steps) * 10_000_000
    made["fetch_ns"], made["compute_ns"], made["requested_ns"] = 1_000_000, 8_000_000, 8_000_000
    io = IoCounters(**dict.fromkeys(IoCounters.__dataclass_fields__, 1))
    return RankResult(TrainResult(made, [EpochFigures(1, steps * 0.01, io)]), None, None, None, {})


def main(ranks: int, steps: int, folder: Path) -> dict[str, float]:
    """Prints seconds and bytes."""
    config = compose(["recipe=minimal", "scale=paper"], environ={}).config
    blob = pickle.dumps(result(steps))
    before, began = status("VmRSS"), time.perf_counter()
    everyone = [pickle.loads(blob) for _ in range(ranks)]
    gathered, at = status("VmRSS") - before, time.perf_counter()
    summary = collect(config, everyone, reads_files=True, device=True, size=None, prepared=(), about={})
    collected = time.perf_counter()
    write_steps(folder / "steps.csv", {rank: one.train.steps for rank, one in enumerate(everyone)})
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    return {
        "sent_bytes": len(blob),
        "gathered_bytes": gathered,
        "peak_bytes": status("VmHWM") - before,
        "gather_s": at - began,
        "collect_s": collected - at,
        "write_s": time.perf_counter() - collected,
    }


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))))
