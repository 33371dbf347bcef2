"""Common parts of the figures of a study: the axis of an option's values, error bars, marks and their legend."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dlio_torch.analysis.repeats import Spread
from dlio_torch.report.html.theme import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    SLATE,
    VERMILLION,
    WIDTH,
    clean,
    log_ticks,
)
from dlio_torch.study.metrics import Metric
from dlio_torch.study.model import Axis
from dlio_torch.study.page.points import StudyView
from dlio_torch.study.values import places, span_text, text_of

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINES = (BLUE, ORANGE, GREEN, PURPLE, SKY, SLATE)
"""Colours of the lines of a panel; if there are more lines, each gets its own small panel."""
MARKERS = ("o", "s", "^", "D", "v", "P")
"""Markers of the lines, for prints in black and white."""
MOST_LETTERS = 22
"""Longest text of a value on an axis, in letters."""

_GOLD = "#F0C000"
_LETTER_IN = 0.062  # width of a letter of a tick's label
_WIDE = 50.0  # from this ratio of largest and smallest on, values stand on a logarithmic axis


def cut(text: str, most: int = MOST_LETTERS) -> str:
    """Shortens a text for the inside of a figure."""
    shown = clean(text)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def value_axis(axes: Axes, study: StudyView, axis: Axis, *, across: int = 1, label: bool = True) -> Mapping[str, float]:
    """Sets ticks for all values of an option, with the default marked; returns the position of each value.

    Args:
        axes: the plot.
        study: for the default and the name.
        axis: the option.
        across: plots side by side, for the room of labels.
        label: whether the axis names the option.
    """
    positions = dict(zip(axis.values, places(axis.values), strict=True))
    texts = [cut(value) + ("\n(default)" if study.is_default(axis, value) else "") for value in axis.values]
    room = WIDTH / across - 0.9
    span = max(positions.values()) - min(positions.values()) + 0.9
    longest = max(len(line) for text in texts for line in text.split("\n"))
    value_ticks(axes, list(positions.values()), texts, slanted=longest * _LETTER_IN > room / span)
    axes.set_xlim(min(positions.values()) - 0.45, max(positions.values()) + 0.45)
    axes.grid(visible=False, axis="x")
    if label:
        axes.set_xlabel(cut(axis.key, 60))
    return positions


def value_ticks(axes: Axes, positions: Sequence[float], texts: Sequence[str], *, slanted: bool) -> None:
    """Writes the texts below the abscissa; slanted texts take one line each, so that they do not cross."""
    if not slanted:
        axes.set_xticks(list(positions), list(texts))
        return
    axes.set_xticks(
        list(positions), [text.replace("\n", " ") for text in texts], rotation=35, ha="right", rotation_mode="anchor"
    )


def metric_axis(axes: Axes, metric: Metric, values: Sequence[float], unit: str) -> bool:
    """Sets an ordinate from 0, or a logarithmic ordinate if values differ much; returns whether it is logarithmic."""
    largest = max(values, default=0.0)
    wide = metric.unit != "share" and min(values, default=0.0) > 0 and largest / min(values) > _WIDE
    title = f"{clean(metric.label)} ({unit})" if unit else clean(metric.label)
    axes.set_ylabel("\n".join(textwrap.wrap(title, 34)))
    if wide:
        logarithmic(axes, min(values), largest)
    else:
        top = largest * 1.12 if largest > 0 else 1.0
        axes.set_ylim(0, min(top, 105.0) if metric.unit == "share" else top)
    return wide


def logarithmic(axes: Axes, smallest: float, largest: float) -> None:
    """Sets a logarithmic ordinate with plain numbers."""
    axes.set_yscale("log")
    log_ticks(axes.yaxis, smallest, largest)
    axes.set_ylim(smallest / 1.4, largest * 1.4)


def dot(axes: Axes, x: float, spread: Spread, factor: float, *, colour: str, marker: str, tip: str) -> None:
    """Draws the median of a point with its range; ``tip`` becomes the mark's gid."""
    if spread.count > 1 and spread.high > spread.low:
        ends = [spread.low * factor, spread.high * factor]
        axes.plot([x, x], ends, marker="_", markersize=6, color=colour, linewidth=1.3, zorder=3)
    [mark] = axes.plot([x], [spread.median * factor], marker=marker, color=colour, markersize=5.5, zorder=4)
    mark.set_gid(tip)


def ring(axes: Axes, x: float, y: float) -> None:
    """Draws the mark of the default setting."""
    axes.plot([x], [y], marker="o", markersize=11, markerfacecolor="none", markeredgecolor=BLACK, zorder=5)


def star(axes: Axes, x: float, y: float) -> None:
    """Draws the mark of the setting that is best beyond noise."""
    axes.plot([x], [y], marker="*", markersize=13, color=_GOLD, markeredgecolor=BLACK, zorder=6)


def cross(axes: Axes, x: float, gid: str) -> None:
    """Draws the mark of a failed setting, at the foot of the plot."""
    [mark] = axes.plot([x], [0.03], marker="x", color=VERMILLION, markersize=7, transform=axes.get_xaxis_transform())
    mark.set_gid(gid)


def handle(label: str, **style: object) -> Artist:
    """Returns an entry of a legend."""
    from matplotlib.lines import Line2D

    given: dict[str, object] = {"linestyle": "", "color": BLACK, "markersize": 6, **style}
    return Line2D([], [], label=label, **given)  # type: ignore[arg-type]


def handles(*, default: bool = False, best: str = "", failed: bool = False, limit: bool = False) -> list[Artist]:
    """Returns the legend entries of the marks that a figure contains."""
    result = []
    if default:
        result.append(handle("default", marker="o", markerfacecolor="none", markersize=10))
    if best:
        result.append(
            handle(f"best {best}, beyond noise", marker="*", color=_GOLD, markeredgecolor=BLACK, markersize=12)
        )
    if failed:
        result.append(handle("failed", marker="x", color=VERMILLION))
    if limit:
        result.append(handle("storage limit", color=VERMILLION, linestyle="--"))
    return result


def legend_of(figure: Figure, entries: Sequence[Artist]) -> None:
    """Draws a legend above all plots, in as many columns as fit."""
    if not entries:
        return
    widths = [len(str(entry.get_label())) * _LETTER_IN + 0.5 for entry in entries]
    columns = len(entries) if sum(widths) < WIDTH - 0.5 else max(1, int((WIDTH - 0.5) / max(widths)))
    figure.legend(
        handles=list(entries),
        loc="outside upper right",
        ncols=columns,
        borderaxespad=0.2,
        alignment="right",
    )


def spoken(spread: Spread, metric: Metric) -> str:
    """Formats a spread in words: ``1,240 samples/s (1,210 to 1,260, 3 repeats)``."""
    text = text_of(spread.median, metric.unit)
    if spread.count == 1:
        return f"{text} (one run)"
    return f"{text} ({span_text(spread.low, spread.high, metric.unit)}, {spread.count} repeats)"
