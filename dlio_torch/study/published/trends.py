"""Checks whether measured points follow a published trend beyond the noise of the repeats.

A trend is about the *performance* of a figure along one axis: ``improves`` means that a throughput grows or that a
time shrinks.  Two points differ by the rule of the table of settings
(:func:`dlio_torch.analysis.repeats.apart`); a single measurement never differs, because its noise is not known.
Verdicts:

``agrees``         the trend is there, beyond noise
``partly``         the direction is right, the size or a part of the way is not
``contradicts``    the points say the opposite, beyond noise
``within noise``   the points do not differ enough to say anything
``cannot be told`` points that decide were measured once
``not measured``   a point that the trend needs is missing
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Literal

from dlio_torch.analysis.repeats import Noise, Spread, apart
from dlio_torch.study.axes import magnitude
from dlio_torch.study.values import listed
from dlio_torch.units import percent

Better = Literal["higher", "lower"]
Verdict = Literal["agrees", "partly", "contradicts", "within noise", "cannot be told", "not measured"]
Values = Sequence[tuple[str, Spread]]

FLAT = 1.1
"""Points that differ by less than this factor are called flat, even if the noise is smaller."""
_ALIKE = 1.25  # factors that differ by less are called alike
_EFFICIENCY = 0.8  # of strong scaling: what is called close to ideal where a study says nothing else


@dataclass(frozen=True)
class Trend:
    """A statement about measured points that can be checked.

    Args:
        kind: a name in :data:`TRENDS`.
        value: of the axis: the optimum, or where a plateau begins.
        start: value of the axis from which a factor counts, or points improve, worsen or are flat; ``""``: the first.
        end: value to which it counts; ``""``: the last.
        factor: published factor of improvement; of ``scales`` and ``falls_short`` the efficiency that divides them.
    """

    kind: str
    value: str = ""
    start: str = ""
    end: str = ""
    factor: float | None = None


@dataclass(frozen=True)
class TrendVerdict:
    """A verdict on measured points, and a sentence with its figures."""

    verdict: Verdict
    words: str


def check(trend: Trend, values: Values, better: Better, scatter: Noise | None = None) -> TrendVerdict:
    """Check points against a trend.

    Args:
        trend: what was published.
        values: axis value and repeats of each measured point, in the order of the axis.
        better: direction of the measured figure.
        scatter: of single runs, of all points of the study together; by default that of the two that are compared.
    """
    known = [name for name, _ in values]
    missing = [name for name in (trend.value, trend.start, trend.end) if name and name not in known]
    if missing:
        return TrendVerdict("not measured", f"No point at {listed(missing)} was measured.")
    if len(_between(values, trend.start, "") if trend.kind != "factor" else values) < 2:
        return TrendVerdict("not measured", "Fewer than two points were measured.")
    return TRENDS[trend.kind](trend, values, better, scatter)


def gain(a: Spread, b: Spread, better: Better) -> float:
    """Returns how many times better ``b`` is than ``a``; below 1 means worse.  Both values are positive."""
    return b.median / a.median if better == "higher" else a.median / b.median


def best(values: Values, better: Better) -> tuple[str, Spread]:
    """Returns the point with the best median; the first of equal points."""
    return min(values, key=lambda item: -item[1].median if better == "higher" else item[1].median)


def worst(values: Values, better: Better) -> tuple[str, Spread]:
    """Returns the point with the worst median; the first of equal points."""
    return best(values, "lower" if better == "higher" else "higher")


def differs(values: Values, better: Better, scatter: Noise | None = None) -> bool:
    """Whether the best and the worst point differ beyond noise."""
    return apart(best(values, better)[1], worst(values, better)[1], scatter)


def undecided(*spreads: Spread) -> Verdict:
    """Returns the verdict on points that do not differ beyond noise: within noise, or noise unknown."""
    return "within noise" if min(spread.count for spread in spreads) > 1 else "cannot be told"


def reason(*spreads: Spread) -> str:
    """Returns why points do not differ beyond noise."""
    if undecided(*spreads) == "within noise":
        return "no more than the repeats scatter"
    return "of single runs, whose noise is unknown: repeats=3 measures the noise"


def times(factor: float) -> str:
    """Formats a factor for a sentence: ``3.1x``."""
    return f"{factor:.3g}x"


def changed(factor: float) -> str:
    """Formats a factor of improvement for a sentence: ``3.1x better``, ``2x worse``."""
    return f"{times(factor)} better" if factor >= 1 else f"{times(1 / factor)} worse"


def _improves(trend: Trend, values: Values, better: Better, scatter: Noise | None) -> TrendVerdict:
    part = _between(values, trend.start, trend.end)
    (first, a), (last, b) = part[0], part[-1]
    size = f"From {first} to {last} the figure gets {changed(gain(a, b, better))}"
    if not apart(a, b, scatter):
        return TrendVerdict(undecided(a, b), f"{size}, {reason(a, b)}.")
    if gain(a, b, better) < 1:
        return TrendVerdict("contradicts", f"{size}, beyond noise.")
    back = [
        f"{name} is worse than {before}"
        for (before, x), (name, y) in pairwise(part)
        if apart(x, y, scatter) and gain(x, y, better) < 1
    ]
    if back:
        return TrendVerdict("partly", f"{size}, but {listed(back)}, beyond noise.")
    return TrendVerdict("agrees", f"{size}, beyond noise.")


def _worsens(trend: Trend, values: Values, better: Better, scatter: Noise | None) -> TrendVerdict:
    part = _between(values, trend.start, trend.end)
    (first, a), (last, b) = part[0], part[-1]
    outcome = _improves(Trend("improves"), list(reversed(part)), better, scatter)
    size = f"From {first} to {last} the figure gets {changed(gain(a, b, better))}"
    if outcome.verdict == "partly":
        return TrendVerdict("partly", f"{size}, beyond noise, but not at every step.")
    noise = "beyond noise" if apart(a, b, scatter) else reason(a, b)
    return TrendVerdict(outcome.verdict, f"{size}, {noise}.")


def _flat(trend: Trend, values: Values, better: Better, scatter: Noise | None) -> TrendVerdict:
    part = _between(values, trend.start, trend.end)
    (low, a), (high, b) = worst(part, better), best(part, better)
    factor = gain(a, b, better)
    lead = f"From {part[0][0]} to {part[-1][0]} the best is {percent(factor - 1)} better than the worst"
    if undecided(a, b) == "cannot be told" or (factor >= FLAT and not apart(a, b, scatter)):
        return TrendVerdict(undecided(a, b), f"{lead}, {reason(a, b)}.")
    if factor < FLAT:
        return TrendVerdict("agrees", f"{lead}.")
    return TrendVerdict("contradicts", f"{lead}: {high} than {low}, beyond noise.")


def _optimum(trend: Trend, values: Values, better: Better, scatter: Noise | None) -> TrendVerdict:
    here = dict(values)[trend.value]
    name, top = best(values, better)
    if not differs(values, better, scatter):
        low = worst(values, better)[1]
        factor = times(gain(low, top, better))
        return TrendVerdict(undecided(low, top), f"{name} is best, {factor} better than the worst, {reason(low, top)}.")
    if name != trend.value and undecided(top, here) == "cannot be told":
        return TrendVerdict(
            "cannot be told",
            f"The best is {name}, {times(gain(here, top, better))} better than {trend.value}, {reason(top, here)}.",
        )
    if name == trend.value or not apart(top, here, scatter):
        tied = [other for other, spread in values if other != trend.value and not apart(spread, top, scatter)]
        also = f", tied with {listed(tied)}" if tied else ", beyond noise"
        return TrendVerdict("agrees", f"{trend.value} is among the best{also}.")
    lead = times(gain(here, top, better))
    return TrendVerdict("contradicts", f"The best is {name}, {lead} better than {trend.value}, beyond noise.")


def _plateau(trend: Trend, values: Values, better: Better, scatter: Noise | None) -> TrendVerdict:
    names = [name for name, _ in values]
    place = names.index(trend.value)
    here = values[place][1]
    later = [(name, spread) for name, spread in values[place + 1 :] if _beyond(here, spread, better, scatter)]
    if later:
        name, top = best(later, better)
        return TrendVerdict("contradicts", f"{name} is {times(gain(here, top, better))} better still, beyond noise.")
    rise = f"Up to {trend.value} the figure gets {changed(gain(values[0][1], here, better))}"
    every = [spread for _, spread in values]
    if undecided(*every) == "cannot be told":
        return TrendVerdict("cannot be told", f"{rise}, {reason(*every)}.")
    if not any(_beyond(spread, here, better, scatter) for _, spread in values[:place]):
        return TrendVerdict(
            "within noise", f"{rise}, but no earlier point is worse beyond noise, so no rise ends at this point."
        )
    return TrendVerdict("agrees", f"{rise}; no later point is better beyond noise.")


def _factor(trend: Trend, values: Values, better: Better, scatter: Noise | None) -> TrendVerdict:
    part = dict(values)
    start, end = trend.start or values[0][0], trend.end or values[-1][0]
    ours = gain(part[start], part[end], better)
    theirs = trend.factor if trend.factor is not None else 1.0
    words = (
        f"From {start} to {end} the figure gets {changed(ours)} in the measurement, {changed(theirs)} in the "
        "publication"
    )
    if not apart(part[start], part[end], scatter):
        verdict = undecided(part[start], part[end])
        if verdict == "within noise" and all(1 / FLAT < name < FLAT for name in (ours, theirs)):
            verdict = "agrees"  # neither is more than a few percent
        return TrendVerdict(verdict, f"{words}; the measured change is {reason(part[start], part[end])}.")
    if (ours > 1) != (theirs > 1):
        return TrendVerdict("contradicts", f"{words}.")
    alike = max(ours / theirs, theirs / ours) < _ALIKE
    return TrendVerdict("agrees" if alike else "partly", f"{words}{'' if alike else ': the same direction'}.")


def _against_ideal(
    trend: Trend, values: Values, better: Better, _: Noise | None, *, above: Verdict, below: Verdict
) -> TrendVerdict:
    """Checks whether the scaling efficiency lies above or below a limit, for all efficiencies within the repeats."""
    (first, a), (last, b) = values[0], values[-1]
    few, many = magnitude(first), magnitude(last)
    if not few or not many or few == many:
        return TrendVerdict("not measured", "The axis is not the number of ranks.")
    limit = trend.factor or _EFFICIENCY
    speedup = gain(a, b, better)
    ends = [Spread(item, item, item) for item in (a.low, a.high, b.low, b.high)]
    efficiencies = sorted(gain(x, y, better) * few / many for x in ends[:2] for y in ends[2:])
    words = (
        f"{last} ranks are {times(speedup)} as fast as {first}, an efficiency of "
        f"{percent(speedup * few / many, 0)}; an efficiency of {percent(limit, 0)} or more is called close to ideal"
    )
    if undecided(a, b) == "cannot be told":
        return TrendVerdict("cannot be told", f"{words}. The difference is {reason(a, b)}.")
    if efficiencies[0] < limit <= efficiencies[-1]:
        span = f"{percent(efficiencies[0], 0)} to {percent(efficiencies[-1], 0)}"
        return TrendVerdict("within noise", f"{words}. By the repeats, an efficiency of {span} is possible.")
    return TrendVerdict(above if efficiencies[0] >= limit else below, f"{words}.")


TRENDS: dict[str, Callable[[Trend, Values, Better, Noise | None], TrendVerdict]] = {
    "improves": _improves,
    "worsens": _worsens,
    "flat": _flat,
    "optimum": _optimum,
    "plateau": _plateau,
    "factor": _factor,
    "scales": partial(_against_ideal, above="agrees", below="contradicts"),
    "falls_short": partial(_against_ideal, above="contradicts", below="agrees"),
}
"""Kind of a trend -> its check."""


def _beyond(a: Spread, b: Spread, better: Better, scatter: Noise | None) -> bool:
    return apart(a, b, scatter) and gain(a, b, better) > 1


def _between(values: Values, start: str, end: str) -> Values:
    names = [name for name, _ in values]
    low = names.index(start) if start else 0
    high = names.index(end) if end else len(names) - 1
    return values[low : high + 1]
