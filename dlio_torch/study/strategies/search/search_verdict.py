"""The verdict of a search: which setting is recommended, in one sentence with its evidence."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlio_torch.study.model import Trial
from dlio_torch.study.strategies.search.acquisition import LEAST_GAIN
from dlio_torch.study.strategies.search.confirmation import PairedGain
from dlio_torch.study.strategies.search.objective import figure
from dlio_torch.study.strategies.search.search_request import SearchRequest
from dlio_torch.study.values import counted
from dlio_torch.units import percent

if TYPE_CHECKING:
    from dlio_torch.study.strategies.search.search_result import SearchResult

KEEP = "keep the defaults"


@dataclass(frozen=True)
class SearchVerdict:
    """The answer of a search.

    Attributes:
        recommended: index of the point; 0: keep the default; ``None``: every trial failed.
        sentence: the answer in one sentence.
        missed: whether no setting reaches the requested utilisation.
    """

    recommended: int | None
    sentence: str
    missed: bool = False


def search_verdict(result: SearchResult) -> SearchVerdict:
    """The answer of a search."""
    chosen, gain, tried = result.chosen, result.gain, result.tried
    if chosen is None:
        return SearchVerdict(None, "Every run failed, see trials.csv.")
    label = result.space.points[chosen].point.label
    if not result.finished:
        return SearchVerdict(chosen, f"Not finished; the best so far, of {tried} settings: {label}.")
    if result.request.objective == "resources":
        return _resources(result, chosen)
    if chosen == 0:
        return SearchVerdict(0, f"None of {tried} settings is better than the default: {KEEP}.")
    if gain is None:
        return SearchVerdict(0, f"No pair of runs of {label} and the default was finished: {KEEP}.")
    if not gain.confirmed or gain.gain < LEAST_GAIN:
        best = f"The best of {tried} settings, {label}, gave {gain_text(gain)}."
        return SearchVerdict(0, f"No gain beyond noise: {KEEP}. {best}")
    quantity = "throughput" if result.request.objective == "throughput" else "accelerator utilisation"
    return SearchVerdict(chosen, f"{label}: {quantity} {gain_text(gain)} over the default.")


def _resources(result: SearchResult, chosen: int) -> SearchVerdict:
    request, costs, tried = result.request, result.space.costs, result.tried
    label = result.space.points[chosen].point.label
    reached, default = _median(result, chosen), _median(result, 0)
    wanted = f"an accelerator utilisation of {percent(request.min_au)}"
    if reached is None or reached < request.min_au:
        best = "nothing was measured" if reached is None else f"{label} reaches {percent(reached)}"
        return SearchVerdict(chosen, f"None of {tried} settings reaches {wanted}: {best}.", missed=True)
    if chosen == 0:
        return SearchVerdict(0, f"No cheaper setting reaches {wanted} ({tried} were tried): {KEEP}.")
    before = f"the default takes {costs[0]}" + (f" and reaches {percent(default)}" if default else " and failed")
    sentence = f"{label}: {costs[chosen]}, and reaches {percent(reached)} (requested: {wanted}); {before}."
    return SearchVerdict(chosen, sentence)


def _median(result: SearchResult, index: int) -> float | None:
    """Median figure of a point in the confirmation; of all its trials if it has none there."""
    confirming = _figures(result.request, result.trials[result.searched :], index)
    values = confirming or _figures(result.request, result.trials, index)
    return statistics.median(values) if values else None


def _figures(request: SearchRequest, trials: Sequence[Trial], index: int) -> list[float]:
    values = [figure(trial, request) for trial in trials if trial.point == index + 1]
    return [value for value in values if value is not None]


def gain_text(gain: PairedGain) -> str:
    """A gain with its interval and the number of pairs."""
    pairs = f"{counted(len(gain.pairs), 'pair')} of runs"
    if gain.low is None or gain.high is None:
        return f"{_signed(gain.gain)} ({pairs})"
    return f"{_signed(gain.gain)} (95 % interval {_signed(gain.low)} to {_signed(gain.high)}, {pairs})"


def _signed(value: float) -> str:
    digits = 1 if abs(value) >= 0.001 or value == 0 else 2 - math.floor(math.log10(abs(value) * 100))
    return f"{100 * value:+.{min(digits, 4)}f} %"
