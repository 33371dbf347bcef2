"""Runs of the emulator whose data lie on a simulated storage (:mod:`dlio_torch.data.engines.delayed_reads`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlio_torch.analysis.run_recording import open_recording
from dlio_torch.data.engines.delayed_reads import DelayedReads, StorageDelay, delayed_environment, delayed_reads

FILES = 640
EDGE = 256  # of a sample of bytes, 64 KiB
WARMUP = 10
SUFFIXES = (".npz", ".h5")

COMMON = (
    "recipe=minimal", "scale=paper", "checkpoint=none", "output.progress=false", "train.epochs=1", "cache=as_is",
    "train.batch_size=1", f"train.warmup_steps={WARMUP}", "trace.posix=true", "storage.limits=off",
    f"dataset.num_files={FILES}", "dataset.samples_per_file=1", "train.allreduce_bytes=0",
    f"dataset.fields=[{{name: data, dtype: uint8, shape: [{EDGE}, {EDGE}]}}]",
)  # fmt: skip


@dataclass(frozen=True)
class Result:
    """What a run says, and what the storage has answered.

    Attributes:
        summary: content of ``summary.json``.
        sizes: bytes of the recorded reads of one sample, in their order.
        answered: reads that the storage has answered in the whole run.
    """

    summary: dict[str, Any]
    sizes: list[int]
    answered: DelayedReads


def generate(data: str, folder: Path) -> None:
    """Generates the data set of a format below ``folder``."""
    _command(["-m", "dlio_torch", "generate", *_arguments(data, folder)], {})


def emulate(
    data: str, folder: Path, output: Path, storage: StorageDelay, ranks: int, arguments: Sequence[str]
) -> Result:
    """Runs a number of ranks on data that lie on a new simulated storage.

    Args:
        data: format of the data, a choice of ``conf/dataset``.
        folder: that holds the generated data.
        output: of the run; is created.
        storage: time that a read takes.
        ranks: number of ranks.
        arguments: further options.
    """
    output.mkdir()
    files = sorted(path for path in (folder / data).rglob("*") if path.suffix in SUFFIXES)
    environment = delayed_environment(storage, files, output)
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    run = output / "run"
    _command([*launcher, "-m", "dlio_torch", *_arguments(data, folder), f"output.dir={run}", *arguments], environment)
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    return Result(summary, _sizes(run, files), delayed_reads(output))


def _arguments(data: str, folder: Path) -> list[str]:
    return [*COMMON, f"dataset={data}", f"dataset.root={folder / data}"]


def _sizes(run: Path, files: Sequence[Path]) -> list[int]:
    """Bytes of the reads of one file that was read once, in their order."""
    calls = open_recording(run).io
    reads = calls[calls["op"].isin(["read", "pread"]) & (calls["bytes"] > 0) & calls["file"].isin(map(str, files))]
    name = reads["file"].value_counts().index[0]
    return [int(size) for size in reads.loc[reads["file"] == name, "bytes"]]


def _command(arguments: Sequence[str], environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)}: {done.stderr[-2000:]}")
