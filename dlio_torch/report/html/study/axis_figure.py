"""What an option does: the metrics over its values, a line for every setting of the other options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlio_torch.analysis.repeats import Spread
from dlio_torch.report.html.study.data import AU, FETCH, STORAGE_LIMIT, STORAGE_RATE, Axis, Metric
from dlio_torch.report.html.study.marks import (
    LINES,
    MARKERS,
    cross,
    cut,
    dot,
    handle,
    handles,
    legend_of,
    metric_axis,
    ring,
    spoken,
    star,
    value_axis,
)
from dlio_torch.report.html.study.points import Context, Point, Study
from dlio_torch.report.html.study.values import axis_unit, powers
from dlio_torch.report.html.svg import to_svg
from dlio_torch.report.html.theme import VERMILLION, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_PANELS = 12
_DODGE = 0.07  # of lines that would hide each other


@dataclass(frozen=True)
class AxisFigure:
    """The figure, and what its caption must say.

    Args:
        svg: text of the element.
        how: what is drawn.
        hidden: settings of the other options that are not shown.
    """

    svg: str
    how: str
    hidden: int


@dataclass(frozen=True)
class _Panel:
    """A plot: a metric, and the lines in it."""

    metric: Metric
    lines: Sequence[tuple[str, Context]]
    title: str = ""


def axis_figure(study: Study, axis: Axis, name: str) -> AxisFigure | None:
    """The metrics over the values of ``axis``; ``None`` where no point has a score.

    Up to six settings of the other options are lines in a panel per metric.  More are small multiples of the
    objective: the other option with the most values (up to six) makes the lines, the rest the panels.
    """
    contexts = study.contexts(axis)
    if not contexts:
        return None
    plots, hidden = _panels(study, contexts)
    tips: dict[str, str] = {}
    several = len(plots[0].lines) > 1 or any(label for label, _ in plots[0].lines)
    columns = 2 if len(plots) in (2, 4) else 3
    across = min(columns, len(plots))
    labels = list(dict.fromkeys(label for plot in plots for label, _ in plot.lines))
    styles = {label: (LINES[at % len(LINES)], MARKERS[at % len(MARKERS)]) for at, label in enumerate(labels)}
    limited = False
    with panels(len(plots), columns, 3.0) as (figure, grid):
        for number, (axes, plot) in enumerate(zip(grid, plots, strict=True)):
            at = value_axis(axes, study, axis, across=across, label=number >= len(plots) - across)
            key = plot.metric.key
            limits = _limits(study, plot, at) if key == STORAGE_RATE.key else []
            # Plots of the same metric are compared with each other.
            alike = [one for other in plots if other.metric.key == key for one in _spreads(other)]
            tops = [one.high for one in alike] + [height for _, height in limits]
            factor, unit = axis_unit(max(tops), plot.metric)
            metric_axis(axes, plot.metric, [value * factor for value in (*tops, *(one.low for one in alike))], unit)
            if plot.title and number % across:
                axes.set_ylabel("")
            for order, (label, context) in enumerate(plot.lines):
                shift = (order - (len(plot.lines) - 1) / 2) * _DODGE
                colour, marker = styles[label]
                drawn = [(at[value] + shift, point) for value, point in context.points.items() if key in point.spreads]
                drawn.sort(key=lambda pair: pair[0])
                axes.plot(
                    [x for x, _ in drawn],
                    [point.spreads[key].median * factor for _, point in drawn],
                    color=colour,
                    linewidth=1.4,
                    alpha=0.75,
                    zorder=2,
                )
                for x, point in drawn:
                    gid = f"p{number}-{order}-{point.number}"
                    tips[gid] = f"{study.label(point.settings)}: {spoken(point.spreads[key], plot.metric)}"
                    dot(axes, x, point.spreads[key], factor, colour=colour, marker=marker, tip=gid)
                    _mark(axes, study, point, x, point.spreads[key].median * factor)
            for x, height in limits:
                axes.hlines(height * factor, x - 0.4, x + 0.4, color=VERMILLION, linestyle="--", linewidth=1.2)
            limited = limited or bool(limits)
            if plot.title:
                axes.set_title(plot.title, fontsize=9.5)
            for point in study.points if number == 0 or plot.title else ():
                value = point.settings.get(axis.key, "")
                if point.failed and value in at and _belongs(point, plot):
                    gid = f"f{number}-{point.number}"
                    tips[gid] = f"{study.label(point.settings)}: failed"
                    cross(axes, at[value], gid)
        entries = [
            handle(label, color=styles[label][0], marker=styles[label][1], linestyle="-") for label in labels if label
        ]
        drawn_points = {point.number for plot in plots for _, one in plot.lines for point in one.points.values()}
        entries += handles(
            default=study.default is not None and study.default.number in drawn_points,
            best=study.objective.label if study.best & drawn_points else "",
            failed=any(tip.startswith("f") for tip in tips),
            limit=limited,
        )
        legend_of(figure, entries)
        svg = to_svg(figure, name, f"{study.objective.label} over the values of {cut(axis.key, 60)}", tips)
    how = "A mark is the median of a setting's repeats, the bar their smallest and largest value"
    if not study.repeated:
        how = "A mark is the one run of a setting"
    how += ", a line joins settings in which only this option changes" if several else ""
    how += "; the abscissa is logarithmic" if powers(axis.values) else ""
    return AxisFigure(svg, f"{how}.", hidden)


def _panels(study: Study, contexts: Sequence[Context]) -> tuple[list[_Panel], int]:
    if len(contexts) <= len(LINES):
        lines = [(cut(study.label(one.fixed), 70), one) for one in contexts]
        return [_Panel(metric, lines) for metric in _metrics(study)], 0
    counts = {key: len({one.fixed[key] for one in contexts}) for key in contexts[0].fixed}
    fitting = [key for key, count in counts.items() if 1 < count <= len(LINES)]
    by_line = max(fitting, key=lambda key: counts[key], default=None)
    groups: dict[str, list[tuple[str, Context]]] = {}
    for one in contexts:
        rest = {key: value for key, value in one.fixed.items() if key != by_line}
        line = "" if by_line is None else study.label({by_line: one.fixed[by_line]})
        groups.setdefault(cut(study.label(rest), 60), []).append((line, one))
    shown = list(groups.items())[:_MOST_PANELS]
    hidden = len(contexts) - sum(len(lines) for _, lines in shown)
    return [_Panel(study.objective, lines, title) for title, lines in shown], hidden


def _metrics(study: Study) -> list[Metric]:
    """The metrics that have a panel: the objective, utilisation, the wait for data, and where limited the rate."""
    measured = {one.key: one for one in study.metrics}
    wanted = [study.objective.key, AU.key, FETCH.key]
    if STORAGE_LIMIT.key in measured or study.data.limits:
        wanted.append(STORAGE_RATE.key)
    return [measured[key] for key in dict.fromkeys(wanted) if key in measured and _has(study, key)]


def _has(study: Study, key: str) -> bool:
    return any(key in point.spreads for point in study.points)


def _spreads(plot: _Panel) -> list[Spread]:
    """The values that a plot shows."""
    points = [point for _, context in plot.lines for point in context.points.values()]
    return [one for point in points if (one := point.spreads.get(plot.metric.key)) is not None]


def _limits(study: Study, plot: _Panel, at: Mapping[str, float]) -> list[tuple[float, float]]:
    """Where a limit of the storage is drawn, and how high: each setting's own, else that of the directory."""
    found = []
    for value, x in at.items():
        own = [
            point.spreads[STORAGE_LIMIT.key].median
            for _, context in plot.lines
            if (point := context.points.get(value)) is not None and STORAGE_LIMIT.key in point.spreads
        ]
        own = own or [one.bytes_per_s for one in study.data.limits[:1]]
        found += [(x, height) for height in dict.fromkeys(own)]
    return found


def _belongs(point: Point, plot: _Panel) -> bool:
    """Whether a failed point lies on a line of a plot."""
    if not plot.title:
        return True
    return any(
        all(point.settings.get(key) == value for key, value in context.fixed.items()) for _, context in plot.lines
    )


def _mark(axes: Axes, study: Study, point: Point, x: float, y: float) -> None:
    if study.default is not None and point.number == study.default.number:
        ring(axes, x, y)
    if point.number in study.best:
        star(axes, x, y)
