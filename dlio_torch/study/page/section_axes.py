"""Sections on the effect of each option: metrics over its values, one line for each setting of the other options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlio_torch.analysis.repeats import Spread
from dlio_torch.report.html.page_blocks import Block, Figure, Section, Table, Text
from dlio_torch.report.html.svg import to_svg
from dlio_torch.report.html.theme import VERMILLION, clean, panels
from dlio_torch.study.metrics import AU, FETCH, STORAGE_LIMIT, STORAGE_RATE, Metric
from dlio_torch.study.model import Axis
from dlio_torch.study.page.marks import (
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
from dlio_torch.study.page.page_sentences import effect_words, status
from dlio_torch.study.page.point_trials import AxisSlice, PointTrials
from dlio_torch.study.page.points import StudyView
from dlio_torch.study.values import axis_unit, powers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_AXES = 6
_MOST_PANELS = 12
_DODGE = 0.07  # of lines that would hide each other


def axis_section(study: StudyView) -> Section | None:
    """Builds a figure for every swept option, largest effect first."""
    axes = by_effect(study)
    if not study.scores or not axes:
        return None
    blocks: list[Block] = []
    if len(axes) > 1:
        blocks.append(_effect_table(study))
    for number, axis in enumerate(axes[:_MOST_AXES]):
        words = effect_words(study, axis)
        if words and len(axes) == 1:
            blocks.append(Text(" ".join(words)))
        if (figure := _figure(study, axis, f"axis-{number}")) is not None:
            blocks.append(figure)
    left = len(axes) - _MOST_AXES
    if left > 0:
        blocks.append(Text(f"{left} further options with a smaller effect on {study.objective.label} have no figure."))
    return Section("options", "Effect of each option", blocks)


def by_effect(study: StudyView) -> list[Axis]:
    """The swept options, largest effect first; workloads are not options."""
    return sorted((axis for axis in study.swept if axis.compared), key=lambda axis: -(study.effect(axis) or 0.0))


def _effect_table(study: StudyView) -> Table:
    rows = [
        [
            clean(axis.key),
            clean(", ".join(axis.values)) if len(axis.values) <= 12 else f"{len(axis.values)} values",
            "" if axis.default is None else clean(axis.default),
            "" if (ratio := study.effect(axis)) is None else f"{ratio:.2f}",
            " ".join(effect_words(study, axis)[-1:]),
        ]
        for axis in by_effect(study)
    ]
    note = (
        f"Best over worst: ratio of the best to the worst median of {study.objective.label} among settings in "
        "which only this option changes; the median of this ratio over all settings of the other options. A "
        "value is called best or as good by the rule of the table of settings, made stricter for the number of "
        "comparisons."
    )
    return Table("", ("<<option", "<values", "<<default", "best over worst", "<effect"), rows, note)


@dataclass(frozen=True)
class _AxisPanel:
    """One plot of the figure: a metric, and its lines."""

    metric: Metric
    lines: Sequence[tuple[str, AxisSlice]]
    title: str = ""


def _figure(study: StudyView, axis: Axis, name: str) -> Figure | None:
    """Draws the metrics over the values of ``axis``; ``None`` if no point has a score.

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
    styles = {label: (LINES[index % len(LINES)], MARKERS[index % len(MARKERS)]) for index, label in enumerate(labels)}
    limited = False
    with panels(len(plots), columns, 3.0) as (figure, grid):
        for number, (axes, plot) in enumerate(zip(grid, plots, strict=True)):
            positions = value_axis(axes, study, axis, across=across, label=number >= len(plots) - across)
            key = plot.metric.key
            limits = _limits(study, plot, positions) if key == STORAGE_RATE.key else []
            # Plots of the same metric are compared with each other.
            alike = [spread for other in plots if other.metric.key == key for spread in _spreads(other)]
            tops = [item.high for item in alike] + [height for _, height in limits]
            factor, unit = axis_unit(max(tops), plot.metric)
            metric_axis(axes, plot.metric, [value * factor for value in (*tops, *(item.low for item in alike))], unit)
            if plot.title and number % across:
                axes.set_ylabel("")
            for order, (label, context) in enumerate(plot.lines):
                shift = (order - (len(plot.lines) - 1) / 2) * _DODGE
                colour, marker = styles[label]
                drawn = [
                    (positions[value] + shift, point) for value, point in context.points.items() if key in point.spreads
                ]
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
                if point.failed and value in positions and _belongs(point, plot):
                    gid = f"f{number}-{point.number}"
                    tips[gid] = f"{study.label(point.settings)}: failed"
                    cross(axes, positions[value], gid)
        entries = [
            handle(label, color=styles[label][0], marker=styles[label][1], linestyle="-") for label in labels if label
        ]
        drawn_points = {point.number for plot in plots for _, line in plot.lines for point in line.points.values()}
        entries += handles(
            default=study.default_number in drawn_points,
            best=study.objective.label if study.best & drawn_points else "",
            failed=any(tip.startswith("f") for tip in tips),
            limit=limited,
        )
        legend_of(figure, entries)
        svg = to_svg(figure, name, f"{study.objective.label} over the values of {cut(axis.key, 60)}", tips)
    caption = "A mark is the median of a setting's repeats, the bar their smallest and largest value"
    if not study.repeated:
        caption = "A mark is the one run of a setting"
    caption += ", a line joins settings in which only this option changes" if several else ""
    caption += "; the abscissa is logarithmic" if powers(axis.values) else ""
    more = f" {hidden} further settings of the other options are only in the table." if hidden else ""
    return Figure(svg, f"Effect of {clean(axis.key)}", f"{caption}.{more}", status(study))


def _panels(study: StudyView, contexts: Sequence[AxisSlice]) -> tuple[list[_AxisPanel], int]:
    if len(contexts) <= len(LINES):
        lines = [(cut(study.label(context.fixed), 70), context) for context in contexts]
        return [_AxisPanel(metric, lines) for metric in _metrics(study)], 0
    counts = {key: len({context.fixed[key] for context in contexts}) for key in contexts[0].fixed}
    fitting = [key for key, count in counts.items() if 1 < count <= len(LINES)]
    by_line = max(fitting, key=lambda key: counts[key], default=None)
    groups: dict[str, list[tuple[str, AxisSlice]]] = {}
    for item in contexts:
        rest = {key: value for key, value in item.fixed.items() if key != by_line}
        line = "" if by_line is None else study.label({by_line: item.fixed[by_line]})
        groups.setdefault(cut(study.label(rest), 60), []).append((line, item))
    shown = list(groups.items())[:_MOST_PANELS]
    hidden = len(contexts) - sum(len(lines) for _, lines in shown)
    return [_AxisPanel(study.objective, lines, title) for title, lines in shown], hidden


def _metrics(study: StudyView) -> list[Metric]:
    """Metrics that get a panel: objective, utilisation, wait for data and, if there is a storage limit, the rate."""
    measured = {metric.key: metric for metric in study.metrics}
    wanted = [study.objective.key, AU.key, FETCH.key]
    if STORAGE_LIMIT.key in measured:
        wanted.append(STORAGE_RATE.key)
    return [measured[key] for key in dict.fromkeys(wanted) if key in measured and _has(study, key)]


def _has(study: StudyView, key: str) -> bool:
    return any(key in point.spreads for point in study.points)


def _spreads(plot: _AxisPanel) -> list[Spread]:
    """Spreads of the values that a plot shows."""
    points = [point for _, context in plot.lines for point in context.points.values()]
    return [spread for point in points if (spread := point.spreads.get(plot.metric.key)) is not None]


def _limits(study: StudyView, plot: _AxisPanel, positions: Mapping[str, float]) -> list[tuple[float, float]]:
    """Position and height of the limit of the storage of each setting."""
    result = []
    for value, x in positions.items():
        local = [
            point.spreads[STORAGE_LIMIT.key].median
            for _, context in plot.lines
            if (point := context.points.get(value)) is not None and STORAGE_LIMIT.key in point.spreads
        ]
        result += [(x, height) for height in dict.fromkeys(local)]
    return result


def _belongs(point: PointTrials, plot: _AxisPanel) -> bool:
    """Whether a failed point lies on a line of a plot."""
    if not plot.title:
        return True
    return any(
        all(point.settings.get(key) == value for key, value in context.fixed.items()) for _, context in plot.lines
    )


def _mark(axes: Axes, study: StudyView, point: PointTrials, x: float, y: float) -> None:
    if point.number == study.default_number:
        ring(axes, x, y)
    if point.number in study.best:
        star(axes, x, y)
