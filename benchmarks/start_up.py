"""Measures the start at the published size: time to the first batch and memory of one rank of many, and their growth.

Every rank is a process of its own and is alone: it makes the calls of a training up to its first batch, with the
number and the world size that it would have (:mod:`benchmarks.starting`).  All files of the published data set exist
by name; one of each kind is real, and the others are links to it.

``recipes``: the published number of ranks and 8,192, the first, a middle and the last of them.  Where a recipe has too
few files or samples for so many, the tool's own refusal is given.  ``share`` are the samples that the rank reads in an
epoch; ``index`` is what it keeps to know which these are and where they lie.  Memory is the rank's own (anonymous,
without its workers); samples that the first batch needs are part of what it grows by.

``growth``: the index alone while everything grows but the rank's own share, and straight lines through that.

``results``: rank 0 at the end, when the results of all ranks have come.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness.command import alone
from benchmarks.harness.rounds import say
from benchmarks.harness.tables import Missing, Part, Row, Table
from benchmarks.starting import growth
from benchmarks.starting.data import SMALLER, arguments, make

NAME = "start_up"
RANKS = 8192
STEPS = 200
_RECIPES = Path(__file__).parents[1] / "recipes"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--recipes", metavar="NAME,...", default="", help="run only these recipes; - for none")
    parser.add_argument(
        "--ranks",
        type=int,
        default=RANKS,
        help=("numbers of ranks, in addition to the published number of each recipe"),
    )


def run(arguments: Namespace) -> Iterator[Part]:
    names = sorted(path.stem for path in _RECIPES.glob("*.yaml") if path.stem != "custom")  # it needs data
    names = ["minimal"] if arguments.quick else names
    if arguments.recipes:
        names = [name for name in arguments.recipes.split(",") if name != "-"]
    for name in names:
        with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
            yield from _recipe(name, Path(folder), arguments.ranks)
    yield from _growth(quick=arguments.quick)
    with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        counts = (8,) if arguments.quick else (arguments.ranks // 8, arguments.ranks)
        yield Table(
            "results",
            [_results(ranks, Path(folder)) for ranks in counts],
            ("Time and memory of rank 0 for the results of all ranks."),
        )


def _recipe(name: str, folder: Path, many: int) -> Iterator[Part]:
    say(name)
    config = make(name, folder / "data")
    if name in SMALLER:
        yield Missing(f"{name} as published", f"smaller here: {SMALLER[name].why}", "recipes")
    for world_size in dict.fromkeys((config.system.world_size, many)):
        for rank in sorted({0, world_size // 2, world_size - 1}):
            found = start(name, folder, rank, world_size)
            if "error" in found:
                yield Missing(f"{name} on {world_size:,} ranks", found["error"], "recipes")
                break
            yield Table(
                "recipes", [_row(name, rank, world_size, found)], ("Time and memory of one rank up to its first batch.")
            )


def start(name: str, folder: Path, rank: int, world_size: int) -> dict[str, Any]:
    """Figures of one rank of a recipe whose data lie below ``folder``; rank 0 is started first."""
    out = folder / "found.json"
    words = [str(time.perf_counter_ns()), str(rank), str(world_size), str(folder / f"sent{world_size}"), str(out)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.starting.rank", *words, *arguments(name, folder / "data")],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{name}, rank {rank} of {world_size}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


def _row(name: str, rank: int, world_size: int, of: dict[str, Any]) -> Row:
    rest = of["cache_s"] + of["plan_s"] + of["first_s"] - of["index_s"]
    return {
        "recipe": name,
        "ranks": world_size,
        "rank": rank,
        "samples": of["samples"],
        "files": of["files"],
        "share": of["share"],
        "import (s)": of["import_s"],
        "compose, manifest (s)": of["compose_s"] + of["data_s"],
        "plan, order (s)": of["index_s"],
        "open, read (s)": max(0.0, rest),
        "first batch (s)": of["total_s"],
        "after imports (MB)": of["import_rss"] * 1e-6,
        "growth (MB)": (of["first_rss"] - of["import_rss"]) * 1e-6,
        "peak (MB)": of["peak"] * 1e-6,
        "batch (MB)": of["batch_bytes"] * 1e-6,
        "index (KiB)": of["index_bytes"] / 1024,
        "index at the most (KiB)": of["index_peak_bytes"] / 1024,
        "index (bytes a sample of the share)": of["index_bytes"] / of["share"],
        "from rank 0 (KiB)": of["received_bytes"] / 1024,
    }


def _growth(*, quick: bool) -> Iterator[Part]:
    say("growth")
    powers = (18, 19) if quick else (18, 20, 22, 24, 26, 28)
    found: list[Row] = []
    sweeps = {
        "ranks": (growth.with_ranks(8 if quick else RANKS), tuple(growth.KINDS)),
        "samples": (growth.with_samples(powers), growth.BY_SAMPLES),
    }
    for sweep, (points, kinds) in sweeps.items():
        some = list(growth.rows(sweep, points, kinds))
        found += some
        yield Table(
            "growth", some, (f"Size of the index of the last rank; its share is {growth.SHARE} samples in every row.")
        )
    yield Table(
        "fits",
        list(growth.fits(found)),
        ("Growth of the index per additional sample, file or rank, by straight lines through the points."),
    )


def _results(ranks: int, folder: Path) -> Row:
    say(f"results of {ranks} ranks")
    words = [sys.executable, "-m", "benchmarks.starting.results", str(ranks), str(STEPS), str(folder)]
    of = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    return {
        "ranks": ranks,
        "steps": STEPS,
        "from each (KiB)": of["sent_bytes"] / 1024,
        "gathered (MB)": of["gathered_bytes"] * 1e-6,
        "peak (MB)": of["peak_bytes"] * 1e-6,
        "gather (s)": of["gather_s"],
        "add up (s)": of["collect_s"],
        "write (s)": of["write_s"],
    }


if __name__ == "__main__":
    alone(NAME)
