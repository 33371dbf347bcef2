"""The verb predict: simulates a measured run with more ranks on a described system."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from dlio_torch.commands.command_line import Command
from dlio_torch.commands.common import as_json
from dlio_torch.config.arguments import split_argument
from dlio_torch.config.compose import Composed
from dlio_torch.dist.launcher import Launch
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.study.axes import expand
from dlio_torch.study.verb_keys import KEYS

if TYPE_CHECKING:
    from dlio_torch.config.schema import Config
    from dlio_torch.prediction.rank_workload import RankWorkload

_VERB = "predict"
_RANKS = "1..1024:x2"
_LONGEST = 2**53
_PLAIN = "self_test"  # a recipe that describes no system


def main(command: Command, launch: Launch) -> int:
    """Simulate and print on the first rank; returns the exit code.

    Raises:
        DlioError: a mistake in the arguments, a run or recording that lacks what is needed, or SimPy is missing.
    """
    if launch.rank != 0:
        return 0
    if len(command.words) != 1:
        raise ConfigError(
            f"{_VERB}: {' '.join(command.words) or 'nothing'} (command line): exactly one run is needed",
            hint=f"name one run directory: {_VERB} runs/<recipe>/<time> system=theta",
        )
    verb_keys = {key: value for key, value in map(split_argument, command.settings) if key in KEYS[_VERB]}
    ranks = _ranks(verb_keys.get("ranks", _RANKS))
    cached = _share(verb_keys.get("cached", "0"))
    files, samples = (_count(key, verb_keys[key]) if key in verb_keys else None for key in ("files", "samples"))
    run = RunDir.open(command.words[0])
    is_program = run.command.exists() and not run.config.exists()
    composed_run = _composed(run, command.settings, is_program)

    from dlio_torch.prediction.assumptions import assumptions
    from dlio_torch.prediction.project import Question, checked, project, require_simulator
    from dlio_torch.report.prediction_text import print_prediction, to_json

    require_simulator()
    workload = _of_program(run) if is_program else _of_run(run, composed_run.config)
    question = Question(ranks, cached, files, samples, composed_run.config.seed)
    system = composed_run.config.system
    rows = project(workload, system, question)
    statements = assumptions(workload, system, question, composed_run.sources, checked(workload, question.seed))
    if "--json" in command.flags:
        print(as_json(to_json(str(run.path), system.name, rows, statements, workload.measured)), end="")
    else:
        name = "recorded program" if is_program else composed_run.config.recipe
        print_prediction(f"{name}, {run.path}, on {system.name}", rows, statements, sys.stdout)
    return 0


def _of_run(run: RunDir, config: Config) -> RankWorkload:
    from dlio_torch.analysis.run_recording import open_recording
    from dlio_torch.prediction.rank_workload import workload_of
    from dlio_torch.train.steps import read_steps

    summary = run.read_json(run.summary)
    try:
        return workload_of(config, summary, open_recording(run.path), read_steps(run.steps()))
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise DataError(
            f"{run.summary} lacks a figure, or holds a figure that no run writes: {error}",
            hint="repeat the run with this version of dlio_torch",
        ) from error


def _of_program(run: RunDir) -> RankWorkload:
    from dlio_torch.analysis.run_recording import open_recording
    from dlio_torch.prediction.recorded_workload import recorded_workload

    return recorded_workload(open_recording(run.path))


def _composed(run: RunDir, settings: tuple[str, ...], is_program: bool) -> Composed:
    """Composes the run's configuration with the requested system; a recorded program has none but the system."""
    from dlio_torch.config.compose import compose
    from dlio_torch.formats.core.registry import available

    others = [setting for setting in settings if split_argument(setting)[0] not in KEYS[_VERB]]
    for setting in others:
        key = split_argument(setting)[0]
        if key != "system" and not key.startswith("system."):
            raise ConfigError(
                f"{setting} (command line): {_VERB} changes only the system and the ranks of a run",
                hint=f"use system=NAME, system.<option>=<value>, or one of the keys {', '.join(KEYS[_VERB])}",
            )
    if is_program:
        return compose([f"recipe={_PLAIN}", *others], formats=available())
    if not run.config.exists():
        raise DataError(
            f"{run.path} is not a run directory: the file {run.config.name} is missing",
            hint="name the directory of a finished run, runs/<recipe>/<time>, or a recording of the verb trace",
        )
    composed_run = compose([f"recipe={run.config}", *others], formats=available())
    return replace(composed_run, sources=_first_sources(run, composed_run.sources))


def _first_sources(run: RunDir, sources: Mapping[str, str]) -> dict[str, str]:
    """Sources of all values; of a value that the run had, the source that the run noted and not its ``config.yaml``."""
    from dlio_torch.config.resources import read_document

    noted = read_document(run.sources, str(run.path), str(run.sources)).tree if run.sources.is_file() else {}
    return {
        key: str(noted.get(key, source)) if source.startswith(f"{run.config}:") else source
        for key, source in sources.items()
    }


def _ranks(text: str) -> list[int]:
    from dlio_torch.prediction.project import MOST_RANKS

    numbers = [_count("ranks", value) for value in expand("ranks", text)]
    if max(numbers) > MOST_RANKS:
        raise ConfigError(
            f"ranks={text} (command line): predict simulates at most {MOST_RANKS} ranks",
            hint="give smaller numbers of ranks",
        )
    return numbers


def _count(key: str, value: str) -> int:
    if not (value.isascii() and value.isdecimal() and 0 < int(value[:20]) < _LONGEST):
        raise ConfigError(
            f"{key}={value} (command line): the value is not a whole number of 1 or more",
            hint=f"write a number, for example {key}=64",
        )
    return int(value)


def _share(value: str) -> float:
    try:
        share = float(value)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ConfigError(
            f"cached={value} (command line): the value is not a share from 0 to 1",
            hint="write a share, for example cached=0.5",
        )
    return share
