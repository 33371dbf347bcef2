"""What a search is asked: the arguments of ``tune``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from dlio_torch.config.compose import split_argument
from dlio_torch.config.schema import Config
from dlio_torch.errors import ConfigError
from dlio_torch.sweep.arguments import check_keys
from dlio_torch.sweep.keys import KEYS, OBJECTIVES
from dlio_torch.sweep.study import Study, parse

Objective = Literal["throughput", "au", "resources"]
FIGURE: dict[Objective, str] = {"throughput": "train.samples_per_s", "au": "au.mean", "resources": "au.mean"}
"""The figure of a run that each objective looks at."""
LEAST_PAIRS = 3
"""Pairs of runs below which a gain is not called confirmed."""
LEAST_TRIALS = 2 + 2 * LEAST_PAIRS
_BUDGET = ("minutes", "trials")
_OWN = ("objective", "min_au", "repeats", "space", *_BUDGET)
_MOST = {"trials": 10_000, "repeats": 100}


@dataclass(frozen=True)
class Request:
    """What is asked.

    Attributes:
        study: settings of every run, axes that were given (none: those of the loader), ranks and timeout.
        objective: what is sought.
        min_au: utilisation that ``resources`` has to reach.
        minutes: longest time of search and confirmation together.
        trials: most runs of both together.
        pairs: most pairs of runs of the confirmation.
        loader_axes: whether the options of the loader are searched.
        output: folder of the study as it was given.
    """

    study: Study
    objective: Objective = "throughput"
    min_au: float = 0.9
    minutes: float = 10.0
    trials: int = 30
    pairs: int = 5
    loader_axes: bool = True
    output: str | None = None

    @property
    def figure(self) -> str:
        """The figure of a run that is looked at, by its name in ``summary.json``."""
        return FIGURE[self.objective]

    @property
    def budget(self) -> str:
        """The budget in words."""
        return f"{self.minutes:g} min, {self.trials} trials"


def parse_request(arguments: Sequence[str], *, cwd: Path | None = None) -> Request:
    """The request of ``key=value`` arguments.

    Raises:
        ConfigError: anything that is wrong with them, in one line.
    """
    pairs = [split_argument(argument) for argument in arguments]
    own = {key: value for key, value in pairs if key in _OWN}
    check_keys(dict(pairs), "tune")
    study, output = parse([f"{key}={value}" for key, value in pairs if key not in _OWN], cwd=cwd, verb="tune")
    if any(axis.key in ("recipe", "ranks", "scale") for axis in study.axes):
        raise ConfigError(
            "recipe, scale and ranks (command line): a search compares settings of one experiment",
            hint="give one value, or use sweep",
        )
    text = {key: own.get(key, found.default) for key, found in KEYS["tune"].items()}
    objective = _objective(text["objective"])
    space = own.get("space", "" if study.axes else "loader")
    if space not in ("", "loader"):
        raise ConfigError(
            f"space={space} (command line): unknown space",
            hint="write space=loader to search the options of the loader beside the axes that are given",
        )
    study = replace(
        study,
        title=f"tune {study.name}: {objective}",
        repeats=1,
        figures=(FIGURE[objective],),
    )
    return Request(
        study=study,
        objective=objective,
        min_au=_number("min_au", text["min_au"], 1.0),
        minutes=_number("minutes", text["minutes"], 1e5),
        trials=_count("trials", text["trials"], LEAST_TRIALS),
        pairs=_count("repeats", text["repeats"], LEAST_PAIRS),
        loader_axes=space == "loader",
        output=output,
    )


def check_objective(request: Request, config: Config) -> None:
    """Refuse a utilisation where no accelerator is emulated.

    Raises:
        ConfigError: naming what to change.
    """
    if request.objective != "throughput" and not config.compute.emulated_step_s:
        raise ConfigError(
            f"objective={request.objective} (command line): no compute is emulated (compute.mode="
            f"{config.compute.mode}, compute.step_s={config.compute.step_s:g}), so there is no utilisation",
            hint="set compute.step_s, or objective=throughput",
        )


def _objective(text: str) -> Objective:
    for known in FIGURE:
        if text == known:
            return known
    raise ConfigError(
        f"objective={text} (command line): unknown objective", hint=f"objectives are {', '.join(OBJECTIVES)}"
    )


def _number(key: str, text: str, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= most:  # false for NaN as well
        raise ConfigError(
            f"{key}={text} (command line): expected a number above 0, at most {most:g}", hint=f"see explain {key}"
        )
    return value


def _count(key: str, text: str, least: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 6 and least <= int(text) <= _MOST[key]):
        what = (
            f"the default, another setting, and {LEAST_PAIRS} pairs of runs to confirm it"
            if key == "trials"
            else "fewer pairs of runs confirm nothing"
        )
        raise ConfigError(
            f"{key}={text} (command line): expected a number from {least} to {_MOST[key]}", hint=f"{least}: {what}"
        )
    return int(text)
