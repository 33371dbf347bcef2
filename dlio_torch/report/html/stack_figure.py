"""Draws many steps as stacked bars in one plot; consecutive steps share a bar if there are too many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dlio_torch.report.html.svg import TimePlot, to_svg
from dlio_torch.report.html.theme import BLACK, canvas, legend, time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_BARS = 240
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class StackFigure:
    """A stacked-bar figure, the number of steps per bar, and the number of bars beyond the axis."""

    svg: str
    group: int
    cut: int


def stack_figure(
    frame: pd.DataFrame,
    parts: Sequence[str],
    colours: Mapping[str, str],
    labels: Mapping[str, str],
    *,
    name: str,
    label: str,
    seconds: Floats | None = None,
) -> StackFigure:
    """Draws one plot of stacked bars in the order of the rows.

    Args:
        frame: a column of seconds per part; NaN counts as nothing.
        parts: the columns, from the bottom.
        colours: of the parts.
        labels: of the parts.
        name: unique on the page.
        label: what the height is.
        seconds: time of each row, in ascending order, for the page's script; None: not known.
    """
    values = frame[list(parts)].fillna(0.0).to_numpy(np.float64)
    group = -(-len(values) // MOST_BARS)
    means = grouped(values, group)
    factor, unit = time_unit(float(means.sum(axis=1).max()))
    means = means * factor
    top, cut = axis_top(means.sum(axis=1))
    edges = np.append(np.arange(0, len(values), group), len(values)) + 0.5
    with canvas(2.7) as (figure, [axes]):
        draw_stack(axes, edges, {part: means[:, column] for column, part in enumerate(parts)}, colours, top)
        axes.set_ylabel(f"{label} ({unit})")
        axes.set_xlabel("step of any rank, in order of time")
        legend(figure, [(labels[part], colours[part]) for part in parts])
        heights = {labels[part]: means[:, column] for column, part in enumerate(parts)}
        plots = [] if seconds is None else [step_plot(axes, edges, seconds, float(seconds[-1]), heights, unit)]
        return StackFigure(to_svg(figure, name, f"{label} by cause", plots=plots), group, cut)


def step_plot(
    axes: Axes, edges: Floats, seconds: Floats, end: float, heights: Mapping[str, Floats], unit: str
) -> TimePlot:
    """Relates the bars of steps to time, for the page's script.

    Args:
        axes: the plot.
        edges: of the bars.
        seconds: time of each step.
        end: time at which the last step ends.
        heights: of the parts of each bar.
        unit: of the heights.
    """
    firsts = (edges[:-1] - edges[0]).round().astype(int)
    times = np.maximum.accumulate(np.append(seconds[firsts], max(end, float(seconds[-1]))))
    values = {name: column.tolist() for name, column in heights.items() if column.any()}
    return TimePlot(axes, edges.tolist(), times.tolist(), values, unit)


def grouped(values: Floats, group: int) -> Floats:
    """Means of groups of ``group`` consecutive rows; the last group may be smaller."""
    firsts = np.arange(0, len(values), group)
    sizes = np.diff(np.append(firsts, len(values)))
    means: Floats = np.add.reduceat(values, firsts, axis=0) / sizes[:, None]
    return means


def axis_top(heights: Floats) -> tuple[float, int]:
    """Upper end of an axis, and the number of bars beyond it: a few huge bars must not flatten all others."""
    highest, usual = float(heights.max()), float(np.percentile(heights, 95))
    top = highest * 1.12 if highest < 5 * usual or usual <= 0 else usual * 2.5
    return top or 1.0, int(np.count_nonzero(heights > top))


def draw_stack(axes: Axes, edges: Floats, parts: Mapping[str, Floats], colours: Mapping[str, str], top: float) -> None:
    """Draws stacked bars between ``edges`` up to ``top``, and marks each bar that extends beyond ``top``."""
    base = np.zeros(len(edges) - 1)
    for name, heights in parts.items():
        if heights.any():
            axes.stairs(base + heights, edges, baseline=base, fill=True, color=colours[name], linewidth=0, zorder=2)
            base = base + heights
    if len(edges) <= 130:  # white lines between the bars, as one path
        x, y = np.repeat(edges[1:-1], 3), np.tile([0, top, np.nan], len(edges) - 2)
        axes.plot(x, y, color="white", linewidth=0.7, zorder=3)
    over = base > top
    if over.any():
        middle = ((edges[1:] + edges[:-1]) / 2)[over]
        axes.plot(
            middle, np.full(len(middle), top * 0.96), "^", color=BLACK, markeredgecolor="white", markersize=6, zorder=5
        )
    axes.set_xlim(float(edges[0]), float(edges[-1]))
    axes.set_ylim(0, top)
    axes.grid(visible=False, axis="x")
