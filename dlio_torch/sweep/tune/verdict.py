"""What a search recommends, and in which words."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from dlio_torch.report.verdict import percent
from dlio_torch.sweep.trial import Trial
from dlio_torch.sweep.tune.confirm import Gain
from dlio_torch.sweep.tune.objective import figure
from dlio_torch.sweep.tune.request import Request
from dlio_torch.sweep.tune.search import LEAST_GAIN
from dlio_torch.sweep.tune.space import SearchSpace
from dlio_torch.sweep.tune.tuner import Found

KEEP = "keep the defaults"


@dataclass(frozen=True)
class Verdict:
    """What to do.

    Attributes:
        recommended: index of the point; 0: keep the default; ``None``: every run failed.
        words: the answer in one sentence.
        missed: whether a utilisation that was asked for is reached by no setting.
    """

    recommended: int | None
    words: str
    missed: bool = False


def verdict(request: Request, space: SearchSpace, found: Found) -> Verdict:
    """The answer of a search."""
    if found.chosen is None:
        return Verdict(None, "Every run failed, see trials.csv.")
    label = space.points[found.chosen].point.label
    tried = len({trial.point for trial in found.trials[: found.searched]})
    if not found.finished:
        return Verdict(found.chosen, f"Not finished; the best so far, of {tried} settings: {label}.")
    if request.objective == "resources":
        return _resources(request, space, found, tried)
    if found.chosen == 0:
        return Verdict(0, f"None of {tried} settings is better than the default: {KEEP}.")
    gain = found.gain
    if gain is None:
        return Verdict(0, f"No pair of runs of {label} and the default was finished: {KEEP}.")
    if not gain.confirmed or gain.gain < LEAST_GAIN:
        return Verdict(0, f"No gain beyond noise: {KEEP}. The best of {tried} settings, {label}, gave {spread(gain)}.")
    what = "throughput" if request.objective == "throughput" else "accelerator utilisation"
    return Verdict(found.chosen, f"{label}: {what} {spread(gain)} over the default.")


def _resources(request: Request, space: SearchSpace, found: Found, tried: int) -> Verdict:
    assert found.chosen is not None
    chosen = found.chosen
    label, cost = space.points[chosen].point.label, space.costs[chosen]
    reached, default = _median(request, found, chosen), _median(request, found, 0)
    asked = f"an accelerator utilisation of {percent(request.min_au)}"
    if reached is None or reached < request.min_au:
        best = "nothing was measured" if reached is None else f"{label} reaches {percent(reached)}"
        return Verdict(chosen, f"None of {tried} settings reaches {asked}: {best}.", missed=True)
    if chosen == 0:
        return Verdict(0, f"No cheaper setting reaches {asked} ({tried} were tried): {KEEP}.")
    before = f"the default takes {space.costs[0]}" + (f" and reaches {percent(default)}" if default else " and failed")
    return Verdict(chosen, f"{label}: {cost}, and reaches {percent(reached)} ({asked} was asked for); {before}.")


def _median(request: Request, found: Found, index: int) -> float | None:
    """Of the confirmation's runs of a point, of all its runs where it has none there."""
    confirming = _figures(request, found.trials[found.searched :], index)
    values = confirming or _figures(request, found.trials, index)
    return statistics.median(values) if values else None


def _figures(request: Request, trials: Sequence[Trial], index: int) -> list[float]:
    values = [figure(trial, request) for trial in trials if trial.point == index + 1]
    return [value for value in values if value is not None]


def spread(gain: Gain) -> str:
    """A gain with its interval and the number of pairs."""
    pairs = f"{len(gain.pairs)} pair{'' if len(gain.pairs) == 1 else 's'} of runs"
    if gain.low is None or gain.high is None:
        return f"{_signed(gain.gain)} ({pairs})"
    return f"{_signed(gain.gain)} (95 % interval {_signed(gain.low)} to {_signed(gain.high)}, {pairs})"


def _signed(value: float) -> str:
    digits = 1 if abs(value) >= 0.001 or value == 0 else 2 - math.floor(math.log10(abs(value) * 100))
    return f"{100 * value:+.{min(digits, 4)}f} %"
