"""Section that compares published points with measured points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from dlio_torch.analysis.repeats import Spread
from dlio_torch.report.html.page_blocks import UNKNOWN, Block, Figure, Notes, Section, Table, Text
from dlio_torch.report.html.svg import to_svg
from dlio_torch.report.html.theme import BLUE, ORANGE, SLATE, clean, panels
from dlio_torch.study.page.marks import cut, handle, legend_of, logarithmic, value_ticks
from dlio_torch.study.page.page_sentences import status
from dlio_torch.study.page.points import StudyView
from dlio_torch.study.published.comparison import PublishedFigure, PublishedPoint
from dlio_torch.study.values import canonical, places, span_text, text_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDE = 8.0
_MOST_PANELS = 9


def published_section(study: StudyView) -> Section | None:
    """Builds figures with both lines, tables with both values, and sentences on the agreement."""
    data = study.data
    if not (data.published or data.statements or data.remarks):
        return None
    blocks: list[Block] = []
    if data.remarks:
        blocks.append(Notes([clean(remark) for remark in data.remarks]))
    if data.statements:
        rows = [
            [clean(statement.text), clean(statement.verdict), clean(statement.words), clean(statement.source)]
            for statement in data.statements
        ]
        heads = ("<published statement", "<<verdict", "<what was measured", "<source")
        blocks.append(Table("Published statements and measurements of this study", heads, rows))
    sentence = " ".join(statement.words for statement in data.statements)
    titles = dict.fromkeys(item.title for item in data.published)
    for number, title in enumerate(titles):
        series = [item for item in data.published if item.title == title and item.points]
        if not series:
            continue
        words = dict.fromkeys(clean(word) for curve in series for word in curve.words if word.strip() not in sentence)
        if words:
            blocks.append(Text(" ".join(words)))
        svg = _figure(series[:_MOST_PANELS], f"published-{number}")
        blocks.append(Figure(svg, clean(title), _caption(series), _status(study, series)))
        blocks += [_table(curve) for curve in series]
    return Section("published", "Published and measured", blocks)


def _caption(series: Sequence[PublishedFigure]) -> str:
    result = series[0]
    start = _reference(result)
    positions = f" at {clean(result.series.axis)}={clean(start.value)}" if start is not None else ""
    theirs = dict.fromkeys(_times(other.series.quantity, other.series.better) for other in series)
    ours = dict.fromkeys(_times(other.metric.label, other.series.measured_better) for other in series)
    repeated = any(other.repeated for other in series)
    text = (
        f"Both lines are relative to their own value{positions}; higher is better. Published: "
        f"{', '.join(theirs)}; measured: {'median of ' if repeated else ''}"
        f"{', '.join(ours)}{'; bars from the smallest to the largest repeat' if repeated else ''}."
    )
    if len(series) > _MOST_PANELS:
        text += f" {len(series) - _MOST_PANELS} further series are only in the tables."
    return text


def _times(label: str, better: Literal["higher", "lower"]) -> str:
    """Returns the label of a line: ``job time (reference / value)``."""
    return f"{clean(label)} ({'value / reference' if better == 'higher' else 'reference / value'})"


def _status(study: StudyView, series: Sequence[PublishedFigure]) -> str:
    systems = list(dict.fromkeys(clean(curve.series.system) for curve in series if curve.series.system))
    sources = list(dict.fromkeys(clean(curve.series.source) for curve in series if curve.series.source))
    text = status(study)
    if systems:
        text += (
            f" Published for {'; '.join(systems)}, which is another machine, so only the shapes of the lines can agree."
        )
    return text + (f" Source: {'; '.join(sources)}." if sources else "")


def _table(figure: PublishedFigure) -> Table:
    rows = []
    for point in figure.points:
        theirs, ours = _published_times(figure, point), _measured_times(figure, point)
        measured = point.measured
        rows.append(
            [
                clean(point.value),
                UNKNOWN if point.published is None else text_of(point.published, figure.series.unit),
                UNKNOWN if measured is None else text_of(measured.median, figure.metric.unit),
                *([_span(measured, figure.metric.unit)] if figure.repeated else []),
                UNKNOWN if theirs is None else f"{theirs:.3g}",
                UNKNOWN if ours is None else f"{ours.median:.3g}",
            ]
        )
    heads = [f"<<{clean(figure.series.axis)}"]
    heads += [f"published {clean(figure.series.quantity)}", f"measured {clean(figure.metric.label)}"]
    heads += ["smallest to largest"] if figure.repeated else []
    heads += ["published, relative to the reference", "measured, relative to the reference"]
    return Table(clean(figure.series.name or figure.series.quantity), tuple(heads), rows)


def _span(measured: Spread | None, unit: str) -> str:
    return UNKNOWN if measured is None or measured.count < 2 else span_text(measured.low, measured.high, unit)


def _reference(figure: PublishedFigure) -> PublishedPoint | None:
    """Returns the point at which both lines are 1; ``None`` if no point has both values."""
    both = [
        point for point in figure.points if point.published and point.measured is not None and point.measured.median
    ]
    named = [item for item in both if canonical(item.value) == canonical(figure.reference)]
    return next(iter([*named, *both]), None)


def _multiple(value: float | None, reference: float | None, better: Literal["higher", "lower"]) -> float | None:
    """Returns the ratio of a value to the value at the reference, above 1 if it is better."""
    if value is None or reference is None or value <= 0 or reference <= 0:
        return None
    return value / reference if better == "higher" else reference / value


def _measured_times(figure: PublishedFigure, point: PublishedPoint) -> Spread | None:
    """Returns the measured point with its range, relative to the median at the measured reference."""
    start = _reference(figure)
    if start is None or start.measured is None or point.measured is None:
        return None
    ends = [
        _multiple(value, start.measured.median, figure.series.measured_better)
        for value in (point.measured.median, point.measured.low, point.measured.high)
    ]
    known = [value for value in ends if value is not None]
    if len(known) < 3:
        return None
    return Spread(known[0], min(known), max(known), point.measured.count)


def _published_times(figure: PublishedFigure, point: PublishedPoint) -> float | None:
    """Returns the published point relative to the published reference."""
    start = _reference(figure)
    return None if start is None else _multiple(point.published, start.published, figure.series.better)


def _figure(series: Sequence[PublishedFigure], name: str) -> str:
    """Draws a plot for every series: the published and the measured line, both 1 at the reference."""
    tips: dict[str, str] = {}
    columns = min(3, len(series))
    repeated = any(curve.repeated for curve in series)
    with panels(len(series), columns, 3.2) as (figure, grid):
        for order, (axes, entry) in enumerate(zip(grid, series, strict=True)):
            positions = places([point.value for point in entry.points])
            values: list[float] = []
            lines: tuple[tuple[str, str, str, str], ...] = (
                ("published", ORANGE, "s", "--"),
                ("measured here", BLUE, "o", "-"),
            )
            for line, colour, marker, style in lines:
                drawn = [(x, item, _value(entry, item, line)) for x, item in zip(positions, entry.points, strict=True)]
                known = sorted((x, value.median) for x, _, value in drawn if value is not None)
                axes.plot(
                    [x for x, _ in known],
                    [value for _, value in known],
                    color=colour,
                    linestyle=style,
                    linewidth=1.6,
                    zorder=2,
                )
                for x, element, value in drawn:
                    if value is None:
                        continue
                    gid = f"s{order}-{line[0]}-{x:g}"
                    tips[gid] = f"{line}, {element.value}: {value.median:.3g} times the reference"
                    if value.high > value.low:
                        axes.vlines(x, value.low, value.high, color=colour, linewidth=1.3, zorder=3)
                    face = "white" if line == "published" else colour
                    [mark] = axes.plot(
                        [x], [value.median], marker=marker, color=colour, markerfacecolor=face, markersize=6.5, zorder=4
                    )
                    mark.set_gid(gid)
                    values += [value.low, value.high]
            axes.axhline(1, color=SLATE, linewidth=0.8, zorder=1)
            _axes(axes, entry, positions, values, across=columns)
            if len(series) > 1 or entry.series.name:
                axes.set_title(cut(entry.series.name or entry.series.quantity, 60), fontsize=9.5)
            if order % columns == 0:
                axes.set_ylabel("times as good\nas at the reference")
        legend_of(
            figure,
            [
                handle("published", marker="s", color=ORANGE, markerfacecolor="white", linestyle="--"),
                handle(
                    f"measured here{', median and range' if repeated else ''}", marker="o", color=BLUE, linestyle="-"
                ),
            ],
        )
        return to_svg(figure, name, f"{cut(series[0].title, 100)}: published and measured", tips)


def _value(figure: PublishedFigure, point: PublishedPoint, noun: str) -> Spread | None:
    if noun != "published":
        return _measured_times(figure, point)
    value = _published_times(figure, point)
    return None if value is None else Spread(value, value, value)


def _axes(
    axes: Axes, figure: PublishedFigure, positions: Sequence[float], values: Sequence[float], *, across: int
) -> None:
    texts = [cut(point.value, 16) for point in figure.points]
    letters = sum(len(text) + 2 for text in texts)
    value_ticks(axes, positions, texts, slanted=letters > 110 / across)
    axes.set_xlim(min(positions) - 0.4, max(positions) + 0.4)
    axes.set_xlabel(cut(figure.series.axis, 60))
    axes.grid(visible=False, axis="x")
    if not values:
        return
    if max(values) / min(values) > _WIDE:
        logarithmic(axes, min(values), max(values))
    else:
        axes.set_ylim(0, max(values) * 1.12)
