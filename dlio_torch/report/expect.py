"""The published figures of an application beside what was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dlio_torch.config.schema import ExpectConfig


@dataclass(frozen=True)
class ExpectRow:
    """One published figure beside the measured one.

    Attributes:
        metric: dotted name in the summary.
        published: the published value.
        measured: the value of this run; ``None``: not measured.
        ratio: measured / published; ``None`` without a measured value, or where 0 was published.
        alike: whether the relative difference is at most ``tolerance`` (the absolute one where 0 was published).
        tolerance: as configured.
        source: where the value was published.
    """

    metric: str
    published: float
    measured: float | None
    ratio: float | None
    alike: Literal["yes", "no", "not measured"]
    tolerance: float
    source: str


def compare(expect: Sequence[ExpectConfig], summary: Mapping[str, Any]) -> list[ExpectRow]:
    """One row per published figure, in the order of the recipe."""
    return [_row(one, lookup(summary, one.metric)) for one in expect]


def lookup(summary: Mapping[str, Any], metric: str) -> float | None:
    """The number at a dotted path of the summary (numbers index lists: ``ranks.0.au``); ``None`` if there is none."""
    value: Any = summary
    for name in metric.split("."):
        if isinstance(value, Mapping):
            value = value.get(name)
        elif isinstance(value, Sequence) and not isinstance(value, str) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if number else None


def _row(one: ExpectConfig, measured: float | None) -> ExpectRow:
    ratio: float | None = None
    alike: Literal["yes", "no", "not measured"] = "not measured"
    if measured is not None:
        ratio = measured / one.value if one.value else None
        limit = one.tolerance * (abs(one.value) or 1.0)
        # A difference that equals the tolerance but for the last binary digit is within it.
        alike = "yes" if abs(measured - one.value) <= limit * (1 + 1e-12) else "no"
    return ExpectRow(one.metric, one.value, measured, ratio, alike, one.tolerance, one.source)
