"""Whether following the advice of a run brings what it predicts.

Each case is limited by one thing, by construction.  Runs of it give advice; it runs with the advised setting and
without it, in turns, and the medians are set against the prediction: the share of the time in which steps wait
for data, and samples per second.  What came of samples per second is called

right            it lies in the predicted interval, give or take the noise
better, worse    it lies outside
within           the prediction was "at best", and it is not better

where noise is the median deviation of the repeats of both sides from their medians.  Threads that make batches and
wait for a core, where there should be enough, tell that other programs had it: of such runs nothing is predicted.

The slow device is emulated: reads hold a lock of all processes and sleep, as a device does that serves one
request at a time.  Preprocessing sleeps, or uses the CPU, for a fixed time.

Prints a Markdown table, and writes everything to ``--json FILE``.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from dlio_torch import cli
from dlio_torch.compute.emulate import Preprocess
from dlio_torch.environment.cores import whole_cores
from dlio_torch.formats import hdf5_reader

COMMON = (
    "recipe=minimal", "scale=paper", "checkpoint=none", "output.progress=false", "storage.limits=off", "cache=as_is",
    "train.epochs=1", "train.batch_size=4", "train.warmup_steps=4", "dataset.num_files=1",
)  # fmt: skip
MEMORY = "dataset=synthetic"
REPEATS = 5


@dataclass(frozen=True)
class Case:
    """What is run.

    Attributes:
        name: of the case.
        options: arguments beside :data:`COMMON`.
        steps: of a run.
        edge: of a sample, a square image of float32.
        altered: what is emulated meanwhile.
    """

    name: str
    options: tuple[str, ...]
    steps: int = 60
    edge: int = 16
    altered: Callable[[], AbstractContextManager[object]] = nullcontext

    def arguments(self) -> list[str]:
        shape = f"dataset.fields.0.shape=[{self.edge},{self.edge}]"
        return [*COMMON, *self.options, shape, f"dataset.samples_per_file={4 * self.steps}"]


@dataclass(frozen=True)
class Run:
    """Figures of one run: shares of its time and of the making of batches; None: not recorded."""

    waits: float
    samples_per_s: float
    model_error: float | None
    run_delay: float | None


@dataclass
class Outcome:
    """What came of a case.

    Attributes:
        case: its name.
        advised: option and value that most of its runs advised, with those that go with it; none where none did.
        texts: the advice of each run, or why there was none.
        predicted: of the runs that advised it: the share of waits and the gain, each with the least and the most.
        before: runs as they were.
        after: those with the advised setting.
    """

    case: str
    advised: tuple[str, ...] = ()
    texts: list[str] = field(default_factory=list)
    predicted: list[dict[str, float | None]] = field(default_factory=list)
    before: list[Run] = field(default_factory=list)
    after: list[Run] = field(default_factory=list)


def naps(*seconds: float) -> AbstractContextManager[object]:
    """Preprocessing of a batch that waits instead of working, these times in turns."""
    times = itertools.cycle(seconds)

    def burn(self: Preprocess, samples: int) -> int:
        time.sleep(next(times))
        return 0

    return mock.patch.object(Preprocess, "burn", burn)


def slow_device(seconds_per_sample: float) -> AbstractContextManager[object]:
    """Reads of samples from a device that serves one at a time."""
    device, read = multiprocessing.Lock(), hdf5_reader.Hdf5Reader.read

    def slow(self: Any, first: int, count: int, *where: Any) -> None:
        with device:
            time.sleep(seconds_per_sample * count)
        read(self, first, count, *where)

    return mock.patch.object(hdf5_reader.Hdf5Reader, "read", slow)


def cases() -> Iterator[Case]:
    one, step = "loader.num_workers=1", "compute.step_s=10ms"
    burns = (MEMORY, "compute.preprocess_s=5ms")  # 20 ms a batch
    sleeps = (MEMORY, "compute.preprocess_s=1ms")  # how long is said by naps
    yield Case("sleeping, no worker", (*sleeps, step), altered=lambda: naps(0.03))
    yield Case("sleeping, a worker", (*sleeps, step, one), altered=lambda: naps(0.03))
    yield Case("sleeping, a thread", (*sleeps, step, "loader.read_threads=1"), altered=lambda: naps(0.03))
    yield Case(
        "uneven, a worker",
        (*sleeps, "compute.step_s=20ms", one, "loader.prefetch_factor=1"),
        altered=lambda: naps(*[0.002] * 7, 0.09),
    )
    yield Case("CPU, no worker", (*burns, step))
    yield Case("CPU, a worker", (*burns, step, one))
    yield Case("CPU, a thread", (*burns, step, "loader.read_threads=1"))
    yield Case("CPU, too many workers", (*burns, "compute.step_s=1ms", f"loader.num_workers={4 * whole_cores()}"))
    large = (MEMORY, "compute.step_s=5ms", "loader.num_workers=2")
    yield Case("hand-over, 16 MiB", large, edge=1024)
    yield Case("hand-over, 64 MiB", large, steps=40, edge=2048)
    yield Case("slow device, no worker", (step,), altered=lambda: slow_device(0.005))
    yield Case("slow device, a worker", (step, one), altered=lambda: slow_device(0.005))


def measure(case: Case, folder: Path, repeats: int) -> Outcome:
    """Runs as it is and as advised, in turns; where the first runs give no advice, as it is alone."""
    outcome = Outcome(case.name)
    numbers = itertools.count()

    def once(*more: str) -> dict[str, Any]:
        return run([*case.arguments(), *more, f"dataset.root={folder / 'data'}"], folder / str(next(numbers)))

    with case.altered():
        for _ in range(repeats):
            summary = once()
            outcome.before.append(figures(summary))
            take(outcome, summary["advice"])
            if outcome.advised:
                outcome.after.append(figures(once(*outcome.advised)))
    return outcome


def take(outcome: Outcome, advice: dict[str, Any]) -> None:
    """Add the advice of a run: that which was taken before, else its first on the loader or the data."""
    found = {settings(item): item for item in advice["items"] if item["key"] and item["rule"] != "cold_cache"}
    if not outcome.advised:
        outcome.advised = next(iter(found), ())
    item = found.get(outcome.advised)
    if item is None:
        outcome.texts.append(" ".join([advice["conclusion"], *advice["withheld"]]))
        return
    outcome.texts.append(f"{item['text']} ({item['confidence']} confidence)")
    said = item["predicted"]
    if said is not None:
        waits = said["figure"] == "shares.fetch"
        outcome.predicted.append(
            {
                "waits_low": said["low"] if waits else None,
                "waits_high": said["high"] if waits else None,
                "gain_low": said["gain_low"],
                "gain_high": said["gain_high"],
            }
        )


def settings(item: dict[str, Any]) -> tuple[str, ...]:
    return tuple(f"{key}={value}" for key, value in [(item["key"], item["value"]), *item["also"]])


def figures(summary: dict[str, Any]) -> Run:
    model = summary["advice"]["model"] or {}
    return Run(
        summary["shares"]["fetch"], summary["train"]["samples_per_s"], model.get("error"), model.get("run_delay_share")
    )


def run(arguments: list[str], directory: Path) -> dict[str, Any]:
    """The summary of a run."""
    said = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        warnings.filterwarnings("ignore", "This DataLoader will create")
        code = cli.main([*arguments, f"output.dir={directory}"])
    if code != 0:
        raise SystemExit(f"{' '.join(arguments)}\n{said.getvalue()}")
    summary: dict[str, Any] = json.loads((directory / "summary.json").read_text(encoding="utf-8"))
    return summary


def median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def deviation(values: list[float]) -> float:
    """Median deviation from the median, relative."""
    middle = statistics.median(values)
    return statistics.median(abs(value - middle) for value in values) / middle


def verdict(outcome: Outcome) -> tuple[float, float, str]:
    """Measured factor of samples per second, its noise, and what that says of the prediction."""
    before, after = ([one.samples_per_s for one in runs] for runs in (outcome.before, outcome.after))
    factor = statistics.median(after) / statistics.median(before)
    noise = deviation(before) + deviation(after)
    low, high = (median(one[name] for one in outcome.predicted) for name in ("gain_low", "gain_high"))
    if high is None:
        return factor, noise, "not predicted"
    if factor > (1 + noise) / (1 - high):
        return factor, noise, "better"
    if low is None:
        return factor, noise, "within"
    return factor, noise, "worse" if factor < (1 - noise) / (1 - low) else "right"


def row(outcome: Outcome) -> str:
    waits = share(median(one.waits for one in outcome.before))
    error, delay = (median(getattr(one, name) for one in outcome.before) for name in ("model_error", "run_delay"))
    begin = f"| {outcome.case} | {waits} | {share(delay)} | {'-' if error is None else f'{100 * error:+.0f} %'} |"
    if not outcome.after:
        return f"{begin} none | | | | | |"
    low, high = (median(one[name] for one in outcome.predicted) for name in ("waits_low", "waits_high"))
    least, most = (median(one[name] for one in outcome.predicted) for name in ("gain_low", "gain_high"))
    factor, noise, said = verdict(outcome)
    gains = "-" if most is None else f"{interval(f'{1 / (1 - most):.2f}', least and f'{1 / (1 - least):.2f}')}"
    predicted = "-" if low is None else interval(share(low), None if high is None else share(high))
    after = share(median(one.waits for one in outcome.after))
    of = f"{len(outcome.predicted)} of {len(outcome.before)}"
    return (
        f"{begin} {' '.join(outcome.advised)} ({of}) | {predicted} | {after} | {gains} | {factor:.2f} ± "
        f"{100 * noise:.0f} % | {said} |"
    )


def interval(best: str, other: str | None) -> str:
    return f"{best} at best" if other is None else best if best == other else f"{best} to {other}"


def share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


HEAD = (
    "| case | waits | for a core | model error | advised (runs) | predicted waits | measured "
    "| predicted samples/s, times | measured | prediction |"
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Predictions of advice against what following it brings.")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="runs of each side of a case")
    parser.add_argument("--only", metavar="TEXT", default="", help="cases whose names hold this")
    parser.add_argument("--directory", type=Path, default=None, help="folder on the file system of the runs")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write all figures here")
    arguments = parser.parse_args()
    print(f"{whole_cores()} cores, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}\n", flush=True)
    print(HEAD)
    print("|---" * HEAD.count(" | ") + "|---|", flush=True)
    outcomes = []
    for case in cases():
        if arguments.only in case.name:
            with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
                outcomes.append(measure(case, Path(folder), arguments.repeats))
            print(row(outcomes[-1]), flush=True)
    print(f"\nload {os.getloadavg()[0]:.1f} at the end", file=sys.stderr)
    if arguments.json:
        record = {
            "cores": whole_cores(),
            "python": platform.python_version(),
            "kernel": platform.release(),
            "cases": [asdict(one) for one in outcomes],
        }
        arguments.json.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
