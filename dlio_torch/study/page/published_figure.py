"""Figure of published and measured points, both relative to the same reference point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from dlio_torch.analysis.repeats import Spread
from dlio_torch.report.html.svg import to_svg
from dlio_torch.report.html.theme import BLUE, ORANGE, SLATE, panels
from dlio_torch.study.page.findings import PublishedFigure, PublishedPoint
from dlio_torch.study.page.marks import cut, handle, legend_of, logarithmic, value_ticks
from dlio_torch.study.values import canonical, places

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDE = 8.0


def reference(figure: PublishedFigure) -> PublishedPoint | None:
    """Returns the point at which both lines are 1; ``None`` if no point has both values."""
    both = [
        point for point in figure.points if point.published and point.measured is not None and point.measured.median
    ]
    named = [item for item in both if canonical(item.value) == canonical(figure.reference)]
    return next(iter([*named, *both]), None)


def times(value: float | None, reference: float | None, better: Literal["higher", "lower"]) -> float | None:
    """Returns the ratio of a value to the value at the reference, above 1 if it is better."""
    if value is None or reference is None or value <= 0 or reference <= 0:
        return None
    return value / reference if better == "higher" else reference / value


def measured_times(figure: PublishedFigure, point: PublishedPoint) -> Spread | None:
    """Returns the measured point with its range, relative to the median at the measured reference."""
    start = reference(figure)
    if start is None or start.measured is None or point.measured is None:
        return None
    ends = [
        times(value, start.measured.median, figure.measured_better)
        for value in (point.measured.median, point.measured.low, point.measured.high)
    ]
    known = [value for value in ends if value is not None]
    if len(known) < 3:
        return None
    return Spread(known[0], min(known), max(known), point.measured.count)


def published_times(figure: PublishedFigure, point: PublishedPoint) -> float | None:
    """Returns the published point relative to the published reference."""
    start = reference(figure)
    return None if start is None else times(point.published, start.published, figure.published_better)


def published_figure(series: Sequence[PublishedFigure], name: str) -> str:
    """Draws a plot for every series: the published and the measured line, both 1 at the reference."""
    tips: dict[str, str] = {}
    columns = min(3, len(series))
    repeated = any(
        point.measured is not None and point.measured.count > 1 for curve in series for point in curve.points
    )
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
            if len(series) > 1 or entry.series:
                axes.set_title(cut(entry.series or entry.published_label, 60), fontsize=9.5)
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
        return measured_times(figure, point)
    value = published_times(figure, point)
    return None if value is None else Spread(value, value, value)


def _axes(
    axes: Axes, figure: PublishedFigure, positions: Sequence[float], values: Sequence[float], *, across: int
) -> None:
    texts = [cut(point.value, 16) + (f"\n({cut(point.label, 16)})" if point.label else "") for point in figure.points]
    letters = sum(max(len(line) for line in text.split("\n")) + 2 for text in texts)
    value_ticks(axes, positions, texts, slanted=letters > 110 / across)
    axes.set_xlim(min(positions) - 0.4, max(positions) + 0.4)
    axes.set_xlabel(cut(figure.axis, 60))
    axes.grid(visible=False, axis="x")
    if not values:
        return
    if max(values) / min(values) > _WIDE:
        logarithmic(axes, min(values), max(values))
    else:
        axes.set_ylim(0, max(values) * 1.12)
