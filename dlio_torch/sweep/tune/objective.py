"""What a run is worth to a search."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlio_torch.sweep.trial import Trial
from dlio_torch.sweep.tune.costs import Cost
from dlio_torch.sweep.tune.request import Request
from dlio_torch.sweep.tune.search import Outcome

_MOST_WAITING = 0.999


def figure(trial: Trial, request: Request) -> float | None:
    """The figure that is looked at; ``None`` where the run failed or did not measure it."""
    value = trial.figures.get(request.figure)
    return value if trial.status == "done" and value is not None and value > 0 else None


def outcome(trial: Trial, request: Request) -> Outcome:
    """What a trial tells the search; point numbers count from 1, those of an outcome from 0."""
    value = figure(trial, request)
    return Outcome(trial.point - 1, None if value is None else math.log(value), room(trial))


def room(trial: Trial) -> float | None:
    """Most that any setting of the loader could gain over this run, as a logarithm.

    What the trainer waits for data and for loaders to start is all that a loader can save.  Without emulated
    compute there is nothing else to wait for, and so no limit.
    """
    figures = trial.figures
    if figures.get("au.mean") is None or figures.get("shares.fetch") is None:
        return None
    waiting = (figures["shares.fetch"] or 0.0) + (figures.get("shares.between_epochs") or 0.0)
    return -math.log1p(-min(waiting, _MOST_WAITING))


def optuna_value(trial: Trial, request: Request, costs: Sequence[Cost]) -> float | None:
    """The value of a trial in Optuna's study: higher is better, except for resources.

    A setting that does not reach the utilisation counts as dearer than every other, by as much as it lacks.
    """
    value = figure(trial, request)
    if value is None or request.objective != "resources":
        return value
    cost = costs[trial.point - 1].value
    return cost if value >= request.min_au else 1 + max(one.value for one in costs) + request.min_au - value
