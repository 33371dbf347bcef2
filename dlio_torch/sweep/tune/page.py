"""A search as the data of its page, and as plain data for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from dlio_torch.report.html.study import data as page
from dlio_torch.sweep import page as study_page
from dlio_torch.sweep.axes import NOT_APPLICABLE
from dlio_torch.sweep.keys import OBJECTIVES
from dlio_torch.sweep.space import Needs
from dlio_torch.sweep.store import Store
from dlio_torch.sweep.tune.confirm import HOW
from dlio_torch.sweep.tune.objective import outcome
from dlio_torch.sweep.tune.optuna import JOURNAL
from dlio_torch.sweep.tune.recommend import Advice, advise
from dlio_torch.sweep.tune.request import Request
from dlio_torch.sweep.tune.search import CHANCE, Findings
from dlio_torch.sweep.tune.space import SearchSpace
from dlio_torch.sweep.tune.surrogate import believe
from dlio_torch.sweep.tune.tuner import Found, goal
from dlio_torch.sweep.tune.verdict import Verdict

SAMPLER = (
    "Gaussian process over the logarithm of the figure of the finite set of settings; expected improvement; no setting "
    "is explored twice, the default and those that lead are measured again"
)
_IMPORTANCE = "share of each key alone in the scatter of the expected figure over all settings"
_NOISE_ONLY = "no gain over the default was found beyond noise, so what an option explains here may be noise too"
_METRIC = {"throughput": page.THROUGHPUT.key, "au": page.AU.key, "resources": page.AU.key}
_LEAST_TRIED = 4


def advice(space: SearchSpace, verdict: Verdict) -> Advice | None:
    """The recommended setting in the forms that it is needed in."""
    if verdict.recommended is None:
        return None
    keys = tuple(axis.key for axis in space.study.axes)
    return advise(space.points[0], space.points[verdict.recommended], keys)


def study_data(
    store: Store,
    request: Request,
    space: SearchSpace,
    found: Found,
    verdict: Verdict,
    points: pd.DataFrame,
    needs: Needs,
) -> page.StudyData:
    """Everything on the page of a search, finished or not."""
    data = study_page.study_data(store, found.trials, points, needs)
    defaults = dict(space.points[0].point.values)
    gain, said = found.gain, advice(space, verdict)
    confirmation = None
    if gain is not None:
        confirmation = page.Confirmation(_METRIC[request.objective], gain.pairs, gain.gain, gain.low, gain.high, HOW)
    recommendation = None
    if said is not None and verdict.recommended is not None:
        recommendation = page.Recommendation(
            said.settings,
            tuple(page.Code(title, text) for title, text in said.blocks),
            verdict.recommended + 1,
            verdict.words,
        )
    return replace(
        data,
        kind="tune",
        axes=tuple(replace(axis, default=defaults.get(axis.key)) for axis in data.axes),
        answer=verdict.words,
        description=f"Which setting gives the best {OBJECTIVES[request.objective]}?"
        if request.objective != "resources"
        else f"Which is the cheapest setting ({OBJECTIVES['resources']}: {request.min_au:g})?",
        objective=_METRIC[request.objective],
        planned=None,
        search=page.Search(
            sampler=SAMPLER,
            budget=request.budget,
            stopped=found.stopped,
            importance=importance(request, space, found),
            importance_how=_IMPORTANCE if verdict.recommended else f"{_IMPORTANCE}; {_NOISE_ONLY}",
            storage=f"optuna-dashboard {store.path / JOURNAL}",
            grid_size=len(space.points),
            chosen=None if found.chosen is None else found.chosen + 1,
        ),
        confirmation=confirmation,
        recommendation=recommendation,
    )


def importance(request: Request, space: SearchSpace, found: Found) -> Mapping[str, float] | None:
    """Variance of the mean over all settings of one value of a key, over the variance of all settings.

    Of what is expected of every setting, tried or not; what keys do together is no key's share.
    """
    findings = Findings.of([outcome(trial, request) for trial in found.trials])
    if len(findings.scores) < _LEAST_TRIED:
        return None
    expected = believe(goal(request, space).space, findings.means(), findings.noise).mean
    total = float(np.var(expected))
    if not total:
        return None
    return {axis.key: _alone(axis.key, space, expected) / total for axis in space.study.axes}


def _alone(key: str, space: SearchSpace, expected: Sequence[float] | Any) -> float:
    values = np.array([dict(one.point.values).get(key, NOT_APPLICABLE) for one in space.points])
    has = values != NOT_APPLICABLE
    if not has.any():
        return 0.0
    means = np.array([expected[values == value].mean() for value in values[has]])
    # Where the key has no meaning it explains nothing.
    return float(np.var(means) * has.mean())


def as_data(request: Request, space: SearchSpace, found: Found, verdict: Verdict) -> dict[str, Any]:
    """The result for programs."""
    said = advice(space, verdict)
    recommended = None if verdict.recommended is None else space.points[verdict.recommended].point
    gain = found.gain
    return {
        "objective": request.objective,
        "scaled": list(space.study.scaled),
        "min_au": request.min_au if request.objective == "resources" else None,
        "answer": verdict.words,
        "missed": verdict.missed,
        "finished": found.finished,
        "points": len(space.points),
        "points_tried": len({trial.point for trial in found.trials}),
        "runs": len(found.trials),
        "runs_of_search": found.searched,
        "wall_s": sum(trial.figures.get("trial.wall_s") or 0.0 for trial in found.trials),
        "stopped": found.stopped,
        "rule": f"stops when the chance of every untried setting to win by more than the noise is below {CHANCE:g}",
        "noise": found.noise,
        "recommended": None
        if recommended is None or said is None
        else {
            "point": recommended.number,
            "default": verdict.recommended == 0,
            "values": dict(recommended.values),
            "settings": dict(said.settings),
            "dotlist": said.dotlist,
            "blocks": dict(said.blocks),
        },
        "gain": None
        if gain is None
        else {
            "figure": request.figure,
            "point": None if found.chosen is None else found.chosen + 1,
            "median": gain.gain,
            "low": gain.low,
            "high": gain.high,
            "pairs": [list(pair) for pair in gain.pairs],
            "how": HOW,
        },
        "importance": importance(request, space, found),
    }
