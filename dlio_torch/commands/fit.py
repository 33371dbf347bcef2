"""The verb fit: turns the recording of a training into a recipe, and says how alike its run and the recording are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dlio_torch.commands.command_line import Command
from dlio_torch.commands.common import as_json, refuse_launcher
from dlio_torch.dist.launcher import Launch
from dlio_torch.errors import ConfigError

if TYPE_CHECKING:
    from dlio_torch.fit.fit_recording import FittedTraining
    from dlio_torch.fit.recorded_training import RecordedTraining
    from dlio_torch.iotrace.events.recording import Recording


def main(command: Command, launch: Launch) -> int:
    """Write the recipe, run it, and print the score; returns the exit code.

    Raises:
        DlioError: a mistake in the arguments, a recording that no recipe follows from, or a recipe that cannot be run.
    """
    refuse_launcher(command, launch)
    recording, output = _paths(command)

    from dlio_torch.files.atomic_file import replace_text
    from dlio_torch.fit.fit_evidence import evidence
    from dlio_torch.fit.fit_recording import fit_training
    from dlio_torch.fit.fit_text import print_fit
    from dlio_torch.fit.recipe_text import recipe_text
    from dlio_torch.fit.recorded_training import read_training
    from dlio_torch.fit.result_folder import ResultFolder
    from dlio_torch.fit.score import run_recipe, score, without_compute
    from dlio_torch.formats.core.recorded_samples import write_recorded_samples

    training = read_training(recording)
    reruns = [read_training(path) for path in _reruns(command)]
    fitted = fit_training(training)
    folder = ResultFolder.create(output, force="--force" in command.flags)
    replace_text(folder.recipe, recipe_text(fitted.findings, f"Written by `fit` from the recording {recording}."))
    if fitted.data.replayed is not None:
        write_recorded_samples(fitted.data.replayed, folder.requests)
    result = evidence(training, fitted)
    folder.write_json(folder.evidence, result)
    scored = None
    if "--no-score" not in command.flags:
        if "--quiet" not in command.flags:
            print("running the recipe to compare it with the recording", file=sys.stderr, flush=True)
        emulation = run_recipe(folder, fitted.ranks, *without_compute(training.recording))
        reproduced = [_reproduced(training, fitted), *(_reproduced(rerun, fit_training(rerun)) for rerun in reruns)]
        scored = score(reproduced[0], emulation, reproduced[1:])
        folder.write_json(folder.score, {**scored.to_json(), "unexplained": result["unexplained"]})
    if "--json" in command.flags:
        figures = None if scored is None else {**scored.to_json(), "unexplained": result["unexplained"]}
        print(as_json({"recipe": str(folder.recipe), "evidence": result, "score": figures}), end="")
    else:
        print_fit(folder.recipe, fitted, scored, sys.stdout)
    return 0


def _reproduced(training: RecordedTraining, fitted: FittedTraining) -> Recording:
    from dlio_torch.fit.score import reproduced_part

    return reproduced_part(training.recording, fitted.findings.files)


def _paths(command: Command) -> tuple[Path, Path]:
    """The recording and the folder of the result.

    Raises:
        ConfigError: one of them is not given.
    """
    if len(command.words) != 1 or command.settings:
        raise ConfigError(
            f"fit: {' '.join((*command.words, *command.settings)) or 'nothing'} (command line): exactly one recording "
            "is needed",
            hint="name a folder written by trace, or a log: fit REC --output mine",
        )
    output = command.value("--output")
    if output is None:
        raise ConfigError(
            "fit (command line): no folder for the recipe is given", hint=f"fit {command.words[0]} --output mine"
        )
    return Path(command.words[0]), Path(output)


def _reruns(command: Command) -> list[Path]:
    return [Path(path) for path in command.all_values("--rerun")]
