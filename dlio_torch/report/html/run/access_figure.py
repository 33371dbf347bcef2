"""Draws the file access map: accessed bytes of each file over time, coloured by rank or file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dlio_torch.iotrace.events import call_names
from dlio_torch.report.html.svg import TimePlot, to_svg
from dlio_torch.report.html.theme import (
    READ,
    WRITE,
    canvas,
    clean,
    colour_of,
    legend,
    short,
    size_unit,
    time_axis,
    time_unit,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PANELS = 3
_PANELS_SHARE = 0.8  # of the bytes: then a plot per file shows more than all files end to end
_CELLS = (1600, 480)
_MOST_LINES = 120_000
_MOST_VECTORS = 700
_LEGEND = 8
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class AccessFigure:
    """The file access map as a figure, with the facts for its caption.

    Args:
        svg: text of the element.
        by: what the colours tell apart.
        files: paths of the files with a plot of their own; empty where all files lie end to end in one.
        others: number of files that are not shown.
        others_share: share (0 to 1) of the bytes in them.
        accesses: reads and writes that are shown.
        lines: marks that were drawn for them; fewer where several fall on one spot.
    """

    svg: str
    by: str
    files: tuple[str, ...]
    others: int
    others_share: float
    accesses: int
    lines: int


@dataclass(frozen=True)
class _AccessPanel:
    title: str
    size: int
    rows: Ints
    base: Ints  # added to the offset of each row


def access_figure(frame: pd.DataFrame, start_ns: int, end_ns: int, name: str = "access") -> AccessFigure | None:
    """Draws each access as a line from its first byte at its start to its last byte at its end.

    Args:
        frame: rows of reads and writes of an event table; those without file or offset are left out.
        start_ns: left end of the figure...
        end_ns: ...and its right end.
        name: unique on the page.

    Returns:
        None where no access has a file and an offset.
    """
    codes = frame["file"].cat.codes.to_numpy()
    offset, moved = frame["offset"].to_numpy(), frame["bytes"].to_numpy()
    rows = np.flatnonzero((codes >= 0) & (offset >= 0) & (moved >= 0))
    if not rows.size:
        return None
    panels, others, others_share = _panels(frame, rows, codes, offset, moved)
    groups, labels, colours, by = _groups(frame, rows)
    begin, end = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
    span = max(end_ns - start_ns, 1)
    factor, unit = time_unit(span * 1e-9)
    drawn = shown = 0
    timed = []
    with canvas(0.9 + (2.3 if len(panels) > 1 else 3.2) * len(panels), len(panels)) as (figure, plots):
        for axes, panel in zip(plots, panels, strict=True):
            positions = panel.base + offset[panel.rows]
            corners = (
                begin[panel.rows] - start_ns,
                end[panel.rows] - start_ns,
                positions,
                positions + moved[panel.rows],
            )
            scale, size = size_unit(float(panel.size))
            lines, kinds = _thinned(corners, groups[panel.rows], span, max(panel.size, 1))
            axes.set_xlim(0, span * 1e-9 * factor)
            axes.set_ylim(0, max(panel.size, 1) * scale)
            _draw(axes, lines * np.array([factor * 1e-9, scale] * 2), kinds, colours)
            upright = ("offset" if len(panels) > 1 or others else "position", size)
            axes.set_ylabel(f"{upright[0]} ({size})")
            timed.append(TimePlot(axes, (0.0, span * 1e-9 * factor), (0.0, span * 1e-9), upright=upright))
            axes.set_title(short(panel.title, 110))
            drawn, shown = drawn + len(lines), shown + len(panel.rows)
        time_axis(plots[-1], span * 1e-9 * factor, unit)
        pick = np.unique(np.linspace(0, len(labels) - 1, min(_LEGEND, len(labels))).round().astype(int)).tolist()
        legend(figure, [(labels[index], colours[index]) for index in pick], kind="dot")
        text = f"Position in the file over time of {shown} accesses, coloured by {by}"
        svg = to_svg(figure, name, text, plots=timed)
    files = () if panels[0].title == "" else tuple(panel.title for panel in panels)
    return AccessFigure(svg, by, files, others, others_share, shown, drawn)


def _panels(
    frame: pd.DataFrame, rows: Ints, codes: NDArray[np.integer], offset: Ints, moved: Ints
) -> tuple[list[_AccessPanel], int, float]:
    """Chooses the plots: one for each of the files with most bytes, or one of all files end to end."""
    names = frame["file"].cat.categories
    by_file = np.bincount(codes[rows], weights=moved[rows], minlength=len(names))
    touched = np.flatnonzero(np.bincount(codes[rows], minlength=len(names)))
    ends = np.zeros(len(names), np.int64)
    np.maximum.at(ends, codes[rows], offset[rows] + moved[rows])
    top = touched[np.argsort(-by_file[touched], kind="stable")][:_PANELS]
    total = float(by_file.sum())
    share = float(by_file[top].sum()) / total if total else 1.0
    if share >= _PANELS_SHARE or len(touched) <= _PANELS:
        # A plot for a file that holds next to nothing would only take room.
        top = top[(by_file[top] >= 0.02 * total) | (np.arange(len(top)) == 0)]
        share = float(by_file[top].sum()) / total if total else 1.0
        panels = []
        for file in top.tolist():
            mine = rows[codes[rows] == file]
            panels.append(_AccessPanel(str(names[file]), int(ends[file]), mine, np.zeros(len(mine), np.int64)))
        return panels, len(touched) - len(top), max(1.0 - share, 0.0)
    order = touched[np.argsort([str(names[file]) for file in touched.tolist()])]
    base = np.zeros(len(names), np.int64)
    base[order] = np.cumsum(ends[order]) - ends[order]
    return [_AccessPanel("", int(ends[order].sum()), rows, base[codes[rows]])], 0, 0.0


def _groups(frame: pd.DataFrame, rows: Ints) -> tuple[Ints, list[str], list[str], str]:
    """Assigns each access a colour number; returns labels, colours, and the quantity that they distinguish."""
    ranks = frame["rank"].to_numpy()
    distinct = np.unique(ranks[rows])
    if len(distinct) > 1:
        number = np.searchsorted(distinct, ranks).astype(np.int64)
        labels = [f"rank {rank}" for rank in distinct.tolist()]
        return number, labels, [colour_of(index, len(distinct)) for index in range(len(distinct))], "rank"
    writes = call_names.class_codes(frame) == call_names.CLASSES.index(call_names.WRITE)
    return writes.astype(np.int64), ["read", "write"], [READ, WRITE], "direction"


def _thinned(corners: tuple[Ints, Ints, Ints, Ints], groups: Ints, span: int, size: int) -> tuple[Floats, Ints]:
    """Lines ``(x0, y0, x1, y1)``, one for all accesses of a colour on the same cells, mixed by colour."""
    columns, heights = _CELLS
    first = np.arange(len(groups))
    while True:
        cell = (max(span / columns, 1.0), max(size / heights, 1.0))
        x0, x1 = ((values[first] / cell[0]).astype(np.int64) for values in corners[:2])
        y0, y1 = ((values[first] / cell[1]).astype(np.int64) for values in corners[2:])
        key = ((x0 * 4096 + (x1 - x0).clip(0, 4095)) * 4096 + y0.clip(0, 4095)) * 4096 + y1.clip(0, 4095)
        # Groups go into the key's free bits; beyond 64 colours, neighbours may stand for each other.
        _, distinct = np.unique(key * 64 + groups[first] % 64, return_index=True)
        first = first[distinct]
        if len(first) <= _MOST_LINES:
            break
        columns, heights = int(columns / 1.4), int(heights / 1.4)
    # In a fixed disorder, so that no colour lies on top of all others.
    first = first[np.random.default_rng(1).permutation(len(first))]
    lines = np.column_stack([corners[0][first], corners[2][first], corners[1][first], corners[3][first]])
    return lines.astype(np.float64), groups[first]


def _draw(axes: Axes, lines: Floats, groups: Ints, colours: Sequence[str]) -> None:
    from matplotlib.collections import LineCollection

    pixels = len(lines) > _MOST_VECTORS
    width = 0.8 if len(lines) > 20_000 else 1.6
    colour = np.array(colours)[groups]
    # A dot at the start of each, since a line without length is not drawn, then those that have one.
    axes.scatter(lines[:, 0], lines[:, 1], s=width**2, c=colour, marker="s", linewidths=0, rasterized=pixels)
    height = abs(lines[:, 3] - lines[:, 1]) > 0.002 * (axes.get_ylim()[1] or 1)
    length = abs(lines[:, 2] - lines[:, 0]) > 0.0008 * (axes.get_xlim()[1] or 1)
    long = height | length
    collection = LineCollection(
        list(lines[long].reshape(-1, 2, 2)), colors=colour[long].tolist(), linewidths=width, rasterized=pixels
    )
    axes.add_collection(collection, autolim=False)


def shown_files(figure: AccessFigure) -> str:
    """Text that names the files of a figure."""
    return ", ".join(clean(path) for path in figure.files) if figure.files else "all files, end to end by path"
