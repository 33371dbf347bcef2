"""Compares points and statements of a publication with the points of a study.

Both sides are set to 1 at a reference point, so that a Lustre file system with eight ranks and a laptop's disk can be
compared at all; what is compared is the shape (:mod:`dlio_torch.study.published.shape`) and whether sentences hold
(:mod:`dlio_torch.study.published.trends`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from dlio_torch.analysis.repeats import Noise, Spread, noise
from dlio_torch.study.metrics import metric
from dlio_torch.study.page.findings import PublishedFigure, PublishedPoint, Statement
from dlio_torch.study.published import shape, trends
from dlio_torch.study.published.slices import along, combinations
from dlio_torch.study.published.trends import Better, Trend, Values
from dlio_torch.units import format_size


@dataclass(frozen=True)
class Series:
    """Points of a published figure.

    Args:
        title: of the figure; series of one title share a figure.
        axis: key of the swept option along its abscissa.
        points: text of the axis' value and published value, in the order of the abscissa.
        quantity: that was published (``"I/O time"``).
        unit: of it (``"s"``, ``"share"``).
        better: its direction.
        measured: dotted path of our figure beside it.
        measured_better: direction of that.
        system: what they were measured on, ranks included.
        source: where they are from, and how they were read.
        reference: value of the axis at which both sides are 1; ``""``: the first that both have.
        name: of the line where a figure has several.
        other_axes: values of other axes at which our points are taken.
    """

    title: str
    axis: str
    points: tuple[tuple[str, float], ...]
    quantity: str
    unit: str
    better: Better
    measured: str
    measured_better: Better
    system: str
    source: str
    reference: str = ""
    name: str = ""
    other_axes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Claim:
    """A published statement as a trend that can be checked.

    Args:
        text: the sentence.
        source: where it is from.
        axis: key of the swept option along which it is checked.
        trend: what must hold.
        measured: dotted path of our figure.
        better: direction of that.
        other_axes: values of other axes at which our points are taken.
    """

    text: str
    source: str
    axis: str
    trend: Trend
    measured: str
    better: Better
    other_axes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Published:
    """The publication as a study file describes it.

    Args:
        series: published points.
        claims: published sentences.
        remarks: what is to be said with them, one paragraph each.
        larger_than_memory: the publication's data did not fit into memory, and that is the point.
    """

    series: tuple[Series, ...] = ()
    claims: tuple[Claim, ...] = ()
    remarks: tuple[str, ...] = ()
    larger_than_memory: bool = False


@dataclass(frozen=True)
class Agreement:
    """Verdict on one published figure or statement by the measurements of this study.

    Args:
        statement: what was published, the verdict (see :mod:`dlio_torch.study.published.trends`) and why.
        figure: the points of both sides; ``None`` for a sentence.
    """

    statement: Statement
    figure: PublishedFigure | None = None


def compare(points: pd.DataFrame, published: Published, *, axes: Sequence[str] = (), here: str = "") -> list[Agreement]:
    """Compare the points of a study with its publication.

    Args:
        points: one row a point: a column for each axis (text of the value), ``n`` (repeats), and for each figure its
            dotted path (median), with ``.min`` and ``.max`` its range.
        published: of the study file.
        axes: keys of all axes of the study.
        here: where the points were measured, in a few words; see :func:`place`.

    Returns:
        One entry for each series and each claim; several where other axes than its own were swept and it does not
        say at which of their values.
    """
    result = [item for series in published.series for item in _series(points, series, axes, here)]
    return result + [item for claim in published.claims for item in _claims(points, claim, axes)]


def place(environment: Mapping[str, Any], cache: str = "") -> str:
    """Machine of a run, from its ``environment.json``: ``"ext4, 2 cores, 23.5 GiB of memory, page cache cold"``."""
    mounts, cpu, memory = (environment.get(key) or {} for key in ("mounts", "cpu", "memory"))
    system = (mounts.get("data") or {}).get("file_system")
    cores, size = cpu.get("cores_usable"), memory.get("total_bytes")
    parts = [
        system,
        f"{cores} core{'' if cores == 1 else 's'}" if cores else None,
        f"{format_size(size)} of memory" if size else None,
        f"page cache {cache}" if cache else None,
    ]
    return ", ".join(part for part in parts if part)


def precautions(published: Published, data_bytes: float | None, memory_bytes: float | None) -> tuple[str, ...]:
    """Returns warnings for a study that needs data larger than memory; empty for other studies.

    Args:
        published: of the study file.
        data_bytes: largest data set of the study.
        memory_bytes: of the machine, or the limit of the job.
    """
    if not published.larger_than_memory or data_bytes is None:
        return ()
    if memory_bytes is not None and data_bytes > memory_bytes:
        return (
            f"The data set ({format_size(data_bytes)}) is larger than memory ({format_size(memory_bytes)}), as in the "
            "publication.",
        )
    size = f" of {format_size(memory_bytes)}" if memory_bytes is not None else ""
    return (
        f"The publication's data did not fit into memory. The data of this study ({format_size(data_bytes)}) fit "
        f"into memory{size}, so each epoch begins with an evicted page cache instead. A chunk that is read again "
        "within an epoch then comes from memory, not from the device as in the publication: the bytes requested "
        "per sample show the amount that the device would have to deliver.",
    )


def _series(points: pd.DataFrame, series: Series, axes: Sequence[str], here: str) -> Iterator[Agreement]:
    for combination, rows in combinations(points, series.axis, series.other_axes, axes):
        values = _values(rows, series.axis, series.measured)
        outcome = shape.check(
            series.points, series.better, values, series.measured_better, _scatter(points, series.axis, series.measured)
        )
        ours = dict(values)
        theirs = dict(series.points)
        words = [outcome.words, f"Published for: {series.system}." + (f" Measured on: {here}." if here else "")]
        title = series.title + (f", {combination}" if combination else "")
        named = f", {series.name}" if series.name and series.name != series.quantity else ""
        yield Agreement(
            Statement(f"{title}: {series.quantity}{named}", outcome.verdict, " ".join(words), series.source),
            PublishedFigure(
                title=title,
                axis=series.axis,
                points=tuple(
                    PublishedPoint(name, theirs.get(name), ours.get(name)) for name in _merged(list(theirs), list(ours))
                ),
                published_label=series.quantity,
                published_unit=series.unit,
                published_better=series.better,
                measured_label=metric(series.measured).label,
                measured_unit=metric(series.measured).unit,
                measured_better=series.measured_better,
                reference=_reference(series, ours),
                source=series.source,
                system=series.system,
                series=series.name,
                words=tuple(words),
            ),
        )


def _merged(theirs: Sequence[str], ours: Sequence[str]) -> list[str]:
    """Merges published and measured names without duplicates, keeping both orders."""
    result: list[str] = []
    done = 0
    for name in theirs:
        place = ours.index(name) if name in ours else 0
        result += [name for name in ours[done:place] if name not in theirs]
        done = max(done, place)
        result.append(name)
    return result + [name for name in ours[done:] if name not in theirs]


def _claims(points: pd.DataFrame, claim: Claim, axes: Sequence[str]) -> Iterator[Agreement]:
    for combination, rows in combinations(points, claim.axis, claim.other_axes, axes):
        outcome = trends.check(
            claim.trend,
            _values(rows, claim.axis, claim.measured),
            claim.better,
            _scatter(points, claim.axis, claim.measured),
        )
        words = f"{combination}: {outcome.words}" if combination else outcome.words
        if outcome.verdict == "not measured":
            words = _remedy(points, rows, claim, words)
        yield Agreement(
            Statement(claim.text, outcome.verdict, f"{words} ({metric(claim.measured).label})", claim.source)
        )


def _remedy(points: pd.DataFrame, rows: pd.DataFrame, claim: Claim, words: str) -> str:
    """Returns why a claim was not measured, and how to measure it."""
    away = [
        key for key, value in claim.other_axes.items() if key not in points or value not in set(points[key].astype(str))
    ]
    if away:
        names = trends.listed([f"{key}={claim.other_axes[key]}" for key in away])
        return (
            f"No point at {names} was measured. Add it to the values of the axis, or choose a scale that contains it."
        )
    swept = set(rows[claim.axis].astype(str)) if claim.axis in rows else set()
    if swept >= {claim.trend.value, claim.trend.start, claim.trend.end} - {""} and len(swept) > 1:
        return f"{words} The runs of this point failed."
    return (
        f"{words} Add all values that the statement needs to the axis {claim.axis}, or choose a scale that contains "
        "them."
    )


def _scatter(points: pd.DataFrame, axis: str, measured: str) -> Noise | None:
    """Returns the scatter of single runs, which decides which settings are as good as the best."""
    return noise(spread for _, spread in _values(points, axis, measured))


def _values(rows: pd.DataFrame, axis: str, measured: str) -> Values:
    """Returns the points along an axis; for a count, one run is enough."""
    result = along(rows, axis, measured)
    if not metric(measured).counted:
        return result
    return [(name, replace(spread, count=max(spread.count, 2))) for name, spread in result]


def _reference(series: Series, ours: Mapping[str, Spread]) -> str:
    if series.reference in ours and series.reference in dict(series.points):
        return series.reference
    return next((name for name, _ in series.points if name in ours), "")
