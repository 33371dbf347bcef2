"""Measures whether following the advice of a run gives the predicted gain.

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
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import statistics
import tempfile
import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.advice_cases import Case, cases
from benchmarks.harness.command import alone
from benchmarks.harness.rounds import rounds_of, say
from benchmarks.harness.tables import Row, Table
from dlio_torch import cli

NAME = "advice_check"
REPEATS = 5


@dataclass(frozen=True)
class Run:
    """Figures of one run: shares of its time and of batch production; None: not recorded."""

    waits: float
    samples_per_s: float
    model_error: float | None
    run_delay: float | None


@dataclass
class Outcome:
    """Result of one case: its runs before and after following the advice.

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


def measure(case: Case, folder: Path, repeats: int) -> Outcome:
    """Runs a case as it is and as advised, in turn; only as it is if the first runs give no advice."""
    outcome = Outcome(case.name)
    numbers = itertools.count()

    def once(*more: str) -> dict[str, Any]:
        return emulate([*case.arguments(), *more, f"dataset.root={folder / 'data'}"], folder / str(next(numbers)))

    with case.altered():
        for _ in range(repeats):
            summary = once()
            outcome.before.append(figures(summary))
            take(outcome, summary["advice"])
            if outcome.advised:
                outcome.after.append(figures(once(*outcome.advised)))
    return outcome


def take(outcome: Outcome, advice: dict[str, Any]) -> None:
    """Adds the advice of a run: the advice followed before, else the run's first on loader or data."""
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


def emulate(arguments: list[str], directory: Path) -> dict[str, Any]:
    """Runs dlio_torch and returns the summary of the run."""
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
    """Measured factor of samples per second, its noise, and whether the prediction agrees."""
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


def row(outcome: Outcome) -> Row:
    """A row of the table on one case; every row has all columns."""
    error, delay = (median(getattr(one, name) for one in outcome.before) for name in ("model_error", "run_delay"))
    cells: dict[str, str] = {
        "case": outcome.case,
        "waits": share(median(one.waits for one in outcome.before)),
        "for a core": share(delay),
        "model error": "-" if error is None else f"{100 * error:+.0f} %",
        "advised (runs)": "none",
        "predicted waits": "-",
        "measured waits": "-",
        "predicted samples/s, times": "-",
        "measured, times": "-",
        "prediction": "-",
    }
    if not outcome.after:
        return cells
    low, high = (median(one[name] for one in outcome.predicted) for name in ("waits_low", "waits_high"))
    least, most = (median(one[name] for one in outcome.predicted) for name in ("gain_low", "gain_high"))
    factor, noise, said = verdict(outcome)
    gains = "-" if most is None else f"{interval(f'{1 / (1 - most):.2f}', f'{1 / (1 - least):.2f}' if least else None)}"
    return cells | {
        "advised (runs)": f"{' '.join(outcome.advised)} ({len(outcome.predicted)} of {len(outcome.before)})",
        "predicted waits": "-" if low is None else interval(share(low), None if high is None else share(high)),
        "measured waits": share(median(one.waits for one in outcome.after)),
        "predicted samples/s, times": gains,
        "measured, times": f"{factor:.2f} ± {100 * noise:.0f} %",
        "prediction": said,
    }


def interval(best: str, other: str | None) -> str:
    return f"{best} at best" if other is None else best if best == other else f"{best} to {other}"


def share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--only", metavar="TEXT", default="", help="run only cases whose names contain this text")


def run(arguments: Namespace) -> Iterator[Table]:
    wanted = [case for case in cases() if arguments.only in case.name]
    every: list[Row] = []
    for case in wanted[: 1 if arguments.quick else None]:
        say(case.name)
        with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
            outcome = measure(case, Path(folder), rounds_of(arguments, REPEATS))
        yield Table(NAME, [row(outcome)])
        every += runs(outcome)
    yield Table("runs", every)


def runs(outcome: Outcome) -> Iterator[Row]:
    """Yields every run of a case: its figures and the text of its advice."""
    for advised, of in ((False, outcome.before), (True, outcome.after)):
        for number, one in enumerate(of):
            said = "" if advised else outcome.texts[number]
            yield {"case": outcome.case, "advised": "yes" if advised else "no", **asdict(one), "advice": said}


if __name__ == "__main__":
    alone(NAME)
