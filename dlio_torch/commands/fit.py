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
    from dlio_torch.fit.fit_result import FitResult


def main(command: Command, launch: Launch) -> int:
    """Write the recipe, run it, and print the score; returns the exit code.

    Raises:
        DlioError: a mistake in the arguments, a recording that no recipe follows from, or a recipe that cannot be run.
    """
    refuse_launcher(command, launch)
    recording, output = _paths(command)

    from dlio_torch.fit.fit_result import FitRequest, make_result
    from dlio_torch.fit.fit_text import print_fit

    flags = command.flags
    request = FitRequest(
        recording,
        output,
        tuple(Path(path) for path in command.all_values("--rerun")),
        force="--force" in flags,
        scored="--no-score" not in flags,
        anonymised="--anonymise" in flags,
    )
    quiet = "--quiet" in flags
    result = make_result(request, (lambda line: None) if quiet else _say)
    if "--json" in flags:
        print(as_json(_plain(result)), end="")
    else:
        print_fit(result, sys.stdout, short=quiet)
    return 0


def _plain(result: FitResult) -> dict[str, object]:
    return {
        "recipe": str(result.folder.recipe),
        "evidence": result.evidence,
        "score": result.figures,
        "notes": list(result.notes),
    }


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _paths(command: Command) -> tuple[Path, Path]:
    """The recording and the folder of the result.

    Raises:
        ConfigError: one of them is not given, or a second recording is of no use without a score.
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
    if {"--rerun", "--no-score"} <= command.flags:
        raise ConfigError(
            "--rerun (command line): a second recording is used for the score, and --no-score leaves it out",
            hint="keep one of the two",
        )
    return Path(command.words[0]), Path(output)
