"""Compares plain training programs with the recipes that the verb fit makes of their recordings.

Each of the twelve programs of ``tests/support/plain_programs`` is run alone, recorded twice, and fitted.

``recordings``: samples per second of the program alone and while it is recorded.

``fit_check``: the component of the I/O in which emulation and recording differ most, beside the distance of two
recordings.  A program is reproduced where the distance is at most 0.05 or twice that of the recordings.

``transfer``: samples per second of program and emulation, run in turns, as recorded, with other workers and another
batch size, and with slow reads, in which each read call of a file of the data takes 1 ms more, and 10 ms more for each
MiB.  Both count the samples after the first step, to the end of the last one, of six epochs.  They agree where the
median of the ratios of the pairs is within 10 %.  The numbers of slowed reads show that the delay reached the data of
both.  Page faults of mapped files are not slowed.
"""

from __future__ import annotations

import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.fitting.programs import AS_RECORDED, PLAIN_PROGRAMS, Change, PlainProgram, Workbench
from benchmarks.fitting.slow_storage import SlowStorage
from benchmarks.harness.command import alone
from benchmarks.harness.rounds import Rounds, Unavailable, interleave, rounds_of, say
from benchmarks.harness.tables import Missing, Part, Row, Table
from dlio_torch.commands.verbs import VERBS
from dlio_torch.errors import ConfigError

NAME = "fit_check"
ROUNDS = 5
ALIKE = 0.05
AGREEING = 0.1  # relative difference of the rates
_QUICK = ("csv_in_memory",)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--programs", metavar="NAME,...", default="", help="programs to compare; all by default")
    parser.add_argument("--no-transfer", action="store_true", help="leave out the runs with changes")


def run(arguments: Namespace) -> Iterator[Part]:
    rounds = rounds_of(arguments, ROUNDS)
    for program in chosen(arguments.programs or (",".join(_QUICK) if arguments.quick else "")):
        say(program.name)
        with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
            try:
                yield from parts(program, Path(folder), rounds, transfer=not arguments.no_transfer)
            except Unavailable as error:
                yield Missing(program.name, str(error))


def chosen(names: str) -> list[PlainProgram]:
    """Programs of these names, separated by commas; all for an empty text.

    Raises:
        ConfigError: there is no program of a name.
    """
    by_name = {program.name: program for program in PLAIN_PROGRAMS}
    wanted = [name for name in names.split(",") if name] or list(by_name)
    for name in wanted:
        if name not in by_name:
            raise ConfigError(f"--programs {name}: there is no such program", hint=f"name one of {', '.join(by_name)}")
    return [by_name[name] for name in wanted]


def parts(program: PlainProgram, folder: Path, rounds: int, *, transfer: bool) -> Iterator[Part]:
    """Tables of one program.

    Raises:
        Unavailable: the program or its fit failed.
    """
    bench = Workbench(program, folder)
    bench.make()
    yield Table("recordings", [recording_row(bench)], "Samples per second of each program, alone and recorded.")
    if "fit" not in VERBS:
        yield Missing("fit", "this version has no verb fit", program.name)
        return
    yield Table(NAME, [score_row(program.name, bench.fitted("recording", "rerun"))], "The worst component of each fit.")
    if transfer:
        yield from transfer_parts(bench, SlowStorage.compiled(folder), rounds)


def recording_row(bench: Workbench) -> Row:
    """Records the program twice, and compares its rate with that of the program alone."""
    alone_rate = bench.script()["rate"]
    first, second = (bench.recorded(name)["rate"] for name in ("recording", "rerun"))
    return {
        "program": bench.program.name,
        "alone, samples/s": alone_rate,
        "recorded, samples/s": first,
        "recorded again, samples/s": second,
    }


def score_row(name: str, score: Mapping[str, Any]) -> Row:
    """The worst component of a fit, and whether it is alike."""
    component, distance, noise = score["component"], float(score["worst"]), noise_of(score)
    return {
        "program": name,
        "worst component": component,
        "distance": distance,
        "rerun noise": noise,
        "alike": "yes" if distance <= max(ALIKE, 2 * noise) else "no",
        "unexplained bytes": score["unexplained"]["bytes_share"],
    }


def noise_of(score: Mapping[str, Any]) -> float:
    """Distance of two recordings in the worst component of the fit; 0 where they were not compared in it."""
    noise = score["rerun_noise"]
    return float((noise.get(score["component"]) if isinstance(noise, Mapping) else noise) or 0.0)


def changes(program: PlainProgram, slow: SlowStorage) -> list[Change]:
    """The changes under which program and emulation are compared."""
    return [
        AS_RECORDED,
        Change("workers and batch", program.other_workers, program.other_batch_size),
        Change("slow reads", slow=slow),
    ]


def transfer_parts(bench: Workbench, slow: SlowStorage, rounds: int) -> Iterator[Part]:
    """A row for each change, or the reason for which it is missing."""
    for change in changes(bench.program, slow):
        where = f"{bench.program.name}, {change.name}"
        if change.slow and bench.program.mapped:
            yield Missing("transfer", "its file is mapped, and page faults are not slowed", where)
            continue
        say(where)
        ways = {"program": partial(bench.script, change), "emulation": partial(bench.emulation, change)}
        measured = interleave(ways, rounds, warmups=0)
        yield from (Missing(f"transfer, {way}", why, where) for way, why in measured.dropped.items())
        if not measured.dropped:
            yield Table("transfer", [transfer_row(bench.program.name, change, measured)], TRANSFER_TITLE)


TRANSFER_TITLE = "Samples per second of program and emulation; ratios are those of the same rounds."


def transfer_row(name: str, change: Change, measured: Rounds) -> Row:
    """Rates of both, how many of their reads were slowed, and whether they agree."""
    slowed = {way: measured.spread(way, "slowed").median if change.slow else None for way in ("program", "emulation")}
    ratio = measured.ratio("emulation", "rate", "program")
    return {
        "program": name,
        "change": change.name,
        "program, samples/s": measured.spread("program", "rate"),
        "emulation, samples/s": measured.spread("emulation", "rate"),
        "slowed reads, program": slowed["program"],
        "slowed reads, emulation": slowed["emulation"],
        "ratio": ratio,
        "agree": "yes" if abs(ratio.median - 1) <= AGREEING else "no",
    }


if __name__ == "__main__":
    alone(NAME)
