"""Published points beside ours, both in multiples of the same reference point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from dlio_torch.analysis.repeats import Spread
from dlio_torch.report.html.study.data import PublishedFigure, PublishedPoint
from dlio_torch.report.html.study.marks import cut, handle, legend_of, logarithmic, value_ticks
from dlio_torch.report.html.study.values import canonical, places
from dlio_torch.report.html.svg import to_svg
from dlio_torch.report.html.theme import BLUE, ORANGE, SLATE, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDE = 8.0


def reference(found: PublishedFigure) -> PublishedPoint | None:
    """The point at which both sides are 1; ``None`` where no point has both."""
    both = [one for one in found.points if one.published and one.measured is not None and one.measured.median]
    named = [one for one in both if canonical(one.value) == canonical(found.reference)]
    return next(iter([*named, *both]), None)


def times(value: float | None, at: float | None, better: Literal["higher", "lower"]) -> float | None:
    """How many times as good a value is as the one at the reference."""
    if value is None or at is None or value <= 0 or at <= 0:
        return None
    return value / at if better == "higher" else at / value


def measured_times(found: PublishedFigure, one: PublishedPoint) -> Spread | None:
    """Our point with its range, in multiples of our reference's median."""
    start = reference(found)
    if start is None or start.measured is None or one.measured is None:
        return None
    ends = [
        times(value, start.measured.median, found.measured_better)
        for value in (one.measured.median, one.measured.low, one.measured.high)
    ]
    known = [value for value in ends if value is not None]
    if len(known) < 3:
        return None
    return Spread(known[0], min(known), max(known), one.measured.count)


def published_times(found: PublishedFigure, one: PublishedPoint) -> float | None:
    """The published point in multiples of its reference."""
    start = reference(found)
    return None if start is None else times(one.published, start.published, found.published_better)


def published_figure(series: Sequence[PublishedFigure], name: str) -> str:
    """A plot for every series: the published line and ours, both 1 at the reference."""
    tips: dict[str, str] = {}
    columns = min(3, len(series))
    repeated = any(one.measured is not None and one.measured.count > 1 for found in series for one in found.points)
    with panels(len(series), columns, 3.2) as (figure, grid):
        for order, (axes, found) in enumerate(zip(grid, series, strict=True)):
            at = places([one.value for one in found.points])
            values: list[float] = []
            lines: tuple[tuple[str, str, str, str], ...] = (
                ("published", ORANGE, "s", "--"),
                ("measured here", BLUE, "o", "-"),
            )
            for what, colour, marker, style in lines:
                drawn = [(x, one, _value(found, one, what)) for x, one in zip(at, found.points, strict=True)]
                known = sorted((x, value.median) for x, _, value in drawn if value is not None)
                axes.plot(
                    [x for x, _ in known],
                    [value for _, value in known],
                    color=colour,
                    linestyle=style,
                    linewidth=1.6,
                    zorder=2,
                )
                for x, one, value in drawn:
                    if value is None:
                        continue
                    gid = f"s{order}-{what[0]}-{x:g}"
                    tips[gid] = f"{what}, {one.value}: {value.median:.3g} times the reference"
                    if value.high > value.low:
                        axes.vlines(x, value.low, value.high, color=colour, linewidth=1.3, zorder=3)
                    face = "white" if what == "published" else colour
                    [mark] = axes.plot(
                        [x], [value.median], marker=marker, color=colour, markerfacecolor=face, markersize=6.5, zorder=4
                    )
                    mark.set_gid(gid)
                    values += [value.low, value.high]
            axes.axhline(1, color=SLATE, linewidth=0.8, zorder=1)
            _axes(axes, found, at, values, across=columns)
            if len(series) > 1 or found.series:
                axes.set_title(cut(found.series or found.published_label, 60), fontsize=9.5)
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


def _value(found: PublishedFigure, one: PublishedPoint, what: str) -> Spread | None:
    if what != "published":
        return measured_times(found, one)
    value = published_times(found, one)
    return None if value is None else Spread(value, value, value)


def _axes(axes: Axes, found: PublishedFigure, at: Sequence[float], values: Sequence[float], *, across: int) -> None:
    texts = [cut(one.value, 16) + (f"\n({cut(one.label, 16)})" if one.label else "") for one in found.points]
    letters = sum(max(len(line) for line in text.split("\n")) + 2 for text in texts)
    value_ticks(axes, at, texts, slanted=letters > 110 / across)
    axes.set_xlim(min(at) - 0.4, max(at) + 0.4)
    axes.set_xlabel(cut(found.axis, 60))
    axes.grid(visible=False, axis="x")
    if not values:
        return
    if max(values) / min(values) > _WIDE:
        logarithmic(axes, min(values), max(values))
    else:
        axes.set_ylim(0, max(values) * 1.12)
