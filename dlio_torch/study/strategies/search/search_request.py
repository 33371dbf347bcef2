"""Arguments of ``tune``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from dlio_torch.config.arguments import split_argument
from dlio_torch.config.schema import Config
from dlio_torch.errors import ConfigError
from dlio_torch.study.model import Study
from dlio_torch.study.study_arguments import check_keys, parse
from dlio_torch.study.verb_keys import KEYS, OBJECTIVES

Objective = Literal["throughput", "au", "resources"]
Space = Literal["", "loader", "all"]
FIGURE: dict[Objective, str] = {"throughput": "train.samples_per_s", "au": "au.mean", "resources": "au.mean"}
"""Figure of a run that each objective evaluates."""
LEAST_PAIRS = 3
"""Minimum number of pairs of runs for a confirmed gain."""
LEAST_TRIALS = 2 + 2 * LEAST_PAIRS
_BUDGET = ("minutes", "trials")
_OWN = ("objective", "min_au", "repeats", "space", *_BUDGET)
_MOST = {"trials": 10_000, "repeats": 100}


@dataclass(frozen=True)
class SearchRequest:
    """A requested search.

    Attributes:
        study: settings of every run, axes that were given (none: those of the loader), ranks and timeout.
        arguments: ``key=value`` arguments of the command line.
        objective: quantity that the search improves.
        min_au: utilisation that ``resources`` has to reach.
        minutes: longest time of search and confirmation together.
        trials: most runs of both together.
        pairs: most pairs of runs of the confirmation.
        space: options that are searched beside the given axes: of torch's DataLoader, all of reading, or none.
        output: folder of the study as it was given.
    """

    study: Study
    arguments: tuple[str, ...] = ()
    objective: Objective = "throughput"
    min_au: float = 0.9
    minutes: float = 10.0
    trials: int = 30
    pairs: int = 5
    space: Space = "loader"
    output: str | None = None

    @property
    def figure(self) -> str:
        """The figure of a run that is looked at, by its name in ``summary.json``."""
        return FIGURE[self.objective]

    @property
    def budget(self) -> str:
        """The budget in words."""
        return f"{self.minutes:g} min, {self.trials} trials"


def parse_request(arguments: Sequence[str], *, cwd: Path | None = None) -> SearchRequest:
    """The request of ``key=value`` arguments.

    Raises:
        ConfigError: anything that is wrong with them, in one line.
    """
    pairs = [split_argument(argument) for argument in arguments]
    local = {key: value for key, value in pairs if key in _OWN}
    check_keys(dict(pairs), "tune")
    study, output = parse([f"{key}={value}" for key, value in pairs if key not in _OWN], cwd=cwd, verb="tune")
    if any(axis.key in ("recipe", "ranks", "scale") for axis in study.axes):
        raise ConfigError(
            "recipe, scale and ranks (command line): a search compares settings of one experiment",
            hint="give one value for each of these keys, or use the verb sweep",
        )
    text = {key: local.get(key, item.default) for key, item in KEYS["tune"].items()}
    objective = _objective(text["objective"])
    text_space = local.get("space", "" if study.axes else "loader")
    study = replace(
        study,
        title=f"tune {study.name}: {objective}",
        repeats=1,
        figures=(FIGURE[objective],),
    )
    return SearchRequest(
        study=study,
        arguments=tuple(arguments),
        objective=objective,
        min_au=_number("min_au", text["min_au"], 1.0),
        minutes=_number("minutes", text["minutes"], 1e5),
        trials=_count("trials", text["trials"], LEAST_TRIALS),
        pairs=_count("repeats", text["repeats"], LEAST_PAIRS),
        space=_space(text_space),
        output=output,
    )


def check_objective(request: SearchRequest, config: Config) -> None:
    """Refuse an objective of utilisation if no compute is emulated.

    Raises:
        ConfigError: naming what to change.
    """
    if request.objective != "throughput" and not config.compute.emulated_step_s:
        raise ConfigError(
            f"objective={request.objective} (command line): no compute is emulated (compute.mode="
            f"{config.compute.mode}, compute.step_s={config.compute.step_s:g}), so there is no utilisation",
            hint="set compute.step_s, or objective=throughput",
        )


def _space(text: str) -> Space:
    for known in ("", "loader", "all"):
        if text == known:
            return known
    raise ConfigError(
        f"space={text} (command line): no such search space",
        hint="write space=loader for the options of torch's DataLoader, space=all for all options of reading",
    )


def _objective(text: str) -> Objective:
    for known in FIGURE:
        if text == known:
            return known
    raise ConfigError(
        f"objective={text} (command line): no such objective", hint=f"objectives are {', '.join(OBJECTIVES)}"
    )


def _number(key: str, text: str, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= most:  # false for NaN as well
        raise ConfigError(
            f"{key}={text} (command line): expected a number above 0, at most {most:g}",
            hint=f"`explain {key}` describes the key",
        )
    return value


def _count(key: str, text: str, least: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 6 and least <= int(text) <= _MOST[key]):
        subject = (
            f"the default, another setting, and {LEAST_PAIRS} pairs of runs to confirm it"
            if key == "trials"
            else "fewer pairs of runs cannot confirm a gain"
        )
        raise ConfigError(
            f"{key}={text} (command line): expected a number from {least} to {_MOST[key]}", hint=f"{least}: {subject}"
        )
    return int(text)
