"""What recording costs the program that is recorded: ``python -m benchmarks.trace_cost [--json FILE] [--quick]``.

Two questions, two tables (Markdown on stdout, everything in ``--json FILE``):

1. A native loop of 4 KiB preads of a cached file: nanoseconds per call, and what each tool adds.
2. Three recipes at ``scale=tiny`` without emulated compute: the time of the measured steps, and of the
   whole command with all processes, which includes the start of Python and torch.

Time is on the wall, and of processors, which other work on the machine disturbs less; in the first table
strace's own processor time is not part of it.

Tools: the interposer of this package, strace, Darshan with extended tracing, DFTracer with metadata of
each call; each limited to the data's folder where it can be.  What is not installed is listed with how to
get it.  Every round runs the bare program and all tools, one after the other, beginning with another one
each time; ratios are to the bare run of the same round, so load on the machine that lasts longer than a
round cancels out.  Figures are medians, with the least and the largest in brackets.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.pread_loop import CALL_BYTES, WARMUP_CALLS, compile_loop
from benchmarks.trace_tools import BARE, Tool, find_tools
from dlio_torch.units import format_size

ROOT = Path(__file__).resolve().parents[1]
FILE_BYTES = 1 << 20
RECIPES = {
    "minimal": ("train.epochs=120",),
    "cosmic_tagger": ("scale.max_steps=100", "train.epochs=1", "train.eval_every_steps=0"),
    "resnet50": ("train.epochs=30",),
}
"""Recipes, and what makes their measured steps take about a second."""

COMMON = ("scale=tiny", "compute.mode=none", "checkpoint=none", "output.dir=run")


@dataclass(frozen=True)
class CallRow:
    """4 KiB preads under one tool; ``ratios`` are to the bare loop of the same round.

    ``share`` is that of the preads that were recorded, None: not known.
    """

    tool: str
    ns_per_call: list[float]
    cpu_ns_per_call: list[float]
    ratios: list[float]
    added_cpu_ns: list[float]
    share: float | None
    recorded_bytes: int


@dataclass(frozen=True)
class RunRow:
    """One recipe under one tool; ``reads`` of the data were recorded, None: not known."""

    recipe: str
    tool: str
    steps_s: list[float]
    command_s: list[float]
    cpu_s: list[float]
    steps_ratios: list[float]
    command_ratios: list[float]
    cpu_ratios: list[float]
    reads: int | None
    recorded_bytes: int


def children_cpu_s() -> float:
    """Processor time of all children so far, and of theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Runner:
    """Runs commands under tools, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.recorded: dict[str, int] = {}
        self.reads: dict[str, int | None] = {}

    def run(self, tool: Tool, command: Sequence[str | Path], data: Path) -> tuple[str, float, float]:
        """Standard output, seconds and processor seconds of one command.

        ``recorded`` and ``reads`` then tell what the tool has of it.

        Raises:
            SystemExit: the command failed, or the tool recorded nothing.
        """
        with tempfile.TemporaryDirectory(dir=self.folder) as made:
            records = Path(made) / "records"
            records.mkdir()
            variables = tool.variables(records, data)
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            words = [*tool.command(records), "env", *(f"{name}={value}" for name, value in variables.items())]
            cpu, start = children_cpu_s(), time.perf_counter()
            done = subprocess.run(
                [*words, *map(str, command)],
                cwd=self.folder,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            seconds, cpu = time.perf_counter() - start, children_cpu_s() - cpu
            size = sum(path.stat().st_size for path in records.rglob("*") if path.is_file())
            reads = tool.reads(records, data)
        if done.returncode:
            raise SystemExit(f"{' '.join(map(str, command))} under {tool.name} failed:\n{done.stdout}{done.stderr}")
        if not size and tool.name != BARE:
            raise SystemExit(f"{tool.name} recorded nothing")
        self.recorded[tool.name], self.reads[tool.name] = size, reads
        return done.stdout, seconds, cpu


def rotated(tools: Sequence[Tool], turn: int) -> list[Tool]:
    """All tools, beginning with another one each turn."""
    first = turn % len(tools)
    return [*tools[first:], *tools[:first]]


def ratios(values: Sequence[float], bare: Sequence[float]) -> list[float]:
    """Of each round."""
    return [round(value / base, 4) for value, base in zip(values, bare, strict=True)]


def measure_calls(tools: Sequence[Tool], runner: Runner, rounds: int, calls: int) -> list[CallRow]:
    data = runner.folder / "data"
    data.mkdir(exist_ok=True)
    path = data / "blocks"
    path.write_bytes(os.urandom(FILE_BYTES))
    program = compile_loop(runner.folder)
    wall: dict[str, list[float]] = {tool.name: [] for tool in tools}
    cpu: dict[str, list[float]] = {tool.name: [] for tool in tools}
    shares: dict[str, float | None] = {}
    for turn in range(rounds):
        for tool in rotated(tools, turn):
            count = calls // 10 if tool.slow else calls
            output, _, _ = runner.run(tool, [program, path, str(count), str(FILE_BYTES // CALL_BYTES)], data)
            for values, value in zip((wall, cpu), output.split(), strict=True):
                values[tool.name].append(float(value))
            reads = runner.reads[tool.name]
            shares[tool.name] = None if reads is None else reads / (count + WARMUP_CALLS)
    return [
        CallRow(
            tool.name,
            wall[tool.name],
            cpu[tool.name],
            ratios(wall[tool.name], wall[BARE]),
            [round(value - base, 3) for value, base in zip(cpu[tool.name], cpu[BARE], strict=True)],
            shares[tool.name],
            runner.recorded[tool.name],
        )
        for tool in tools
    ]


def measure_recipe(recipe: str, tools: Sequence[Tool], runner: Runner, rounds: int, *, quick: bool) -> list[RunRow]:
    data = runner.folder / "data"
    words = [f"recipe={recipe}", f"dataset.root={data}", *COMMON, *(() if quick else RECIPES[recipe])]
    python = [sys.executable, "-m", "dlio_torch"]
    runner.run(tools[0], [*python, "generate", *words], data)
    steps: dict[str, list[float]] = {tool.name: [] for tool in tools}
    whole: dict[str, list[float]] = {tool.name: [] for tool in tools}
    cpu: dict[str, list[float]] = {tool.name: [] for tool in tools}
    for turn in range(rounds):
        for tool in rotated(tools, turn):
            _, seconds, processors = runner.run(tool, [*python, "train", *words], data)
            summary = json.loads((runner.folder / "run" / "summary.json").read_text(encoding="utf-8"))
            shutil.rmtree(runner.folder / "run")
            steps[tool.name].append(float(summary["train"]["elapsed_s"]))
            whole[tool.name].append(round(seconds, 4))
            cpu[tool.name].append(round(processors, 4))
    return [
        RunRow(
            recipe,
            tool.name,
            steps[tool.name],
            whole[tool.name],
            cpu[tool.name],
            ratios(steps[tool.name], steps[BARE]),
            ratios(whole[tool.name], whole[BARE]),
            ratios(cpu[tool.name], cpu[BARE]),
            runner.reads[tool.name],
            runner.recorded[tool.name],
        )
        for tool in tools
    ]


def spread(values: Sequence[float], digits: int) -> str:
    """Median, least and largest."""
    return f"{statistics.median(values):.{digits}f} [{min(values):.{digits}f}, {max(values):.{digits}f}]"


def print_tables(calls: Sequence[CallRow], runs: Sequence[RunRow], missing: Mapping[str, str]) -> None:
    print("| tool | ns per 4 KiB pread | ratio | processor ns | added processor ns | reads recorded | log |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for row in calls:
        share = "-" if row.share is None else f"{row.share:.1%}"
        print(
            f"| {row.tool} | {spread(row.ns_per_call, 0)} | {spread(row.ratios, 2)} "
            f"| {spread(row.cpu_ns_per_call, 0)} | {spread(row.added_cpu_ns, 0)} | {share} "
            f"| {format_size(row.recorded_bytes)} |"
        )
    print(
        "\n| recipe | tool | measured steps (s) | ratio | ratio of the command | of its processor time | reads | log |"
    )
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for run in runs:
        print(
            f"| {run.recipe} | {run.tool} | {spread(run.steps_s, 3)} | {spread(run.steps_ratios, 3)} "
            f"| {spread(run.command_ratios, 3)} | {spread(run.cpu_ratios, 3)} "
            f"| {'-' if run.reads is None else run.reads} "
            f"| {format_size(run.recorded_bytes)} |"
        )
    for name, how in missing.items():
        print(f"\n{name}: not installed; {how}.")


def main() -> None:
    parser = argparse.ArgumentParser(description="What recording costs the program that is recorded.")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write all figures here")
    parser.add_argument("--quick", action="store_true", help="few and short runs, for a look only")
    parser.add_argument("--rounds", type=int, help="runs of each recipe under each tool (7)")
    parser.add_argument("--recipe", action="append", choices=list(RECIPES), help="this recipe only; may be repeated")
    parser.add_argument("--directory", type=Path, help="folder on the file system to be used")
    parser.add_argument("--dftracer", metavar="LIB", type=Path, help="libdftracer_preload.so")
    parser.add_argument("--darshan", metavar="LIB", type=Path, help="libdarshan.so")
    arguments = parser.parse_args()
    tools, missing = find_tools(arguments.dftracer, arguments.darshan)
    rounds = arguments.rounds or (1 if arguments.quick else 7)
    with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        runner = Runner(Path(folder).resolve())
        calls = measure_calls(tools, runner, 2 * rounds, 10_000 if arguments.quick else 500_000)
        runs = [
            row
            for recipe in arguments.recipe or RECIPES
            for row in measure_recipe(recipe, tools, runner, rounds, quick=arguments.quick)
        ]
    cores = len(os.sched_getaffinity(0))
    kernel, python = platform.release(), platform.python_version()
    print(f"{cores} cores, kernel {kernel}, Python {python}, load {os.getloadavg()[0]:.1f}, {rounds} rounds\n")
    print_tables(calls, runs, missing)
    if arguments.json:
        record = {
            "cores": cores,
            "kernel": kernel,
            "python": python,
            "calls": [asdict(row) for row in calls],
            "runs": [asdict(row) for row in runs],
            "missing": missing,
        }
        arguments.json.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
