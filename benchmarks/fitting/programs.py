"""The plain training programs of the tests, and their data, recordings, fits and runs."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.fitting.slow_storage import SlowStorage
from benchmarks.harness.rounds import Unavailable
from dlio_torch.supervision.run_process import emulator

SCRIPTS = Path(__file__).parents[2] / "tests" / "support" / "plain_programs"
EPOCHS = 6
"""Of the compared runs; recordings have two."""
_TIMEOUT_S = 900.0


@dataclass(frozen=True)
class PlainProgram:
    """A program of the tests.

    Attributes:
        name: of its file.
        workers: worker processes of its loader as recorded.
        batch_size: as recorded.
        other_workers: worker processes after the change; None: its loader has none.
        other_batch_size: samples of a batch after the change.
        library: module without which it does not run.
        ranks: processes of torchrun.
        mapped: whether it reads by page faults, which no slowed call shows.
    """

    name: str
    workers: int = 2
    batch_size: int = 8
    other_workers: int | None = 1
    other_batch_size: int = 16
    library: str = "torch"
    ranks: int = 1
    mapped: bool = False


PLAIN_PROGRAMS = (
    PlainProgram("image_folder", library="PIL"),
    PlainProgram("hdf5_samples"),
    PlainProgram("hdf5_crops"),
    PlainProgram("memmap_tokens", batch_size=12, other_batch_size=24, mapped=True),
    PlainProgram("webdataset_shards", library="webdataset"),
    PlainProgram("arrow_table", batch_size=16, other_batch_size=32, library="datasets", mapped=True),
    PlainProgram("parquet_rows", batch_size=32, other_batch_size=16, library="pyarrow"),
    PlainProgram("npz_volumes", batch_size=2, other_batch_size=4),
    PlainProgram("csv_in_memory", workers=0, batch_size=64, other_batch_size=128),
    PlainProgram("dcp_checkpoints"),
    PlainProgram("distributed_sampler", workers=1, other_workers=2, ranks=2),
    PlainProgram("evaluation_loop", workers=0, batch_size=4, other_batch_size=8),
    PlainProgram("hand_written_loop", workers=1, batch_size=16, other_workers=None, other_batch_size=32),
)


@dataclass(frozen=True)
class Change:
    """What differs from the recorded run, in the program and in the emulation alike.

    Attributes:
        name: for the table.
        workers: worker processes; None: as recorded.
        batch_size: samples of a batch; None: as recorded.
        slow: makes reads of the data slow; None: they are as fast as recorded.
    """

    name: str
    workers: int | None = None
    batch_size: int | None = None
    slow: SlowStorage | None = None

    def flags(self) -> list[str]:
        """The change as flags of the program."""
        values = {"--workers": self.workers, "--batch-size": self.batch_size, "--epochs": EPOCHS}
        return [word for flag, value in values.items() if value is not None for word in (flag, str(value))]

    def settings(self) -> list[str]:
        """The change as options of the emulator."""
        values = {"loader.num_workers": self.workers, "train.batch_size": self.batch_size, "train.epochs": EPOCHS}
        return [f"{key}={value}" for key, value in values.items() if value is not None]


AS_RECORDED = Change("as recorded")
"""Workers, batches and storage of the recording, for more epochs."""


class Workbench:
    """Commands on one program; all that they write goes below a folder, the data below a folder of their own.

    Args:
        program: of the tests.
        folder: exists and is empty.

    Attributes:
        storage: folder of the data sets of program and emulation, and of nothing else.
        data: folder of the program's data.
        recipe: folder of the fit.
    """

    def __init__(self, program: PlainProgram, folder: Path) -> None:
        self.program, self._folder = program, folder
        self.storage, self.recipe = folder / "storage", folder / "mine"
        self.data = self.storage / "program"
        self._numbers = count(1)

    def make(self, samples: int | None = None) -> None:
        """Write the data, with the library of the program.

        Args:
            samples: as many; ``None``: as many as the program writes.

        Raises:
            Unavailable: the library is not installed.
        """
        if importlib.util.find_spec(self.program.library) is None:
            raise Unavailable(f"{self.program.library} is not installed")
        command = [sys.executable, str(SCRIPTS / f"{self.program.name}.py"), "--make", "--data", str(self.data)]
        completed([*command, *([] if samples is None else ["--samples", str(samples)])])

    def script(self, change: Change = AS_RECORDED) -> dict[str, float]:
        """Samples per second of the program.

        Raises:
            Unavailable: it failed.
        """
        with self._storage_of(change) as (variables, figures):
            rate = figures_of(completed(self._command(change.flags()), variables))
        return {**rate, **figures}

    def recorded(self, name: str) -> dict[str, float]:
        """Record the program in folder ``name``; returns its samples per second.

        Raises:
            Unavailable: it failed.
        """
        trace = emulator(["trace", "--output", str(self._folder / name), "--"])
        return figures_of(completed([*trace, *self._command([])]))

    def fitted(self, recording: str, rerun: str) -> dict[str, Any]:
        """Fit a recipe to a recording; returns its ``score.json``.

        Raises:
            Unavailable: the verb failed.
        """
        paths = {name: str(self._folder / name) for name in (recording, rerun)}
        completed(emulator(["fit", paths[recording], "--rerun", paths[rerun], "--output", str(self.recipe), "--json"]))
        score: dict[str, Any] = json.loads((self.recipe / "score.json").read_text(encoding="utf-8"))
        return score

    def emulation(self, change: Change = AS_RECORDED) -> dict[str, float]:
        """Samples per second of the recipe, from the end of its first step on, as the program counts them.

        Raises:
            Unavailable: the run failed.
        """
        output = self._folder / f"run{next(self._numbers)}"
        settings = [f"recipe={self.recipe}", "cache=as_is", "train.warmup_steps=1", "trace.posix=false"]
        settings += ["output.progress=false", f"output.dir={output}", f"dataset.root={self.storage / 'emulation'}"]
        with self._storage_of(change) as (variables, figures):
            completed(emulator(["run", *settings, *change.settings()], self.program.ranks), variables)
        return {"rate": rate_of_steps(pd.read_csv(output / "steps.csv"), self.program.ranks), **figures}

    @contextlib.contextmanager
    def _storage_of(self, change: Change) -> Iterator[tuple[Mapping[str, str], dict[str, float]]]:
        """Environment variables of a run, and figures of its storage, which are there at the end.

        Raises:
            Unavailable: reads should have been slow, and none was.
        """
        figures: dict[str, float] = {}
        slow = change.slow
        yield {} if slow is None else slow.variables(self.storage), figures
        if slow is not None:
            figures["slowed"] = slow.slowed
            if not figures["slowed"]:
                raise Unavailable("no read of its data was slowed")

    def _command(self, flags: Sequence[str]) -> list[str]:
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(self.program.ranks)]
        checkpoints = self._folder / f"checkpoints{next(self._numbers)}"
        return [
            sys.executable,
            *(torchrun if self.program.ranks > 1 else []),
            str(SCRIPTS / f"{self.program.name}.py"),
            *("--data", str(self.data), "--output", str(checkpoints)),
            *flags,
        ]


def completed(command: Sequence[str], variables: Mapping[str, str] | None = None) -> str:
    """Run a command to its end; returns what it printed.

    Raises:
        Unavailable: it failed, with its last line.
    """
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | dict(variables or {})
    done = subprocess.run(
        list(command), env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise Unavailable(failure(done.stderr.splitlines()) or f"exit code {done.returncode}")
    return done.stdout


def rate_of_steps(steps: pd.DataFrame, ranks: int) -> float:
    """Samples per second of all ranks from the end of the first training step to the end of the last one.

    Evaluations and pauses between epochs are part of that time, as in the figures of the programs.

    Args:
        steps: a run's ``steps.csv``.
        ranks: that train together.
    """
    first = steps[(steps["rank"] == 0) & (steps["phase"] != "eval")]
    ends = first[["start_s", "fetch_s", "copy_s", "compute_s", "allreduce_s", "checkpoint_s"]].sum(axis=1)
    return float(first["samples"].iloc[1:].sum() * ranks / (ends.iloc[-1] - ends.iloc[0]))


def failure(lines: Iterable[str]) -> str:
    """The line that says why a command failed: an error of this package, else the last one."""
    said = [line.strip() for line in lines if line.strip()]
    return next((line for line in said if line.startswith("dlio_torch: error")), said[-1] if said else "")


def figures_of(output: str) -> dict[str, float]:
    """Samples per second, from the last line of a program that is JSON.

    Raises:
        Unavailable: there is no such line, or the program had one step.
    """
    lines = [line for line in output.splitlines() if line.startswith('{"samples"')]
    rate = json.loads(lines[-1])["samples_per_s"] if lines else None
    if rate is None:
        raise Unavailable("the program printed no rate")
    return {"rate": float(rate)}
