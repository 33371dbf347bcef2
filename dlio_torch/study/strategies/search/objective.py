"""Value of a trial for a search."""

from __future__ import annotations

import math

from dlio_torch.study.model import Trial
from dlio_torch.study.strategies.search.acquisition import Observation
from dlio_torch.study.strategies.search.search_request import SearchRequest

_MOST_WAITING = 0.999


def figure(trial: Trial, request: SearchRequest) -> float | None:
    """Returns the objective's figure; ``None`` if the run failed or did not measure it."""
    value = trial.figures.get(request.figure)
    return value if trial.status == "done" and value is not None and value > 0 else None


def observation(trial: Trial, request: SearchRequest) -> Observation:
    """The observation of a trial; numbers of points count from 1, those of an observation from 0."""
    value = figure(trial, request)
    return Observation(trial.point - 1, None if value is None else math.log(value), room(trial))


def room(trial: Trial) -> float | None:
    """Returns the maximum gain of any loader setting over this run, as a logarithm.

    What the trainer waits for data and for loaders to start is all that a loader can save.  Without emulated
    compute there is nothing else to wait for, and so no limit.
    """
    figures = trial.figures
    if figures.get("au.mean") is None or figures.get("shares.fetch") is None:
        return None
    waiting = (figures["shares.fetch"] or 0.0) + (figures.get("shares.between_epochs") or 0.0)
    return -math.log1p(-min(waiting, _MOST_WAITING))
