"""Measures the overhead of a trial of a study over the training that it measures, started fresh and warm.

Both starts run the same command line on the same data, in turns.  The cost of a trial is the time from its start to its
end less that of its training (``train.elapsed_s``); the ratio compares a fresh trial with the warm one of its round.
The first warm trial tells the server what else to import, and is not among the rounds: it has a column of its own,
with the start of the server.  Rates show whether both starts measure the same.
"""

from __future__ import annotations

import json
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

from benchmarks.harness.command import alone
from benchmarks.harness.rounds import Figures, Unavailable, interleave, rounds_of, say
from benchmarks.harness.tables import Missing, Part, Row, Table
from dlio_torch.study.warm_start import WarmStart
from dlio_torch.supervision.run_process import emulator, run_process

NAME = "trial_cost"
STARTS = ("fresh", "warm")
_TIMEOUT_S = 600.0


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--recipes", metavar="NAME,...", default="minimal,cosmic_tagger", help=("recipe to run at scale=tiny")
    )


def run(arguments: Namespace) -> Iterator[Part]:
    recipes = arguments.recipes.split(",")
    for recipe in recipes[:1] if arguments.quick else recipes:
        say(recipe)
        with tempfile.TemporaryDirectory(dir=arguments.directory) as folder, WarmStart() as warm:
            trials = Trials(recipe, Path(folder), warm)
            trials.run("fresh")  # writes the data, measures the limits of the storage
            began = time.monotonic()
            trials.run("warm")
            first_s = time.monotonic() - began
            rounds = interleave({start: partial(trials.run, start) for start in STARTS}, rounds_of(arguments))
        yield from (Missing(start, why, recipe) for start, why in rounds.dropped.items())
        rows: list[Row] = [
            {
                "recipe": recipe,
                "start": start,
                "trial (s)": rounds.spread(start, "wall_s"),
                "training (s)": rounds.spread(start, "training_s"),
                "cost (s)": rounds.spread(start, "cost_s"),
                "cost of a fresh trial over it": rounds.ratio("fresh", "cost_s", start),
                "rate over a fresh trial's": rounds.ratio(start, "rate", "fresh"),
                "first trial (s)": first_s if start == "warm" else None,
            }
            for start in rounds.figures
        ]
        yield Table(NAME, rows, "Trials one after another, as a study runs them.")


class Trials:
    """Trials of a recipe.

    Args:
        recipe: its name; it runs at ``scale=tiny``.
        folder: where data and runs go.
        warm: starts the warm ones.
    """

    def __init__(self, recipe: str, folder: Path, warm: WarmStart) -> None:
        self._settings = [f"recipe={recipe}", "scale=tiny", f"dataset.root={folder / 'data'}", "output.progress=false"]
        self._folder = folder
        self._warm = warm
        self._numbers = count(1)

    def run(self, start: str) -> Figures:
        """Runs one trial, started ``fresh`` or ``warm``.

        Raises:
            Unavailable: it failed, or cannot be started so.
        """
        directory = self._folder / f"{next(self._numbers)}"
        arguments, log = ["run", *self._settings, f"output.dir={directory}"], self._folder / f"{directory.name}.log"
        if start == "warm":
            ended = self._warm.run(arguments, log, timeout_s=_TIMEOUT_S)
        else:
            ended = run_process(emulator(arguments), log, timeout_s=_TIMEOUT_S)
        if ended is None:
            raise Unavailable("no trial server can fork trials here")
        if ended.exit_code:
            raise Unavailable(ended.error)
        training = json.loads((directory / "summary.json").read_text(encoding="utf-8"))["train"]
        elapsed_s = training["elapsed_s"]
        return {
            "wall_s": ended.wall_s,
            "training_s": elapsed_s,
            "cost_s": ended.wall_s - elapsed_s,
            "rate": training["samples_per_s"],
        }


if __name__ == "__main__":
    alone(NAME)
