"""Checks that a command killed at any moment loses no data, leaves no files behind, and can be repeated.

Each case of ``benchmarks/kills/cases.py`` is a command that writes or reads.  It is done once to count its calls on
files (open, write, rename, unlink, ftruncate, mmap ... of all its processes, by a preloaded library).  Then, for each
point, a signal is sent before a drawn one of these calls: SIGKILL, SIGTERM, SIGINT or SIGHUP, to the command, to
another process of it or to its process group.  After each: no process and no shared memory is left, what bears a final
name is whole, `report` and `compare` read it or say in a line why not, `doctor` names what was left, the same command
is done when it is given again, nothing temporary is left then, and `clean` removes everything.

`--seed` draws the same points again (each by its number: `--only 17`); how far each process has come when its call is
the n-th of all is not repeatable where several of them run.
"""

from __future__ import annotations

import random
import signal
import tempfile
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from benchmarks.harness.command import alone
from benchmarks.harness.rounds import say
from benchmarks.harness.tables import Missing, Part, Row, Table
from benchmarks.kills.cases import CASES, Case
from benchmarks.kills.counting import Victim, library
from benchmarks.kills.nursery import Nursery
from benchmarks.kills.point import Draw, Folder, Outcome, Start, anew, count, forked, prepare, strike

NAME = "kill_points"
_QUICK = 12
_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGKILL, signal.SIGHUP)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--points", type=int, default=200, metavar="N", help="number of kill points [%(default)s]")
    parser.add_argument("--seed", type=int, default=1, help="seed of the drawn kill points [%(default)s]")
    parser.add_argument(
        "--cases", default="", metavar="TEXT", help=("run only cases whose names contain one of these texts, A,B")
    )
    parser.add_argument("--only", type=int, nargs="+", metavar="NUMBER", help="run only these of the drawn kill points")
    parser.add_argument(
        "--forked", action="store_true", help="start commands as forks of a process that has all imports"
    )
    parser.add_argument("--jobs", type=int, default=2, help="number of kill points that run concurrently [%(default)s]")


def draw(cases: Sequence[Case], calls: dict[str, tuple[int, int]], points: int, seed: int) -> list[Draw]:
    """Draws kill points, distributed over the cases by their weights; the same for the same arguments.

    Args:
        cases: what is struck.
        calls: of each case, all and those that change files.
        points: how many.
        seed: of the draw.
    """
    generator = random.Random(seed)
    most = max(case.weight for case in cases)
    places = [case for turn in range(max(1, most)) for case in cases if max(1, case.weight) > turn]
    turns: defaultdict[str, int] = defaultdict(int)
    found = []
    for number in range(points):
        case = places[number % len(places)]
        turn, turns[case.name] = turns[case.name], turns[case.name] + 1
        changes = turn % 4 != 3
        victims: list[Victim] = ["main", "main", "group"]
        sent, victim = _SIGNALS[turn % len(_SIGNALS)], generator.choice(victims)
        if case.others and turn % 4 == 2:
            victim, sent = "other", generator.choice([signal.SIGKILL, signal.SIGTERM])
        elif sent == signal.SIGINT:
            victim = "group"  # as a terminal sends it
        fraction = generator.random()
        found.append(Draw(case, 1 + int(fraction * calls[case.name][changes]), changes, sent, victim))
    return found


def run(arguments: Namespace) -> Iterator[Part]:
    points = _QUICK if arguments.quick else arguments.points
    wanted = arguments.cases.split(",")
    cases = [case for case in CASES if any(one in case.name if case.weight else one == case.name for one in wanted)]
    with tempfile.TemporaryDirectory(dir=arguments.directory, prefix="kill_points-") as name:
        place = Path(name)
        try:
            counter = library(place)
        except OSError as error:
            yield Missing("all points", str(error))
            return
        calls: dict[str, tuple[int, int]] = {}
        start = _start(counter, arguments.forked)
        for case in cases:
            say(f"counting the calls of {case.name}")
            template = _template(place, case)
            prepare(case, template, start)
            calls[case.name] = count(case, template, Folder(place / "counted"), counter, start)
        yield Table(
            "cases", [_counted(case, calls) for case in cases], ("System calls of each case, all processes together.")
        )
        drawn = draw(cases, calls, points, arguments.seed)
        numbers = [number for number in arguments.only or range(points) if number < points]
        say(f"{len(numbers)} points, --points {points} --seed {arguments.seed}")
        done = _strike(drawn, numbers, place, counter, arguments)
        rows = []
        for number, outcome in done:
            rows.append(_row(number, drawn[number], outcome))
            say(" ".join(str(cell) for cell in rows[-1].values()))
        yield Table("points", rows, f"--points {points} --seed {arguments.seed}")
        yield Table(
            "outcomes",
            list(_outcomes([(drawn[int(str(row["point"]))], row) for row in rows])),
            ("Results by case and signal."),
        )


def _strike(
    drawn: Sequence[Draw], numbers: Sequence[int], place: Path, counter: Path, arguments: Namespace
) -> Iterator[tuple[int, Outcome]]:
    with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as pool:
        futures = {
            pool.submit(_one, drawn[number], number, place, counter, arguments.forked): number for number in numbers
        }
        for future in as_completed(futures):
            yield futures[future], future.result()


def _one(point: Draw, number: int, place: Path, counter: Path, forked: bool) -> Outcome:
    """Runs one kill point in a process of the pool."""
    template = _template(place, point.case)
    return strike(point, template, Folder(place / str(number)), counter, _start(counter, forked))


_NURSERIES: list[Nursery] = []


def _start(counter: Path, fork: bool) -> Start:
    """How commands are started; a process that is forked runs until this one ends."""
    if not fork:
        return anew
    if not _NURSERIES:
        _NURSERIES.append(Nursery(counter))
    return forked(_NURSERIES[0])


def _template(place: Path, case: Case) -> Folder:
    return Folder(place / ("before-" + case.name.replace(", ", "-").replace(" ", "-")))


def _counted(case: Case, calls: dict[str, tuple[int, int]]) -> Row:
    return {"case": case.name, "calls": calls[case.name][0], "that change files": calls[case.name][1]}


def _row(number: int, point: Draw, outcome: Outcome) -> Row:
    return {
        "point": number,
        "case": point.case.name,
        "signal": point.number.name,
        "to": point.victim,
        "before call": f"{point.call}{' that changes files' if point.changes else ''}: {outcome.struck or 'none came'}",
        "exit code": outcome.exit_code,
        "problems": "; ".join(outcome.problems) or "none",
    }


def _outcomes(done: Sequence[tuple[Draw, Row]]) -> Iterator[Row]:
    groups: defaultdict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for point, row in done:
        groups[point.case.name, point.number.name, point.victim].append(row)
    for (case, sent, victim), rows in sorted(groups.items()):
        yield {
            "case": case,
            "signal": sent,
            "to": victim,
            "points": len(rows),
            "struck": sum("none came" not in str(row["before call"]) for row in rows),
            "exit codes": " ".join(sorted({str(row["exit code"]) for row in rows})),
            "with problems": sum(row["problems"] != "none" for row in rows),
        }


if __name__ == "__main__":
    alone(NAME)
