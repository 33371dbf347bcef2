"""Measures the tool's overhead: start, memory before the first sample, the index, and empty steps.

Every verb and the beginning of a run are processes of their own; verbs take turns.  A step in which nothing is done
takes batches that lie in memory (``loader.replay=batches``), and no compute is emulated: what is left is the tool.
System calls are counted by strace, which attaches to the process for these steps only, and in runs of their own, as
are allocations (tracemalloc); the time of a step is measured without either.
"""

from __future__ import annotations

import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness.command import alone
from benchmarks.harness.rounds import Figures, interleave, rounds_of
from benchmarks.harness.tables import Missing, Part, Row, Table
from benchmarks.own.index import INDEXES, memory
from benchmarks.own.programs import EMPTY, command, heavy, look, probe

NAME = "own_cost"
SAMPLES = 1_000_000
FIRST = 200  # steps before the first one that counts
_FIRST = "until the first batch"

VERBS: dict[str, list[str]] = {
    "--help": ["--help"],
    "ls": ["ls"],
    "explain": ["explain", "loader.num_workers"],
    "show": ["show", "recipe=cosmic_tagger"],
    "--dry-run": ["recipe=minimal", "--dry-run"],
    "generate": [
        "generate",
        "recipe=minimal",
        "dataset=npz",
        "dataset.samples_per_file=8",
        "dataset.root=data",
        "generate.overwrite=true",
    ],
}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, default=10_000, help="steps in which nothing is done")


def run(arguments: Namespace) -> Iterator[Part]:
    steps = 300 if arguments.quick else arguments.steps
    with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        yield from _starting(Path(folder), rounds_of(arguments))
        yield Table("index", list(_indexes()), f"Memory of the index and the order of {SAMPLES:,} samples.")
        yield from _steps(Path(folder), rounds_of(arguments), steps)


def _starting(folder: Path, rounds: int) -> Iterator[Part]:
    held: dict[str, dict[str, Any]] = {}

    def first() -> Figures:
        found = held[_FIRST] = probe(["first"], 0, 1, EMPTY, folder)["first"]
        return {"s": found["s"], "cpu_s": found["cpu_s"]}

    ways: dict[str, Callable[[], Figures]] = {name: partial(command, words, folder) for name, words in VERBS.items()}
    found = interleave({**ways, _FIRST: first}, rounds, warmups=0)
    yield from (Missing(name, why) for name, why in found.dropped.items())
    rows: list[Row] = []
    for name in found.figures:
        at_end = held[name] if name in held else look(VERBS[name], folder)
        rows.append(
            {
                "start": name,
                "wall (s)": found.spread(name, "s"),
                "processor time (s)": found.spread(name, "cpu_s"),
                "modules": len(at_end["modules"]),
                "of them large packages": ", ".join(heavy(at_end["modules"])) or "none",
                "peak memory (MB)": at_end["peak_bytes"] * 1e-6,
            }
        )
    yield Table("starting", rows, "Time of a verb from its start to its end, and of a run up to its first batch.")


def _indexes() -> Iterator[Row]:
    for name, make in INDEXES.items():
        kept, peak = memory(partial(make, SAMPLES))
        yield {"index": name, "kept (bytes a sample)": kept / SAMPLES, "at the most": peak / SAMPLES}


def _steps(folder: Path, rounds: int, steps: int) -> Iterator[Part]:
    spans = {name: [*EMPTY, f"trace.spans={on}"] for name, on in (("off", "false"), ("on", "true"))}

    def timed(words: list[str]) -> Figures:
        found: Figures = probe(["time"], FIRST, steps, words, folder)["time"]
        return found

    found = interleave({name: partial(timed, words) for name, words in spans.items()}, rounds, warmups=0)
    yield from (Missing(f"spans {name}", why, "steps") for name, why in found.dropped.items())
    rows: list[Row] = []
    for name in found.figures:
        counted = probe(["memory", "calls"], FIRST, steps, spans[name], folder)
        kept, calls = counted["memory"], counted["calls"]
        if calls is None:
            yield Missing("system calls", "install strace, or let it attach to processes (ptrace)", "steps")
        rows.append(
            {
                "spans": name,
                "time (us)": found.spread(name, "s").scaled(1e6 / steps),
                "processor time (us)": found.spread(name, "cpu_s").scaled(1e6 / steps),
                "memory kept (bytes)": kept["kept_bytes"] / steps,
                "objects kept": kept["kept_blocks"] / steps,
                "system calls": None if calls is None else sum(calls.values()) / steps,
            }
        )
    yield Table("steps", rows, f"Overhead per step, mean of {steps:,} steps in which nothing is done.")


if __name__ == "__main__":
    alone(NAME)
