"""Compares the shape of a published figure with the measured points.

The shape is which point is best, how far best and worst are apart, and in which order the points come (Spearman's
rank correlation of performance); nothing is said of it where what was measured here differs by no more than the noise
of its repeats.  A publication rarely says how its points scatter: ``one run a point`` is assumed.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from dlio_torch.analysis.repeats import Noise, Spread
from dlio_torch.study.published import trends
from dlio_torch.study.published.trends import FLAT, Better, TrendVerdict, Values
from dlio_torch.study.values import listed

_ALIKE = 0.7  # rank correlation from which orders are called the same; of four points it leaves one swap of neighbours
_OPPOSITE = -0.3
_SIZE = 2.0  # from this ratio of two factors on, trends of one direction are of another size


def check(
    points: Sequence[tuple[str, float]],
    their_better: Better,
    values: Values,
    better: Better,
    scatter: Noise | None = None,
) -> TrendVerdict:
    """Returns verdict and sentence on the shapes of both lines over their common points.

    Args:
        points: the published ones: value of the axis, and value.
        their_better: direction of these.
        values: value of the axis and repeats of each measured point.
        better: direction of these.
        scatter: of single runs, of all points of the study together.
    """
    theirs = dict(points)
    both = [(name, spread) for name, spread in values if name in theirs]
    if len(both) < 2:
        known = listed(list(theirs))
        return TrendVerdict("not measured", f"This study measured only {len(both)} of the published points ({known}).")
    their_values = [(name, Spread(theirs[name], theirs[name], theirs[name])) for name, _ in both]
    (their_factor, their_best, their_words), (our_factor, our_best, our_words) = (
        _range(side, direction) for side, direction in ((their_values, their_better), (both, better))
    )
    correlation = _spearman(their_values, their_better, both, better)
    words = f"The published figure is {their_words}; the measured figure is {our_words}."
    if correlation is not None:
        words += f" Rank correlation of the {len(both)} common points: {correlation:.2f}."
    spreads = [spread for _, spread in both]
    if trends.undecided(*spreads) == "cannot be told":
        return TrendVerdict(
            "cannot be told", f"{words} The differences of the measured points are {trends.reason(*spreads)}."
        )
    theirs_flat, ours_flat = their_factor < FLAT, our_factor < FLAT
    if ours_flat and theirs_flat:
        return TrendVerdict("agrees", f"{words} Both lines are flat: within 10 %.")
    most = max(spread.high for spread in spreads) / min(
        spread.low for spread in spreads
    )  # that the repeats leave possible
    if ours_flat and their_factor / most >= _SIZE:
        return TrendVerdict("contradicts", f"{words} The measured line is flat: within 10 %.")
    if not trends.differs(both, better, scatter):
        return TrendVerdict(
            "within noise", f"{words} The measured points do not differ beyond the noise of the repeats."
        )
    if theirs_flat:
        return TrendVerdict("contradicts", f"{words} The published line is flat: within 10 %.")
    if len(both) == 2:
        alike = bool(their_best & our_best)
    elif correlation is None or _OPPOSITE < correlation < _ALIKE:
        return TrendVerdict("partly", words)
    else:
        alike = correlation >= _ALIKE
    if alike and max(their_factor / our_factor, our_factor / their_factor) >= _SIZE:
        return TrendVerdict("partly", f"{words} The direction is the same, the size is not.")
    return TrendVerdict("agrees" if alike else "contradicts", words)


def _range(values: Values, better: Better) -> tuple[float, set[str], str]:
    """Returns the ratio of the best to the worst point, the names of the best points, and a description."""
    (_, top), (worst, low) = trends.best(values, better), trends.worst(values, better)
    names = [name for name, spread in values if spread.median == top.median]
    factor = trends.gain(low, top, better)
    return factor, set(names), f"best at {listed(names)}, {trends.times(factor)} better than at {worst}"


def _spearman(theirs: Values, their_better: Better, ours: Values, our_better: Better) -> float | None:
    """Spearman's rank correlation of performance; ``None`` for fewer than three points or a constant side."""
    if len(theirs) < 3:
        return None
    a, b = (
        pd.Series([spread.median if better == "higher" else -spread.median for _, spread in values]).rank()
        for values, better in ((theirs, their_better), (ours, our_better))
    )
    if a.nunique() < 2 or b.nunique() < 2:
        return None
    return float(a.corr(b))
