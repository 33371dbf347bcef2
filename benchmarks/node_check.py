"""Compares the throughput that the verb node reports for each combination of settings with ordinary runs.

First `node --json` runs once.  Then each of its combinations runs afresh by the verb `run` with the same settings and
twice as many steps, each run in a process of its own, in turns.  The ratio is the throughput that node reports over the
median of these runs; the goal is a difference of at most 10 %.  The load of the machine stands above the table.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.harness.command import alone
from benchmarks.harness.rounds import Figures, Unavailable, interleave, rounds_of, say
from benchmarks.harness.tables import Missing, Part, Row, Table
from dlio_torch.errors import RunFailed
from dlio_torch.node.combinations import KEYS, label
from dlio_torch.supervision.run_process import emulator, environment, run_process

NAME = "node_check"
GOAL = 0.1
_TIMEOUT_S = 600.0
_STEPS = "train.steps="


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--recipe", default="resnet50", help="recipe to measure")
    parser.add_argument("--accelerator", default="", help="variant of the recipe")
    parser.add_argument("--seconds", default="3", help="length of each measurement of node")


def run(arguments: Namespace) -> Iterator[Part]:
    with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
        folder = Path(name)
        record = measured(arguments, folder)
        say(record["verdict"]["sentence"])
        combinations = {_label(item): item for item in record["combinations"]}
        directories = count(1)
        ways = {
            way: partial(trained, item, folder / f"run-{next(directories)}", count(1), record["data"]["steps"])
            for way, item in combinations.items()
            if item["samples_per_s"] is not None
        }
        rounds = interleave(ways, rounds_of(arguments, usual=3), warmups=0)
        yield from (Missing(way, item["why"]) for way, item in combinations.items() if way not in ways)
        yield from (Missing(way, why) for way, why in rounds.dropped.items())
        rows: list[Row] = []
        for way in rounds.figures:
            reported, spread = combinations[way]["samples_per_s"], rounds.spread(way, "samples_per_s")
            ratio = reported / spread.median
            rows.append(
                {
                    "combination": way,
                    "node (samples/s)": reported,
                    "runs (samples/s)": spread,
                    "ratio": ratio,
                    "within 10 %": "yes" if abs(ratio - 1) <= GOAL else "no",
                }
            )
        within = sum(row["within 10 %"] == "yes" for row in rows)
        yield Table(
            NAME, rows, f"{record['recipe']}: {within} of {len(rows)} combinations within 10 %; node took "
            f"{record['elapsed_s']:.0f} s, load {record['load']['before']:.1f} to {record['load']['after']:.1f}.",
        )  # fmt: skip


def measured(arguments: Namespace, folder: Path) -> dict[str, Any]:
    """Runs the verb node; returns its JSON.

    Raises:
        RunFailed: it failed.
    """
    settings = [f"recipe={arguments.recipe}", f"dataset.root={folder / 'data'}", f"output.root={folder / 'runs'}"]
    settings += [f"accelerator={arguments.accelerator}"] if arguments.accelerator else []
    settings += ["scale=tiny"] if arguments.quick else []
    seconds = "0.1" if arguments.quick else arguments.seconds
    command = [sys.executable, "-m", "dlio_torch", "node", *settings, "--json", "--seconds", seconds]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=environment())
    if done.returncode:
        raise RunFailed(f"node failed (exit code {done.returncode})")
    record: dict[str, Any] = json.loads(done.stdout)
    return record


def trained(combination: Mapping[str, Any], folder: Path, numbers: Iterator[int], steps: int) -> Figures:
    """Runs a combination once, with twice the steps of node or as many as the data give.

    Raises:
        Unavailable: it failed.
    """
    directory = folder / f"{next(numbers)}"
    settings = [longer(setting, steps) for setting in combination["settings"]]
    ended = run_process(
        emulator(["run", *settings, f"output.dir={directory}"]), folder.with_suffix(".log"), timeout_s=_TIMEOUT_S
    )
    if ended.exit_code:
        raise Unavailable(ended.error)
    train = json.loads((directory / "summary.json").read_text(encoding="utf-8"))["train"]
    return {"samples_per_s": train["samples_per_s"]}


def longer(setting: str, available: int) -> str:
    """The setting of twice as many steps, at most those that the data give."""
    if not setting.startswith(_STEPS):
        return setting
    return f"{_STEPS}{min(available, 2 * int(setting.removeprefix(_STEPS)))}"


def _label(combination: Mapping[str, Any]) -> str:
    return label(tuple((key, combination[key]) for key in KEYS))


if __name__ == "__main__":
    alone(NAME)
