"""Compares points and statements of a publication with the points of a study.

Both sides are set to 1 at a reference point, so that a Lustre file system with eight ranks and a laptop's disk can be
compared at all; what is compared is the shape (:mod:`dlio_torch.study.published.shape`) and whether sentences hold
(:mod:`dlio_torch.study.published.trends`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from dlio_torch.analysis.repeats import Noise, Spread, noise
from dlio_torch.study.metrics import Metric, metric
from dlio_torch.study.published import shape, trends
from dlio_torch.study.published.publication import Claim, Published, Series
from dlio_torch.study.published.trends import Values
from dlio_torch.study.values import counted, listed
from dlio_torch.units import format_size


@dataclass(frozen=True)
class PublishedPoint:
    """A point of a published figure and the measured point of this study.

    Args:
        value: of the axis, as the study writes it.
        published: what the publication shows, ``None`` where it has no such point.
        measured: ours, ``None`` where it was not measured or failed.
    """

    value: str
    published: float | None
    measured: Spread | None


@dataclass(frozen=True)
class PublishedFigure:
    """A published series and the measured points of this study.

    Args:
        series: what was published.
        title: of the figure (``"Fig. 11 a: HDF5 chunk size, Cosmic Tagger"``), with the values of other axes at which
            our points are taken.
        points: in the order of the abscissa.
        reference: value of the axis at which both are set to 1; ``""``: the first that both have.
        words: where the trends agree and where they do not, one sentence each.
    """

    series: Series
    title: str
    points: tuple[PublishedPoint, ...]
    reference: str = ""
    words: tuple[str, ...] = ()

    @property
    def repeated(self) -> bool:
        """Whether any point ran more than once."""
        return any(point.measured is not None and point.measured.count > 1 for point in self.points)

    @property
    def metric(self) -> Metric:
        """The metric of our points."""
        return metric(self.series.measured)


@dataclass(frozen=True)
class Statement:
    """A published statement, and its verdict by the measured points.

    Args:
        text: the sentence.
        verdict: ``"agrees"``, ``"partly"``, ``"contradicts"``, ``"within noise"``, ``"cannot be told"`` or ``"not
            measured"``.
        words: why, with figures.
        source: where it is from.
    """

    text: str
    verdict: str
    words: str = ""
    source: str = ""


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
        counted(cores, "core") if cores else None,
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
    for combination, rows in _combinations(points, series.axis, series.other_axes, axes):
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
                series,
                title,
                tuple(
                    PublishedPoint(name, theirs.get(name), ours.get(name)) for name in _merged(list(theirs), list(ours))
                ),
                _reference(series, ours),
                tuple(words),
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
    for combination, rows in _combinations(points, claim.axis, claim.other_axes, axes):
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
        names = listed([f"{key}={claim.other_axes[key]}" for key in away])
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
    result = _along(rows, axis, measured)
    if not metric(measured).counted:
        return result
    return [(name, replace(spread, count=max(spread.count, 2))) for name, spread in result]


def _reference(series: Series, ours: Mapping[str, Spread]) -> str:
    if series.reference in ours and series.reference in dict(series.points):
        return series.reference
    return next((name for name, _ in series.points if name in ours), "")


def _combinations(
    points: pd.DataFrame, axis: str, fixed: Mapping[str, str], axes: Sequence[str]
) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yields the rows along one axis, for each combination of the values of the other axes.

    Args:
        points: of :func:`dlio_torch.study.tables.points_table`.
        axis: the one along which points are compared.
        fixed: values of other axes to which the rows are limited.
        axes: keys of all axes of the study.

    Returns:
        What a combination is in words, and its rows; no rows where an axis has no such value.
    """
    rows = points
    for key, value in fixed.items():
        rows = rows[rows[key].astype(str) == value] if key in rows else rows.iloc[0:0]
    others = [key for key in axes if key in points and key != axis and key not in fixed and points[key].nunique() > 1]
    if not others:
        yield _label(fixed), rows
        return
    for chosen, part in rows.groupby(others, sort=False):
        yield _label({**fixed, **dict(zip(others, map(str, chosen), strict=True))}), part


def _label(values: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())


def _along(rows: pd.DataFrame, axis: str, measured: str) -> list[tuple[str, Spread]]:
    """Returns axis value and repeats of the rows that have the figure (above 0), in order."""
    if axis not in rows or measured not in rows:
        return []
    result = []
    for _, row in rows.iterrows():
        median = row[measured]
        if pd.notna(median) and median > 0:
            low, high = row.get(f"{measured}.min", median), row.get(f"{measured}.max", median)
            result.append((str(row[axis]), Spread(float(median), float(low), float(high), int(row.get("n", 1)))))
    return result
