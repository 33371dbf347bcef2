"""Fuzzes the command line, recipes and DLIO files: each case must run or end with one line of error.

Each case is one call of the command line in a fork of this process, in an empty folder, with a limit of time and
of memory.  What is accepted is run whole at a tiny scale.  A fault is anything but success, or exit code 2, 3 or 4
with one line that names a way out: a traceback, exit code 1, a hang, memory without bounds, a refusal after data
were written.  Faults are printed with what brings them about, and make the exit code 1.

Cases are drawn by hypothesis (extra ``test``); a seed draws the same ones again.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks.fuzzing.cases import Case
from benchmarks.fuzzing.judge import faults
from benchmarks.fuzzing.kinds import KINDS
from benchmarks.fuzzing.worker import Outcome, prepare
from benchmarks.fuzzing.worker import run as run_case
from benchmarks.harness.command import alone
from benchmarks.harness.rounds import say
from benchmarks.harness.tables import Row, Table

NAME = "fuzz"
CASES = 500
LIMIT_S = 90.0
_VARIANTS = 6


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--cases", type=int, default=CASES, metavar="N", help=f"number of cases of all kinds [{CASES}]")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the cases")
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"kinds of cases [{','.join(KINDS)}]")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="S", help="time limit of a case")
    parser.add_argument("--minutes", type=float, default=1e9, metavar="MIN", help="end the benchmark after this time")


def run(arguments: Namespace) -> Iterator[Table]:
    kinds = arguments.kinds.split(",")
    number = -(-(50 if arguments.quick else arguments.cases) // len(kinds))
    prepare()
    until = time.monotonic() + 60 * arguments.minutes
    every: list[Row] = []
    with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        for kind in kinds:
            say(kind)
            codes: Counter[str] = Counter()
            slowest = most = 0.0
            wrong: list[Row] = []
            for case in drawn(kind, number, arguments.seed):
                if time.monotonic() > until:
                    break
                outcome = in_a_folder(case, Path(folder) / "case", arguments.limit)
                codes[str(outcome.code)] += 1
                slowest, most = max(slowest, outcome.seconds), max(most, outcome.grown_bytes / 2**20)
                for fault in faults(case, outcome, arguments.limit):
                    wrong.append({"kind": kind, "fault": fault, "case": told(case), "said": last_line(outcome)})
                    print(f"{fault}: {told(case)}\n    {last_line(outcome)}", file=sys.stderr, flush=True)
            row: dict[str, str | int | float] = {"kind": kind, "cases": codes.total()}
            row |= {"done": codes["0"], "refused (2)": codes["2"], "not possible here (3)": codes["3"]}
            row |= {"slowest, s": round(slowest, 1), "most memory, MiB": round(most), "faults": len(wrong)}
            yield Table(NAME, [row])
            every += wrong
    yield Table("faults", every)
    if every:
        raise SystemExit(1)


def drawn(kind: str, number: int, seed: int) -> list[Case]:
    """Draws cases of a kind; the same cases for the same seed."""
    import hypothesis

    found: list[Case] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=_VARIANTS * number,
        database=None,
        deadline=None,
        phases=(hypothesis.Phase.generate,),
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(KINDS[kind])
    def take(case: Case) -> None:
        # Variants of a case follow it: they differ in few words.
        if not found or alike(case, found[-1]) < 0.7:
            found.append(case)

    take()
    return found[:number]


def alike(a: Case, b: Case) -> float:
    """Share of the words of ``a`` that ``b`` contains, too."""

    def words(case: Case) -> set[str]:
        texts = [content.decode("utf-8", "replace") for content in case.files.values()]
        lines = [line for text in texts for line in text.splitlines()]
        return {*case.argv, *lines, *(f"{name}={value}" for name, value in case.environ.items())}

    return len(words(a) & words(b)) / max(1, len(words(a)))


def in_a_folder(case: Case, folder: Path, limit_s: float) -> Outcome:
    """Runs a case in a new folder, which is then removed."""
    folder.mkdir()
    try:
        return run_case(case, folder, limit_s)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def told(case: Case) -> str:
    """A case as a user would type it, shortened."""
    words = [*(f"{name}={value}" for name, value in case.environ.items()), *map(shlex.quote, case.argv)]
    words += [f"<{name}: {content[:300]!r}>" for name, content in case.files.items()]
    text = " ".join(word if len(word) < 400 else f"{word[:200]}...({len(word)})" for word in words)
    return text.encode("unicode_escape").decode("ascii")


def last_line(outcome: Outcome) -> str:
    """The last line that a case printed."""
    lines = outcome.err.rstrip("\n").split("\n")
    return lines[-1][:600].encode("unicode_escape").decode("ascii")


if __name__ == "__main__":
    alone(NAME)
