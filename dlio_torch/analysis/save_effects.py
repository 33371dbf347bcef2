"""Computes how much longer steps and their waits for data take while a save is written in the background.

Definitions, for the measured steps that another step follows, of the ranks that save::

    duration        of a step without its checkpoint part
    during saves    steps that began after the stall of a save and before all ranks' files of it were durable
    undisturbed     the other steps
    slowdown        median duration during saves / median duration of undisturbed steps - 1
    fetch_slowdown  the same ratio for the time that a step waits for its batch
    ..._ci95        bounds of its confidence interval of 95 %, see :func:`median_ratio_interval`; steps of several ranks
                    at the same time are neighbours, and count once for the least number of steps

The last step of an epoch and a step before an evaluation are left out: nothing follows in which their end is seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlio_torch.analysis import batch_means
from dlio_torch.analysis.batch_means import median_ratio_interval
from dlio_torch.analysis.distribution import distribution
from dlio_torch.analysis.rank_steps import RankSteps
from dlio_torch.checkpoint.save_times import SaveTimes

LEAST_STEPS = 5
"""Fewest steps of either kind from which their medians are compared."""

_S = 1e-9
_PARTS = ("step", "fetch")
_LEAST_FETCH = 0.01  # share of an undisturbed step below which a ratio of waits says nothing
_Ints = NDArray[np.int64]
_Kind = dict[str, _Ints]


def save_effects(ranks: Sequence[RankSteps], saves_of_ranks: Sequence[Sequence[SaveTimes]]) -> dict[str, Any]:
    """Parts ``during_saves``, ``undisturbed``, ``slowdown`` and ``fetch_slowdown`` of ``checkpoints``, and intervals.

    Args:
        ranks: the steps of each rank, on the clock of its saves.
        saves_of_ranks: all saves of each rank; empty for a rank that does not save.
    """
    durable_s = _durable_s(saves_of_ranks)
    pairs = [_split(steps, saves, durable_s) for steps, saves in zip(ranks, saves_of_ranks, strict=True) if saves]
    during, undisturbed = _joined([pair[0] for pair in pairs]), _joined([pair[1] for pair in pairs])
    why = _why(len(during["step"]), len(undisturbed["step"]), bool(pairs))
    fetch_why = why or _why_no_fetch(undisturbed)
    return {
        "during_saves": _figures(during),
        "undisturbed": _figures(undisturbed),
        **_slowdown("slowdown", during, undisturbed, "step", why),
        **_slowdown("fetch_slowdown", during, undisturbed, "fetch", fetch_why),
    }


def _slowdown(name: str, during: _Kind, undisturbed: _Kind, part: str, why: str | None) -> dict[str, Any]:
    """A slowdown with its interval; each is None with a reason if it is not known."""
    interval_why = why or _why_no_interval(during, undisturbed)
    interval = None if interval_why else median_ratio_interval(during[part], undisturbed[part])
    if interval is None and interval_why is None:
        interval_why = "the median of a tenth of the steps is 0"
    return {
        name: None if why else _increase(during[part], undisturbed[part]),
        f"{name}_why": why,
        f"{name}_ci95": None if interval is None else [bound - 1 for bound in interval],
        f"{name}_ci95_why": interval_why,
    }


def _durable_s(saves_of_ranks: Sequence[Sequence[SaveTimes]]) -> dict[int, float]:
    """Seconds until the slowest rank's files were durable, by the step of the save."""
    slowest: dict[int, float] = {}
    for saves in saves_of_ranks:
        for times in saves:
            slowest[times.step] = max(times.durable_s, slowest.get(times.step, times.durable_s))
    return slowest


def _split(steps: RankSteps, saves: Sequence[SaveTimes], durable_s: Mapping[int, float]) -> tuple[_Kind, _Kind]:
    """Durations and waits of the steps of one rank during saves, and of its undisturbed steps; ns."""
    begins = np.sort([times.start_ns + round(times.stall_s / _S) for times in saves])
    ends = np.sort([times.start_ns + round(max(times.stall_s, durable_s[times.step]) / _S) for times in saves])
    start = steps.train["start_ns"]
    running = np.searchsorted(begins, start, "right") > np.searchsorted(ends, start, "right")
    number = np.arange(start.size)
    whole, fetch = steps.train_duration - steps.part("checkpoint"), steps.part("fetch")
    during, undisturbed = steps.followed & running, steps.followed & ~running
    return (
        {"number": number[during], "step": whole[during], "fetch": fetch[during]},
        {"number": number[undisturbed], "step": whole[undisturbed], "fetch": fetch[undisturbed]},
    )


def _joined(kinds: Sequence[_Kind]) -> _Kind:
    """The steps of all ranks in the order of their numbers, so that steps of the same time are neighbours."""
    nothing = np.zeros(0, np.int64)
    joined = {name: np.concatenate([nothing, *(kind[name] for kind in kinds)]) for name in ("number", *_PARTS)}
    order = np.argsort(joined["number"], kind="stable")
    return {name: values[order] for name, values in joined.items()}


def _figures(kind: _Kind) -> dict[str, Any]:
    times = {f"{name}_s": distribution(kind[name], _S) for name in _PARTS}
    return {"steps": len(kind["step"]), **times}


def _increase(values: _Ints, base: _Ints) -> float:
    return float(np.median(values) / np.median(base)) - 1


def _why(during: int, undisturbed: int, saves: bool) -> str | None:
    """Reason why no slowdown is known; ``None`` if it is."""
    if not saves:
        return "no checkpoint was saved"
    if not during:
        return "no measured step began while a save was written in the background"
    if min(during, undisturbed) < LEAST_STEPS:
        return (
            f"{LEAST_STEPS} steps during saves and {LEAST_STEPS} undisturbed ones are needed, but this run has "
            f"{during} and {undisturbed}"
        )
    return None


def _why_no_interval(during: _Kind, undisturbed: _Kind) -> str | None:
    counts = [int(np.unique(kind["number"]).size) for kind in (during, undisturbed)]
    least = batch_means.LEAST_STEPS
    if min(counts) < least:
        return (
            f"{least} steps during saves and {least} undisturbed ones are needed, steps of several ranks at the same "
            f"time counted once, but this run has {counts[0]} and {counts[1]}"
        )
    return None


def _why_no_fetch(undisturbed: _Kind) -> str | None:
    if np.median(undisturbed["fetch"]) < _LEAST_FETCH * np.median(undisturbed["step"]):
        return "undisturbed steps wait for data less than 1 % of their time"
    return None
