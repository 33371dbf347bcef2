"""Compares ``au_of_storage`` with the known utilisation of a simulated storage.

A preloaded library answers reads of the data from memory with a latency, random jitter and a bandwidth that all
processes share.  Such a storage with a loader that costs nothing would give a known utilisation: the result of an
independent simulation (:mod:`benchmarks.utilisation.ideal`) of the requests of a sample.  A real run on that storage,
with recorded calls and with all costs of its loader, says ``au_of_storage`` in its summary, which should be the same;
its ``au`` is lower by what the loader costs.

Differences are in points of utilisation (hundredths).  The goal is 3 points.  Loads of the machine disturb runs: the
difference is that of the median of the rounds.

The same check follows with a real device, whose bandwidth a control group limits (``io.max`` of version 2,
``blkio.throttle`` of version 1), where the user may make such a group (:mod:`benchmarks.utilisation.limited_device`).
"""

from __future__ import annotations

import statistics
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.command import alone
from benchmarks.harness.rounds import rounds_of, say
from benchmarks.harness.tables import Part, Row, Spread, Table
from benchmarks.utilisation.ideal import ideal_utilisation
from benchmarks.utilisation.limited_device import DATA, QUICK_DATA, limited_cases, limited_parts, verdict
from benchmarks.utilisation.storage_run import FILES, Result, emulate, generate
from dlio_torch.data.engines.delayed_reads import StorageDelay
from dlio_torch.errors import ConfigError

NAME = "au_truth"
ROUNDS = 3
GOAL = 3.0  # points
FAST = StorageDelay(0.0004, 1e9, 0.0002)
SLOW = StorageDelay(0.001, 20e6, 0.0005)
STEPS = {0.375: (FAST, 300), 1.4: (FAST, 300), 10.0: (SLOW, 200), 50.0: (SLOW, 60)}
"""By step time in ms: the storage, and the number of measured steps."""
FORMATS = ("npz", "hdf5")
WORKERS = (0, 1, 2, 4)
RANKS = (1, 2)


@dataclass(frozen=True)
class Case:
    """A run: step time in ms, format, workers of each rank, and ranks."""

    step_ms: float
    data: str
    workers: int
    ranks: int

    @property
    def name(self) -> str:
        return f"{self.step_ms:g} ms, {self.data}, {self.workers} workers, {self.ranks} ranks"


def cases() -> Iterator[Case]:
    for ranks in RANKS:
        for step_ms in STEPS:
            for data in FORMATS:
                for workers in WORKERS:
                    yield Case(step_ms, data, workers, ranks)


def options(case: Case) -> list[str]:
    """Options of a case's run."""
    steps = min(STEPS[case.step_ms][1], FILES // case.ranks)
    return [f"compute.step_s={case.step_ms}ms", f"loader.num_workers={case.workers}", f"train.steps={steps}"]


def truth(case: Case, sizes: list[int]) -> float:
    """Utilisation that the storage allows a loader that costs nothing."""
    return ideal_utilisation(STEPS[case.step_ms][0], sizes, case.step_ms / 1e3, case.workers, case.ranks)


def measured(case: Case, folder: Path, rounds: int) -> list[Result]:
    """One result for each round."""
    storage = STEPS[case.step_ms][0]
    results = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=folder) as output:
            results.append(emulate(case.data, folder, Path(output) / "out", storage, case.ranks, options(case)))
    return results


def row(case: Case, results: list[Result]) -> Row:
    """Table row of a case."""
    known = truth(case, results[0].sizes)
    said = [result.summary["au_of_storage"]["mean"] for result in results]
    return {
        "step ms": case.step_ms,
        "format": case.data,
        "workers": case.workers,
        "ranks": case.ranks,
        "requests": len(results[0].sizes),
        "measured au %": Spread.of(100 * result.summary["au"]["mean"] for result in results),
        "known %": 100 * known,
        "au_of_storage %": Spread.of(100 * value for value in said),
        "difference": round(100 * (statistics.median(said) - known), 2),
    }


def check_requests(case: Case, result: Result) -> None:
    """Raises SystemExit unless each sample was read by the same requests, so that the truth is known."""
    steps = int(result.summary["train"]["steps"] + result.summary["warmup"]["steps"])
    per_sample = result.answered.count / steps / case.ranks, result.answered.bytes / steps / case.ranks
    # Workers may have read ahead at the end, and checks before the run may have opened a file.
    if abs(per_sample[0] / len(result.sizes) - 1) > 0.05 or abs(per_sample[1] / sum(result.sizes) - 1) > 0.05:
        raise SystemExit(f"{case.name}: {per_sample} reads and bytes of a sample, but recorded are {result.sizes}")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--only", metavar="TEXT", default="", help="run only cases whose names contain this text")


def run(arguments: Namespace) -> Iterator[Part]:
    count, rounds = 1 if arguments.quick else None, rounds_of(arguments, ROUNDS)
    simulated = [case for case in cases() if arguments.only in case.name][:count]
    limited = [case for case in limited_cases() if arguments.only in case.name][:count]
    if not simulated and not limited:
        raise ConfigError(f"--only {arguments.only!r} is in no case's name", hint="for example --only '10 ms, npz'")
    with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
        if simulated:
            yield from simulated_parts(Path(name), simulated, rounds)
    with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
        if limited:
            yield from limited_parts(Path(name), limited, rounds, QUICK_DATA if arguments.quick else DATA)


def simulated_parts(folder: Path, wanted: list[Case], rounds: int) -> Iterator[Part]:
    """Rows of the wanted cases with a simulated storage, and their verdict."""
    rows: list[Row] = []
    for data in sorted({case.data for case in wanted}):
        generate(data, folder)
    for case in wanted:
        say(case.name)
        results = measured(case, folder, rounds)
        check_requests(case, results[0])
        rows.append(row(case, results))
        yield Table(NAME, rows[-1:])
    yield Table("differences", [verdict(rows, GOAL)])


if __name__ == "__main__":
    alone(NAME)
