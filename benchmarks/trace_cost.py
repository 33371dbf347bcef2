"""Measures the cost of recording for the recorded program.

Three questions, three tables:

1. A native loop of 4 KiB preads of a cached file: nanoseconds per call, and what each tool adds.
2. Three recipes at ``scale=tiny`` without emulated compute: the time of the measured steps, and of the
   whole command with all processes, which includes the start of Python and torch.

3. A program whose ``DataLoader`` reads cached samples of 100 KB: what recording its calls adds, and what the import
   hook adds, which records samples, batches and indices; per sample and as a share of the program's time.

Time is on the wall, and of processors, which other work on the machine disturbs less; in the first table
strace's own processor time is not part of it.

Tools: the interposer of this package, strace, Darshan with extended tracing, DFTracer with metadata of
each call; each limited to the data's folder where it can be.  What is not installed is listed with how to
get it.  Ratios are to the bare run of the same round.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import starmap
from pathlib import Path

from benchmarks.harness.command import alone
from benchmarks.harness.rounds import Figures, interleave, rounds_of, say
from benchmarks.harness.tables import Missing, Part, Row, Spread, Table
from benchmarks.loader_program import SAMPLE_BYTES
from benchmarks.pread_loop import CALL_BYTES, WARMUP_CALLS, compile_loop
from benchmarks.trace_tools import BARE, Tool, find_tools
from dlio_torch.iotrace.recorder import preload
from dlio_torch.native.build import find_compiler

NAME = "trace_cost"
ROOT = Path(__file__).resolve().parents[1]
FILE_BYTES = 1 << 20
RECIPES = {
    "minimal": ("train.epochs=120",),
    "cosmic_tagger": ("scale.max_steps=100", "train.epochs=1", "train.eval_every_steps=0"),
    "resnet50": ("train.epochs=30",),
}
"""Recipes, and what makes their measured steps take about a second."""

PROGRAM = Path(__file__).parent / "loader_program.py"
SAMPLES, BATCH, EPOCHS = 200, 20, 20
COMMON = ("scale=tiny", "cache=as_is", "compute.mode=none", "checkpoint=none", "output.dir=run")


def children_cpu_s() -> float:
    """Processor time of all children and their descendants until now, s."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Runner:
    """Runs commands under recording tools, in a new folder."""

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


def measure_calls(tools: Sequence[Tool], runner: Runner, rounds: int, calls: int) -> list[Row]:
    data = runner.folder / "data"
    data.mkdir(exist_ok=True)
    path = data / "blocks"
    path.write_bytes(os.urandom(FILE_BYTES))
    program = compile_loop(runner.folder)
    shares: dict[str, float | None] = {}

    def loop(tool: Tool) -> Figures:
        count = calls // 10 if tool.slow else calls
        output, _, _ = runner.run(tool, [program, path, str(count), str(FILE_BYTES // CALL_BYTES)], data)
        reads = runner.reads[tool.name]
        shares[tool.name] = None if reads is None else reads / (count + WARMUP_CALLS)
        wall, processor = map(float, output.split())
        return {"ns": wall, "cpu_ns": processor}

    found = interleave({tool.name: partial(loop, tool) for tool in tools}, rounds, warmups=0)
    bare = found.values(BARE, "cpu_ns")
    return [
        {
            "tool": name,
            "ns per 4 KiB pread": found.spread(name, "ns"),
            "ratio": found.ratio(name, "ns", BARE),
            "processor ns": found.spread(name, "cpu_ns"),
            "added processor ns": Spread.of(
                one - base for one, base in zip(found.values(name, "cpu_ns"), bare, strict=True)
            ),
            "share of reads recorded": shares[name],
            "log (bytes)": runner.recorded[name],
        }
        for name in found.figures
    ]


def measure_recipe(recipe: str, tools: Sequence[Tool], runner: Runner, rounds: int, *, quick: bool) -> list[Row]:
    data = runner.folder / "data"
    words = [f"recipe={recipe}", f"dataset.root={data}", *COMMON, *(() if quick else RECIPES[recipe])]
    python = [sys.executable, "-m", "dlio_torch"]
    runner.run(tools[0], [*python, "generate", *words], data)

    def train(tool: Tool) -> Figures:
        _, seconds, processors = runner.run(tool, [*python, "train", *words], data)
        summary = json.loads((runner.folder / "run" / "summary.json").read_text(encoding="utf-8"))
        shutil.rmtree(runner.folder / "run")
        return {"steps_s": float(summary["train"]["elapsed_s"]), "command_s": seconds, "cpu_s": processors}

    found = interleave({tool.name: partial(train, tool) for tool in tools}, rounds, warmups=0)
    return [
        {
            "recipe": recipe,
            "tool": name,
            "measured steps (s)": found.spread(name, "steps_s"),
            "ratio": found.ratio(name, "steps_s", BARE),
            "ratio of the command": found.ratio(name, "command_s", BARE),
            "of its processor time": found.ratio(name, "cpu_s", BARE),
            "reads": runner.reads[name],
            "log (bytes)": runner.recorded[name],
        }
        for name in found.figures
    ]


def measure_loader(workers: int, runner: Runner, rounds: int, *, quick: bool) -> list[Row]:
    """Times of a program with a fast loader: bare, with its calls recorded, and with its loader recorded, too."""
    data = runner.folder / "samples"
    data.mkdir(exist_ok=True)
    for number in range(SAMPLES):
        (data / f"{number}.bin").write_bytes(os.urandom(SAMPLE_BYTES))
    epochs = 1 if quick else EPOCHS
    tools = [
        Tool(BARE),
        Tool("calls", variables=lambda folder, place: preload.environment(folder, include=[str(place)])),
        Tool(
            "calls and loader",
            variables=lambda folder, place: preload.environment(folder, include=[str(place)], hook=preload.HOOK),
        ),
    ]

    def load(tool: Tool) -> Figures:
        command = [sys.executable, PROGRAM, data, *map(str, (SAMPLES, BATCH, epochs, workers))]
        output, _, _ = runner.run(tool, command, data)
        wall, processor = (float(text) / (epochs * SAMPLES) * 1e6 for text in output.split())
        return {"us": wall, "cpu_us": processor}

    measured = interleave({tool.name: partial(load, tool) for tool in tools}, rounds, warmups=0)
    bare = measured.values(BARE, "us")
    return [
        {
            "workers": workers,
            "recorded": name,
            "us per sample": measured.spread(name, "us"),
            "ratio": measured.ratio(name, "us", BARE),
            "added us": Spread.of(us - base for us, base in zip(measured.values(name, "us"), bare, strict=True)),
            "processor us of the main process": measured.spread(name, "cpu_us"),
            "log (bytes)": runner.recorded[name],
        }
        for name in measured.figures
    ]


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--recipe", action="append", choices=list(RECIPES), help=("run only this recipe; may be repeated")
    )
    parser.add_argument("--dftracer", metavar="LIB", type=Path, help="libdftracer_preload.so")
    parser.add_argument("--darshan", metavar="LIB", type=Path, help="libdarshan.so")


def run(arguments: Namespace) -> Iterator[Part]:
    tools, missing = find_tools(arguments.dftracer, arguments.darshan)
    yield from starmap(Missing, missing.items())
    rounds, quick = rounds_of(arguments), arguments.quick
    with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        runner = Runner(Path(folder).resolve())
        if find_compiler() is None:
            yield Missing(
                ("the loop of preads cannot be compiled"), "install a C compiler (cc, gcc or clang), or set CC"
            )
        else:
            yield Table("calls", measure_calls(tools, runner, 2 * rounds, 10_000 if quick else 500_000))
        for workers in (0,) if quick else (0, 2):
            say(f"loader with {workers} workers")
            yield Table("loader", measure_loader(workers, runner, 2 * rounds, quick=quick))
        for recipe in arguments.recipe or list(RECIPES)[: 1 if quick else None]:
            say(recipe)
            yield Table("recipes", measure_recipe(recipe, tools, runner, rounds, quick=quick))


if __name__ == "__main__":
    alone(NAME)
