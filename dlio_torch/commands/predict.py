"""The verb predict: what a measured run would do with more ranks on a described system."""

from __future__ import annotations

import sys

from dlio_torch.commands.arguments import Command
from dlio_torch.commands.common import as_json
from dlio_torch.config.compose import Composed, split_argument
from dlio_torch.dist.launcher import Launch
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.rundir import RunDir
from dlio_torch.sweep.axes import expand
from dlio_torch.sweep.keys import KEYS

_VERB = "predict"
_RANKS = "1..1024:x2"
_LONGEST = 2**53


def main(command: Command, launch: Launch) -> int:
    """Simulate and print on the first rank; returns the exit code.

    Raises:
        DlioError: a mistake in the arguments, a run that did not record enough, or SimPy is missing.
    """
    if launch.rank != 0:
        return 0
    if len(command.words) != 1:
        raise ConfigError(
            f"{_VERB}: {' '.join(command.words) or 'nothing'} (command line): expected one run",
            hint=f"{_VERB} runs/<recipe>/<time> system=theta",
        )
    own = {key: value for key, value in map(split_argument, command.settings) if key in KEYS[_VERB]}
    ranks = _ranks(own.get("ranks", _RANKS))
    cached = _share(own.get("cached", "0"))
    files, samples = (_count(key, own[key]) if key in own else None for key in ("files", "samples"))
    run = RunDir.open(command.words[0])
    found = _composed(run, command.settings)

    from dlio_torch.analysis.projection.assumptions import assumptions
    from dlio_torch.analysis.projection.project import Question, checked, project, require_simulator
    from dlio_torch.analysis.projection.workload import workload_of
    from dlio_torch.report.projection import print_prediction, to_json
    from dlio_torch.trace.sources import open_recording
    from dlio_torch.train.steps import read_steps

    require_simulator()
    summary = run.read_json(run.summary)
    try:
        workload = workload_of(found.config, summary, open_recording(run.path), read_steps(run.steps()))
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise DataError(
            f"{run.summary} lacks a figure, or holds one that no run writes: {error}",
            hint="repeat the run with this version",
        ) from error
    question = Question(ranks, cached, files, samples, found.config.seed)
    system = found.config.system
    rows = project(workload, system, question)
    told = assumptions(workload, system, question, found.sources, checked(workload, question.seed))
    if "--json" in command.flags:
        print(as_json(to_json(str(run.path), system.name, rows, told, workload.measured)), end="")
    else:
        print_prediction(f"{found.config.recipe}, {run.path}, on {system.name}", rows, told, sys.stdout)
    return 0


def _composed(run: RunDir, settings: tuple[str, ...]) -> Composed:
    """The run's configuration with the system that is asked for."""
    from dlio_torch.config.compose import compose
    from dlio_torch.formats.core.registry import available

    others = [one for one in settings if split_argument(one)[0] not in KEYS[_VERB]]
    for setting in others:
        key = split_argument(setting)[0]
        if key != "system" and not key.startswith("system."):
            raise ConfigError(
                f"{setting} (command line): {_VERB} changes nothing of the run but its system and its ranks",
                hint=f"take system=NAME, system.<option>=<value>, or one of {', '.join(KEYS[_VERB])}",
            )
    if not run.config.exists():
        raise DataError(f"{run.path} is not a run directory: it has no {run.config.name}", hint="name a finished run")
    return compose([f"recipe={run.config}", *others], formats=available())


def _ranks(text: str) -> list[int]:
    from dlio_torch.analysis.projection.project import MOST_RANKS

    numbers = [_count("ranks", value) for value in expand("ranks", text)]
    if max(numbers) > MOST_RANKS:
        raise ConfigError(f"ranks={text} (command line): more than {MOST_RANKS} ranks", hint="take fewer")
    return numbers


def _count(key: str, value: str) -> int:
    if not (value.isascii() and value.isdecimal() and 0 < int(value[:20]) < _LONGEST):
        raise ConfigError(f"{key}={value} (command line): expected a number, at least 1", hint=f"write {key}=64")
    return int(value)


def _share(value: str) -> float:
    try:
        share = float(value)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ConfigError(f"cached={value} (command line): expected a share from 0 to 1", hint="write cached=0.5")
    return share
