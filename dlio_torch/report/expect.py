"""Compares the published figures of an application with measured ones, with a distance and a limit for each.

Each figure has a distance, the relative difference from the published value, and a limit, its tolerance.  Rows
are in the order of distance over limit, worst first; what was not measured comes last.

A metric is the dotted name of a figure of ``summary.json``, or one of a run that recorded its calls
(``trace.posix=true``)::

    posix.<read|write|all>.<figure>     figure: one of FIGURES, of all recorded files of the layer that counts
                                        (dlio_torch.iotrace.figures.call_selection)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dlio_torch.analysis.summary_figures import find
from dlio_torch.config.schema import ExpectConfig
from dlio_torch.units import format_duration, format_number, format_rate, format_size, percent


@dataclass(frozen=True)
class ExpectRow:
    """A published figure and the corresponding measured figure.

    Attributes:
        metric: dotted name in the summary.
        published: the published value.
        measured: the value of this run; ``None``: not measured.
        ratio: measured / published; ``None`` without a measured value, or where 0 was published.
        alike: whether the distance is at most ``tolerance``; ``scaled``: the figure follows from an option that
            the scale has changed, so the published one is none to be compared with.
        tolerance: as configured; the limit of the distance.
        source: where the value was published.
        distance: |measured - published| / |published|, the absolute difference where 0 was published;
            ``None``: not measured, or scaled.
    """

    metric: str
    published: float
    measured: float | None
    ratio: float | None
    alike: Literal["yes", "no", "scaled", "not measured"]
    tolerance: float
    source: str
    distance: float | None = None


FIGURES = {
    "calls": "io.sizes.{}.count",
    "bytes": "io.sizes.{}.bytes",
    "min_bytes": "io.sizes.{}.min",
    "max_bytes": "io.sizes.{}.max",
    "mean_bytes": "io.sizes.{}.mean",
    "median_bytes": "io.sizes.{}.median",
    "bytes_per_s": "io.bandwidth.{}.bytes_per_s",
    "io_s": "io.bandwidth.{}.io_s",
    "sequential": "io.shares.process.{}.sequential",
    "consecutive": "io.shares.process.{}.consecutive",
    "sequential_per_stream": "io.shares.stream.{}.sequential",
    "consecutive_per_stream": "io.shares.stream.{}.consecutive",
}
"""Short names of I/O figures, and their paths in the figures of recorded calls."""

_CLASSES = ("read", "write", "all")
_FOLLOWS = {
    "au": "compute.step_s",
    "step": "compute.step_s",
    "shares": "compute.step_s",
}  # a group of metrics, and what it hangs on


def compare(expect: Sequence[ExpectConfig], summary: Mapping[str, Any]) -> list[ExpectRow]:
    """Returns one row per published figure, worst first; rows of equal distance keep the recipe's order."""
    scaled = {note.split()[0] for note in summary.get("scaled", ())}
    rows = [
        _row(expected, lookup(summary, expected.metric), scaled=_FOLLOWS.get(expected.metric.split(".")[0]) in scaled)
        for expected in expect
    ]
    return sorted(rows, key=_severity, reverse=True)


def figure_text(metric: str, value: float | None) -> str:
    """The value of a metric with a unit that people read: ``505 KiB``, ``12.0 ms``, ``97.3 %``; ``-`` for None."""
    if value is None:
        return "-"
    figure = find(".".join(_path(metric)))
    unit = "" if figure is None else figure.unit
    shown = {"s": format_duration, "B": format_size, "B/s": format_rate, "share": percent}
    return shown.get(unit, format_number)(value)


def lookup(summary: Mapping[str, Any], metric: str) -> float | None:
    """Looks up the number of a metric by its name, see the module's text; ``None`` if there is none.

    Numbers in a dotted name index lists: ``ranks.0.au``.
    """
    value: Any = summary
    for name in _path(metric):
        if isinstance(value, Mapping):
            value = value.get(name)
        elif isinstance(value, Sequence) and not isinstance(value, str) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if number else None


def _path(metric: str) -> list[str]:
    parts = metric.split(".")
    if len(parts) == 3 and parts[0] == "posix" and parts[1] in _CLASSES and parts[2] in FIGURES:
        return ["posix", *FIGURES[parts[2]].format(parts[1]).split(".")]
    return parts


def _row(expected: ExpectConfig, measured: float | None, *, scaled: bool) -> ExpectRow:
    if measured is None:
        return ExpectRow(
            expected.metric, expected.value, None, None, "not measured", expected.tolerance, expected.source
        )
    ratio = measured / expected.value if expected.value else None
    if scaled:
        return ExpectRow(
            expected.metric, expected.value, measured, ratio, "scaled", expected.tolerance, expected.source
        )
    distance = abs(measured - expected.value) / (abs(expected.value) or 1.0)
    alike: Literal["yes", "no"] = "yes" if distance <= _limit(expected.tolerance) else "no"
    return ExpectRow(
        expected.metric, expected.value, measured, ratio, alike, expected.tolerance, expected.source, distance
    )


def _limit(tolerance: float) -> float:
    """Limit of the difference; a difference that exceeds the tolerance by rounding only is within the limit."""
    return tolerance * (1 + 1e-12) + 1e-12


def _severity(row: ExpectRow) -> float:
    """Sort key: distance / limit; exact figures that differ come first, figures that were not measured last."""
    if row.distance is None:
        return -1.0
    return row.distance / row.tolerance if row.tolerance else math.inf if row.distance else 0.0
