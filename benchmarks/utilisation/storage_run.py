"""Runs of the emulator whose data lie on a known storage: a simulated one, or a device with a limit.

The simulated storage is :mod:`dlio_torch.data.engines.delayed_reads`.
"""

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
WARMUP = 10
SUFFIXES = (".npz", ".h5")

COMMON = (
    "recipe=minimal", "scale=paper", "checkpoint=none", "output.progress=false", "train.epochs=1",
    "train.batch_size=1", f"train.warmup_steps={WARMUP}", "trace.posix=true", "storage.limits=off",
    "dataset.samples_per_file=1", "train.allreduce_bytes=0",
)  # fmt: skip


@dataclass(frozen=True)
class DataSet:
    """Samples of bytes, one a file.

    Attributes:
        files: number of files.
        edge: rows, and bytes of a row, of a sample.
        cache: page cache before the run, a choice of ``conf/cache``.
    """

    files: int = FILES
    edge: int = 256
    cache: str = "as_is"

    @property
    def options(self) -> tuple[str, ...]:
        """Options of all runs with these data."""
        field = f"{{name: data, dtype: uint8, shape: [{self.edge}, {self.edge}]}}"
        return *COMMON, f"cache={self.cache}", f"dataset.num_files={self.files}", f"dataset.fields=[{field}]"


SIMULATED = DataSet()


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


def generate(data: str, folder: Path, samples: DataSet = SIMULATED) -> None:
    """Generates the data set of a format below ``folder``."""
    _command(["-m", "dlio_torch", "generate", *_arguments(data, folder, samples)], {})


def data_files(data: str, folder: Path) -> list[Path]:
    """Generated files of a format below ``folder``."""
    return sorted(path for path in (folder / data).rglob("*") if path.suffix in SUFFIXES)


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
    files = data_files(data, folder)
    environment = delayed_environment(storage, files, output)
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    run = output / "run"
    words = [*launcher, "-m", "dlio_torch", *_arguments(data, folder, SIMULATED), f"output.dir={run}", *arguments]
    _command(words, environment)
    return Result(_summary(run), _sizes(run, files), delayed_reads(output))


def run_summary(
    data: str, folder: Path, run: Path, samples: DataSet, arguments: Sequence[str], prefix: Sequence[str]
) -> dict[str, Any]:
    """Runs one rank on data on a real device; returns the content of ``summary.json``.

    Args:
        data: format of the data, a choice of ``conf/dataset``.
        folder: that holds the generated data.
        run: folder of the run; is created.
        samples: the generated data.
        arguments: further options.
        prefix: words in front of the command.
    """
    words = ["-m", "dlio_torch", *_arguments(data, folder, samples), f"output.dir={run}", *arguments]
    _command(words, {}, prefix)
    return _summary(run)


def _summary(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    return content


def _arguments(data: str, folder: Path, samples: DataSet) -> list[str]:
    return [*samples.options, f"dataset={data}", f"dataset.root={folder / data}"]


def _sizes(run: Path, files: Sequence[Path]) -> list[int]:
    """Bytes of the reads of one file that was read once, in their order."""
    calls = open_recording(run).io
    reads = calls[calls["op"].isin(["read", "pread"]) & (calls["bytes"] > 0) & calls["file"].isin(map(str, files))]
    name = reads["file"].value_counts().index[0]
    return [int(size) for size in reads.loc[reads["file"] == name, "bytes"]]


def _command(arguments: Sequence[str], environment: dict[str, str], prefix: Sequence[str] = ()) -> None:
    done = subprocess.run(
        [*prefix, sys.executable, *arguments],
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)}: {done.stderr[-2000:]}")
