"""Checks that two checkouts behave alike: order of samples, bytes of the data, keys of the summary, calls on files.

Each recipe runs at ``scale=tiny`` by the command line of both checkouts, with the workers and ranks that are asked for,
each into folders of its own.  Compared are

========  ===========================================================================================================
order     CRC of the sample numbers of each epoch
data      SHA-256 of every generated file
summary   keys of ``summary.json``, of nested objects too
calls     operation, file, offset and bytes of each recorded call on data and checkpoints: in their order where one
          thread of a process makes them, else as a multiset for each rank and role (trainer, worker)
========  ===========================================================================================================

Where something differs, both checkouts run once more: what differs between two runs of the same code is named
``varies``, and is no difference between the two.  Advice is left out of the summary: it depends on the times of a run.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.harness.command import alone
from benchmarks.harness.tables import Missing, Part, Table
from dlio_torch.iotrace.events.event_table import read_events

NAME = "same_behaviour"
PARTS = ("order", "data", "summary", "calls")
_ROOT = Path(__file__).parent.parent
_TIME = re.compile(r"\d{8}-\d{6}(-\d+)?")
_RANK = re.compile(r"^rank \d+ failed: ")  # a rank may be the first to hear of another's error
_LIMIT_S = 600
_LOADER = "loader.num_workers"

Calls = Mapping[str, list[tuple[Any, ...]] | Counter[tuple[Any, ...]]]


@dataclass(frozen=True)
class Way:
    """A variant of a run.

    Attributes:
        recipe: its name.
        workers: ``loader.num_workers``.
        ranks: processes; more than one are started by torchrun.
    """

    recipe: str
    workers: int
    ranks: int


@dataclass(frozen=True)
class Outcome:
    """The files and messages that a run left.

    Attributes:
        refusal: the line of the error with which it ended; empty: it did not.
        parts: by the names of :data:`PARTS`.
    """

    refusal: str
    parts: Mapping[str, Any]


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help="checkout with the expected behaviour")
    parser.add_argument("--after", type=Path, metavar="CHECKOUT", default=_ROOT, help="checkout under test")
    parser.add_argument("--recipes", metavar="A,B", help="names of the variants; all by default")
    parser.add_argument("--workers", metavar="N,N", default="0,2", help="number of loader workers per rank")
    parser.add_argument("--ranks", metavar="N,N", default="1,2", help="number of ranks of a run")


def run(arguments: Namespace) -> Iterator[Part]:
    if arguments.before is None:
        yield Missing("two checkouts are needed", "set --before to the other checkout")
        return
    names = (
        arguments.recipes.split(",")
        if arguments.recipes
        else sorted(x.stem for x in (_ROOT / "recipes").glob("*.yaml") if x.stem != "custom")
    )
    workers, ranks = (tuple(map(int, text.split(","))) for text in (arguments.workers, arguments.ranks))
    ways = [Way(*one) for one in product(names[:1] if arguments.quick else names, workers, ranks)]
    for way in ways:
        with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
            yield Table(
                "runs", [_row(way, arguments.before.resolve(), arguments.after.resolve(), Path(folder))], _TITLE
            )


_TITLE = "`same`, `differs`, or `varies`: two runs of the same checkout differ, too."


def _row(way: Way, before: Path, after: Path, folder: Path) -> dict[str, str | int]:
    first, second = (outcome(way, checkout, folder / name) for checkout, name in ((before, "before"), (after, "after")))
    row: dict[str, str | int] = {"recipe": way.recipe, "workers": way.workers, "ranks": way.ranks}
    wrong = different(first, second)
    again: dict[str, str] = {}
    for known, checkout in ((first, before), (second, after)) if wrong else ():
        again |= different(known, outcome(way, checkout, folder / f"again-{len(list(folder.iterdir()))}"))
    row |= {name: "varies" if name in again else "differs" if name in wrong else "same" for name in PARTS}
    notes = [text for name, text in wrong.items() if name not in again] or ([first.refusal] if first.refusal else [])
    return {**row, "note": "; ".join(notes)}


def outcome(way: Way, checkout: Path, folder: Path) -> Outcome:
    """Runs a checkout's command line in an empty folder.

    Args:
        way: what is run.
        checkout: whose code.
        folder: gets data and results.

    Raises:
        RuntimeError: it ended as no run should.
    """
    folder.mkdir()
    options = [
        f"recipe={way.recipe}",
        "scale=tiny",
        f"{_LOADER}={way.workers}",
        "cache=as_is",  # what older checkouts do by default
        "trace.posix=true",
        "generate.checksum=true",
        "output.progress=false",
    ]
    launcher = ["-m", "torch.distributed.run", f"--nproc-per-node={way.ranks}"] if way.ranks > 1 else []
    environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launcher, "-m", "dlio_torch", *options]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=_LIMIT_S
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "dlio_torch: error: " in line]
        if not lines:
            raise RuntimeError(f"{way}: {checkout} ended with {done.returncode}\n{done.stderr[-2000:]}")
        return Outcome(_RANK.sub("", lines[0].partition("error: ")[2]), {})
    (results,) = (folder / "runs").glob("*/*/summary.json")
    return left_behind(results.parent, folder)


def left_behind(directory: Path, folder: Path) -> Outcome:
    """Content of a run directory and of its data, for the comparison.

    Args:
        directory: of the run.
        folder: in which the run and its data lie.
    """
    summary = json.loads((directory / "summary.json").read_text(encoding="utf-8"))
    data = {
        str(path.relative_to(folder)): sorted(path.read_text(encoding="utf-8").splitlines())
        for path in sorted(folder.rglob("dlio_torch.sha256"))
    }
    order, keys = summary["order"], _keys({key: value for key, value in summary.items() if key != "advice"})
    return Outcome("", {"order": order, "data": data, "summary": keys, "calls": _calls(directory, folder)})


def _keys(value: Any, prefix: str = "") -> list[str]:
    """Dotted keys of objects; those of the objects of a list count once."""
    if isinstance(value, list):
        return sorted({key for item in value for key in _keys(item, f"{prefix}[]")})
    if not isinstance(value, dict):
        return [prefix]
    return sorted(key for name, item in value.items() for key in _keys(item, f"{prefix}.{name}" if prefix else name))


def _calls(directory: Path, folder: Path) -> Calls:
    """Calls on data and checkpoints, by rank and role; a list if their order is deterministic."""
    table = read_events(directory / "events")
    roles = {(process.rank, process.pid): process.role for process in table.processes}
    frame = table.frame[table.frame["layer"] != "app"]
    frame = frame[frame["file"].astype(str).str.startswith(f"{folder}{os.sep}")]
    found: dict[str, list[tuple[Any, ...]]] = {}
    threads: dict[str, set[tuple[int, int]]] = {}
    for row in frame.sort_values(["start_ns", "end_ns"], kind="stable").itertuples():
        name = _TIME.sub("TIME", os.path.relpath(str(row.file), folder))
        if name.startswith("runs") and "checkpoint" not in name:
            continue  # the run's own records
        who = f"rank {row.rank} {roles.get((row.rank, row.pid), 'other')}"
        found.setdefault(who, []).append((str(row.op), name, int(row.offset), int(row.bytes)))
        threads.setdefault(who, set()).add((row.pid, row.tid))
    return {who: calls if len(threads[who]) == 1 else Counter(calls) for who, calls in found.items()}


def different(one: Outcome, other: Outcome) -> dict[str, str]:
    """Differences between two outcomes: the name of the part, and a description."""
    if one.refusal or other.refusal:
        same = _TIME.sub("TIME", one.refusal) == _TIME.sub("TIME", other.refusal)
        return {} if same else dict.fromkeys(PARTS, f"{one.refusal or 'no refusal'} / {other.refusal or 'no refusal'}")
    found = {}
    for name in PARTS:
        if one.parts[name] != other.parts[name]:
            found[name] = f"{name}: {_first(one.parts[name], other.parts[name])}"
    return found


def _first(one: Any, other: Any) -> str:
    """The first difference, in a few words."""
    if isinstance(one, Counter) and isinstance(other, Counter):
        gone, new = one - other, other - one
        return f"{gone.total()} less, {new.total()} more, as {next(iter((gone or new).items()))}"
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            if one.get(key) != other.get(key):
                return f"{key}: {_first(one.get(key), other.get(key))}"
    if isinstance(one, list) and isinstance(other, list):
        for number, pair in enumerate(zip(one, other, strict=False)):
            if pair[0] != pair[1]:
                return f"at {number} of {len(one)} and {len(other)}: {pair[0]} / {pair[1]}"
        return f"{len(one)} / {len(other)} of them"
    return f"{one} / {other}"


if __name__ == "__main__":
    alone(NAME)
