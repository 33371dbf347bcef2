"""Compares predictions of the verb predict with runs on this machine and with published trends.

``predict_check``: of each case a run of one rank is measured, two and four ranks are predicted from it, and then
measured, in turns.  Ranks of one machine share its cores and its storage, as ranks of a cluster share that of theirs:
the cases are limited by the one or the other.  The device is emulated where it says so (one sample at a time, all
ranks in one queue), so that its rate is known; of the disk the rate is that of a reader that does nothing else.  The
emulated device is none that the kernel counts, which is told to predict by ``device_read_share: null``.

``published``: strong scaling on Theta from 512 to 8,192 ranks, predicted from one rank here with the application's
compute for so much of a batch, beside what the DLIO paper (CCGrid 2021, section V.E) says of its figures 14 and 15.  No
points are published; an efficiency of 80 % is called linear.

Reproduced: with many files (figure 14) time falls linearly with the number of ranks as long as storage has room; with
one shared file (figure 15) it falls less than that, and the shortfall grows with the ranks, as all of them read the
file's own metadata from the one target that has it ("only present in larger scales").  Not reproduced: CosmoFlow's
scaling to the end, for its 2 TiB cannot be read in less than nine seconds at Theta's peak; FRNN's, once files are
opened as fast as metadata servers are guessed to; that time goes on falling in figure 15 where the prediction has it
rise again, beyond some thousand ranks, by the guessed rate of requests of a target and without caches of servers; and
any seconds.  CANDLE is left out: its 1,120 rows cannot be divided over so many ranks, each of which parses all of them.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.command import alone
from benchmarks.harness.rounds import rounds_of, say
from benchmarks.harness.tables import Row, Table
from dlio_torch.environment.cores import whole_cores

NAME = "predict_check"
REPEATS = 3
RANKS = (1, 2, 4)
EDGE = 256  # of a sample, 256 KiB of float32: more than the library reads ahead

COMMON = (
    "recipe=minimal", "scale=paper", "checkpoint=none", "output.progress=false", "train.epochs=1",
    "train.batch_size=4", "train.warmup_steps=8", f"dataset.fields.0.shape=[{EDGE},{EDGE}]",
)  # fmt: skip
ALONE = ("checkpoint=none", "train.allreduce_bytes=0", "train.eval_every_steps=0",
        "train.eval_every_epochs=0", "train.epochs=1", "trace.posix=true", "output.progress=false", "cache=as_is",
        "scale=tiny", "train.batch_size=1", "train.batch_scope=rank")  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A run: its name, arguments, steps, seconds of the emulated device per sample, and whether its cache is cold."""

    name: str
    options: tuple[str, ...]
    steps: int = 80
    device_s: float = 0.0
    cold: bool = False


@dataclass(frozen=True)
class Published:
    """A workload of figures 14 and 15 of the paper: its recipe, changes, and the paper's files and samples."""

    name: str
    figure: int
    options: tuple[str, ...]
    files: int
    samples: int


def cases() -> Iterator[Case]:
    step, ahead = "compute.step_s=20ms", "loader.num_workers=1"
    yield Case("page cache, no worker", (step, "cache=warm"))
    yield Case("device, no worker", (step, "cache=as_is"), device_s=0.0015)
    yield Case("device, a worker", (step, ahead, "cache=as_is"), device_s=0.0025)
    uneven = ("compute.distribution=gamma", "compute.stdev_s=10ms", "train.allreduce_bytes=4096")
    yield Case("uneven steps, allreduce", (step, *uneven, "cache=warm"))
    yield Case("cores, a worker", (step, ahead, "compute.preprocess_s=4ms", "cache=warm"))
    yield Case("disk, no worker", (step, "cache=cold", "storage.limits=measure"), cold=True)


def published() -> Iterator[Published]:
    """With batches of one sample, so that 8,192 ranks have some; compute is the recipe's for so much of a batch."""
    yield Published(
        "ImageNet", 14, ("recipe=imagenet", "access.partition=files", "compute.step_s=54ms"), 1024, 1024 * 1251
    )
    yield Published("CosmoFlow", 14, ("recipe=cosmoflow", "compute.step_s=210ms"), 1024, 65536)
    frnn = ("recipe=frnn", "access.pattern=samples", "access.partition=batches", "compute.step_s=52ms")
    yield Published("FRNN", 14, frnn, 28000, 28000)
    yield Published("Cosmic Tagger", 15, ("recipe=cosmic_tagger", "compute.step_s=1970ms"), 1, 43000)
    ffn = ("recipe=ffn", "access.partition=batches", "access.hold_steps=1", "compute.step_s=773ms")
    yield Published("FFN", 15, ffn, 1, 18678)


def emulate(case: Case, ranks: int, folder: Path, number: int) -> Path:
    """Runs a number of ranks; returns the run's folder."""
    output = folder / f"{ranks}-{number}"
    samples = 4 * case.steps * max(RANKS)
    arguments = [
        *COMMON, *case.options, f"train.steps={case.steps}", "dataset.num_files=4",
        f"dataset.samples_per_file={samples // 4}", f"dataset.root={folder / 'data'}", f"output.dir={output}",
    ]  # fmt: skip
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    program = ["-m", "benchmarks.predict_rank", str(case.device_s), str(folder / "device"), *arguments]
    done = subprocess.run(
        [sys.executable, *launcher, *program],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{case.name}, {ranks} ranks: {done.stderr[-2000:]}")
    if case.device_s:
        path = output / "summary.json"
        summary = json.loads(path.read_text(encoding="utf-8"))
        summary["io"]["device_read_share"] = None
        path.write_text(json.dumps(summary), encoding="utf-8")
    return output


def summary_of(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    return found


def predicted(run: Path, *arguments: str) -> dict[str, Any]:
    """Figures that the verb predict prints."""
    done = subprocess.run(
        [sys.executable, "-m", "dlio_torch", "predict", str(run), *arguments, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def system_of(case: Case, run: Path) -> list[str]:
    """Options that describe this machine to the verb predict."""
    told = [f"system.cores_per_node={whole_cores()}", f"system.ranks_per_node={max(RANKS)}", "system.targets=1"]
    if case.device_s:
        return [*told, f"system.read_bytes_per_s={4 * EDGE * EDGE / case.device_s:.0f}"]
    if case.cold:
        return [*told, f"system.read_bytes_per_s={summary_of(run)['storage']['most_bytes_per_s']:.0f}"]
    return [*told, "cached=1"]


def check(case: Case, folder: Path, repeats: int) -> tuple[list[Row], list[Row]]:
    """A table row for each number of ranks, and one for each run."""
    foretold: dict[int, list[dict[str, Any]]] = {ranks: [] for ranks in RANKS}
    measured: dict[int, list[dict[str, Any]]] = {ranks: [] for ranks in RANKS}
    for number in range(repeats):
        runs = {ranks: emulate(case, ranks, folder, number) for ranks in RANKS}
        said = predicted(runs[1], *system_of(case, runs[1]), f"ranks={','.join(map(str, RANKS))}")
        for row in said["rows"]:
            foretold[row["ranks"]].append(row)
            measured[row["ranks"]].append(summary_of(runs[row["ranks"]]))
    rows: list[Row] = []
    every: list[Row] = []
    for ranks in RANKS:
        rates = (
            [one["samples_per_s"] for one in foretold[ranks]],
            [one["train"]["samples_per_s"] for one in measured[ranks]],
        )
        waits = [one["io_share"] for one in foretold[ranks]], [one["shares"]["fetch"] for one in measured[ranks]]
        every += [
            {"case": case.name, "ranks": ranks, "predicted samples/s": a, "measured samples/s": b}
            for a, b in zip(*rates, strict=True)
        ]
        middle = [statistics.median(values) for values in (*rates, *waits)]
        rows.append(
            {
                "case": case.name,
                "ranks": ranks,
                "predicted samples/s": middle[0],
                "measured samples/s": middle[1],
                "difference": f"{100 * (middle[0] / middle[1] - 1):+.0f} %",
                "predicted waits": f"{100 * middle[2]:.0f} %",
                "measured waits": f"{100 * middle[3]:.0f} %",
                "limited by": foretold[ranks][-1]["limited_by"],
            }
        )
    return rows, every


def trend(work: Published, folder: Path) -> list[Row]:
    """Strong scaling on Theta, predicted from a run of one rank on this machine."""
    output = folder / work.name.replace(" ", "_")
    arguments = [*ALONE, *work.options, f"dataset.root={folder / 'data'}", f"output.dir={output}"]
    done = subprocess.run([sys.executable, "-m", "dlio_torch", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{work.name}: {done.stderr[-2000:]}")
    theta = ("system=theta", "system.ranks_per_node=4")
    said = predicted(output, *theta, "ranks=512..8192:x2", f"files={work.files}", f"samples={work.samples}")
    first = said["rows"][0]
    return [
        {
            "figure": work.figure,
            "application": work.name,
            "ranks": row["ranks"],
            "epoch s": row["epoch_s"],
            "of which begin s": row["begin_s"],
            "efficiency": f"{100 * first['epoch_s'] * first['ranks'] / row['epoch_s'] / row['ranks']:.0f} %",
            "limited by": row["limited_by"],
        }
        for row in said["rows"]
        if row["epoch_s"] is not None
    ]


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--only", metavar="TEXT", default="", help=("run only cases and applications whose names contain this text")
    )


def run(arguments: Namespace) -> Iterator[Table]:
    wanted = [case for case in cases() if arguments.only in case.name]
    every: list[Row] = []
    for case in wanted[: 1 if arguments.quick else None]:
        say(case.name)
        with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
            rows, runs = check(case, Path(folder), rounds_of(arguments, REPEATS))
        every += runs
        yield Table(NAME, rows)
    for work in [work for work in published() if arguments.only in work.name][: 0 if arguments.quick else None]:
        say(work.name)
        with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
            yield Table("published", trend(work, Path(folder)))
    yield Table("runs", every)


if __name__ == "__main__":
    alone(NAME)
