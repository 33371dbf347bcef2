"""Checks that memory, descriptors, threads, shared memory and event files do not grow in runs of an hour.

Each way of running is one run of the tool at small scale, with more epochs than the time allows; all of them go on side
by side and are interrupted when the time is over, as by Ctrl-C.  When all of them are training, each is looked at
every few seconds, with all its processes.  The first part of the time, ``--warm-up``, is left out.

The slope is Theil's and Sen's (``soaking/slopes.py``), per hour, with its interval of 95 %.  **growing**: the lower end
of the interval is above the tolerance, which is 1 % of the median or 2 MiB an hour (the larger) for memory, one in an
hour for what is counted, and 64 KiB an hour for the bytes of events.  Otherwise **flat**.  Bytes of the run without its
events have no verdict: one record a step is kept on purpose.  The exit code is 1 where a figure is growing, and where
a run ended before its time or did not end with 130.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.harness.command import alone
from benchmarks.harness.rounds import say
from benchmarks.harness.tables import Missing, Part, Row, Table
from benchmarks.soaking.cases import CASES, arguments
from benchmarks.soaking.looking import FIGURES, Look, look
from benchmarks.soaking.slopes import Slope, slope
from dlio_torch.errors import RunFailed
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.units import parse_duration

NAME = "soak"
HOUR = 3600.0
_MEMORY = ("rss_bytes", "pss_bytes", "trainer_pss_bytes", "shm_bytes")
_NO_VERDICT = ("run_bytes",)
_ENDING_S = 180.0
_STARTING_S = 600.0


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--time", type=parse_duration, default=HOUR, metavar="TIME", help="duration of all runs; 1h")
    parser.add_argument(
        "--every", type=parse_duration, default=5.0, metavar="TIME", help=("interval between two measurements; 5s")
    )
    parser.add_argument(
        "--warm-up",
        type=float,
        default=0.2,
        metavar="SHARE",
        help=("share of the run that is left out at its start; 0.2"),
    )
    parser.add_argument("--ways", default="", metavar="NAME;...", help="run only these variants, separated by ;")
    parser.add_argument(
        "--step", type=parse_duration, default=0.05, metavar="TIME", help=("compute time of a step; 50ms")
    )
    parser.add_argument("--limit", default="8MiB", metavar="SIZE", help="trace.limit_bytes of the runs; 8MiB")


@dataclass
class _Running:
    name: str
    process: subprocess.Popen[bytes]
    run: Path
    times: list[float] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)


def run(arguments: Namespace) -> Iterator[Part]:
    wanted = [name.strip() for name in arguments.ways.split(";") if name.strip()] or list(CASES)
    unknown = [name for name in wanted if name not in CASES]
    if unknown:
        raise SystemExit(f"there is no variant {unknown[0]!r}; name one of {'; '.join(CASES)}")
    seconds = min(arguments.time, 30.0) if arguments.quick else arguments.time
    folder = Path(tempfile.mkdtemp(dir=arguments.directory))
    running: list[_Running] = []
    try:
        for name in wanted:
            running.append(_start(name, folder, arguments.step, arguments.limit))
        _train(running)
        _look_on(running, seconds, arguments.every)
        bad = []
        for one in running:
            rows, missing = _ended(one, arguments.warm_up)
            bad += [f"{one.name}: {row['figure']}" for row in rows if row["verdict"] == "growing"]
            if missing is not None:
                bad.append(f"{one.name}: {missing.why}")
                yield missing
            yield Table("soak", rows, f"{seconds:.0f} s; slopes per hour, without the first {arguments.warm_up:.0%}.")
    finally:
        for one in running:
            if one.process.poll() is None:
                one.process.kill()
                one.process.wait()
        shutil.rmtree(folder, ignore_errors=True)
    if bad:
        raise RunFailed(
            "; ".join(bad), hint=("find what is kept from step to step or from epoch to epoch, and release it")
        )


def _start(name: str, folder: Path, step_s: float, limit: str) -> _Running:
    own = folder / name.replace(" ", "-").replace(",", "")
    own.mkdir()
    words = [sys.executable, "-m", "dlio_torch", *arguments(name, str(own), 1_000_000, step_s, limit)]
    with open(own / "said.txt", "wb") as said:
        # A shell may have had SIGINT ignored here, which would be inherited.
        process = subprocess.Popen(words, stdout=said, stderr=said, preexec_fn=_heed_interrupts)  # noqa: PLW1509  # no threads yet
    return _Running(name, process, own / "run")


def _heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _train(running: Sequence[_Running]) -> None:
    """Waits until all runs have written records of steps, or have ended."""
    end = time.monotonic() + _STARTING_S
    for one in running:
        journal = RunDir(one.run).steps(0)
        journal = journal.with_name(f"{journal.name}.journal")
        while one.process.poll() is None and not (journal.exists() and journal.stat().st_size > 100):
            if time.monotonic() > end:
                raise RunFailed(f"{one.name}: no step within {_STARTING_S:.0f} s", hint="name fewer --ways")
            time.sleep(0.2)


def _look_on(running: Sequence[_Running], seconds: float, every: float) -> None:
    began = time.monotonic()
    known = {one.name: psutil.Process(one.process.pid) for one in running}
    said = 0
    while (passed := time.monotonic() - began) < seconds:
        for one in running:
            at = time.monotonic() - began
            if one.process.poll() is None and (found := look(known[one.name], one.run)) is not None:
                one.times.append(at)
                one.looks.append(found)
        if passed // 300 > said:
            said = int(passed // 300)
            say(f"{passed:.0f} of {seconds:.0f} s")
        time.sleep(max(0.0, min(every, seconds - (time.monotonic() - began))))


def _ended(one: _Running, warm_up: float) -> tuple[list[Row], Missing | None]:
    early = one.process.poll()
    missing = None
    if early is None:
        one.process.send_signal(signal.SIGINT)
        try:
            code = one.process.wait(_ENDING_S)
            missing = (
                None
                if code == 130
                else Missing(one.name, (f"the run ended with exit code {code} when it was interrupted"), "end")
            )
        except subprocess.TimeoutExpired:
            missing = Missing(one.name, f"the run continued for {_ENDING_S:.0f} s after it was interrupted", "end")
    else:
        tail = (one.run.parent / "said.txt").read_text(errors="replace").strip().splitlines()[-1:]
        missing = Missing(
            one.name, (f"the run ended before its interruption with exit code {early}: {' '.join(tail)}"), "end"
        )
    first = next((i for i, at in enumerate(one.times) if at >= warm_up * one.times[-1]), 0) if one.times else 0
    rows: list[Row] = []
    for key, title in FIGURES.items():
        found = slope(one.times[first:], [float(getattr(each, key)) for each in one.looks[first:]])
        if found is not None:
            rows.append(_row(one.name, key, title, found))
    return rows, missing


def _row(way: str, key: str, title: str, found: Slope) -> Row:
    unit = 2.0**-20 if key.endswith("_bytes") else 1.0
    return {
        "way": way,
        "figure": title + (" (MiB)" if unit != 1 else ""),
        "median": found.median * unit,
        "last": found.last * unit,
        "per hour": found.per_s * HOUR * unit,
        "low": found.low * HOUR * unit,
        "high": found.high * HOUR * unit,
        "verdict": _verdict(key, found),
    }


def _verdict(key: str, found: Slope) -> str:
    if key in _NO_VERDICT:
        return "-"
    if key in _MEMORY:
        tolerance = max(0.01 * found.median, 2.0 * 2**20)
    else:
        tolerance = 64.0 * 1024 if key == "event_bytes" else 1.0
    return "growing" if found.low * HOUR > tolerance else "flat"


if __name__ == "__main__":
    alone(NAME)
