"""Section on pairs of options: the objective for each pair of values, as a heat map."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from dlio_torch.report.html.page_blocks import Block, Figure, Section
from dlio_torch.report.html.svg import to_svg
from dlio_torch.report.html.theme import BLACK, VERMILLION, WIDTH, clean, panels
from dlio_torch.study.model import NOT_APPLICABLE, Axis
from dlio_torch.study.page.marks import cut, spoken, value_ticks
from dlio_torch.study.page.page_sentences import status
from dlio_torch.study.page.point_trials import PointTrials
from dlio_torch.study.page.points import StudyView
from dlio_torch.study.page.section_axes import by_effect
from dlio_torch.study.values import axis_unit, digits

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_MAPS = 3
_MOST_CELLS = 240
_CELL_IN = 0.46


def pair_section(study: StudyView) -> Section | None:
    """Builds a colour map for up to three pairs of options that do not exclude each other."""
    blocks: list[Block] = []
    grid = study.data.kind == "sweep"
    axes = by_effect(study)[: _MOST_MAPS if grid else None]
    pairs = [pair for pair in combinations(axes, 2) if _meet_anywhere(study, *pair)]
    # A search leaves most pairs untried: the two options that move most are enough.
    most = _MOST_MAPS if grid else 1
    for number, (item, other) in enumerate(pairs):
        if len(blocks) == most:
            break
        across, up = (item, other) if len(item.values) >= len(other.values) else (other, item)
        if (figure := _figure(study, across, up, f"pair-{number}")) is not None:
            blocks.append(figure)
    return Section("pairs", "Options together", blocks) if blocks else None


def _meet_anywhere(study: StudyView, first: Axis, other: Axis) -> bool:
    """Whether any point has a value of both options."""
    return any(
        all(point.settings.get(axis.key, NOT_APPLICABLE) != NOT_APPLICABLE for axis in (first, other))
        for point in study.points
    )


def _figure(study: StudyView, across: Axis, up: Axis, name: str) -> Figure | None:
    """The objective for each pair of values; ``None`` where too few pairs were measured or too many are asked.

    Where further options are swept, a cell shows the best setting of them.
    """
    cells, chosen, failed = _cells(study, across, up)
    if len(cells) < 4 or len(across.values) * len(up.values) > _MOST_CELLS:
        return None
    spreads = {place: study.scores[point.number] for place, point in cells.items()}
    factor, unit = axis_unit(max(spread.median for spread in spreads.values()), study.objective)
    table = np.full((len(up.values), len(across.values)), np.nan)
    for (column, row), item in spreads.items():
        table[row, column] = item.median * factor
    tips: dict[str, str] = {}
    height = 1.25 + _CELL_IN * len(up.values)
    import matplotlib

    with panels(1, 1, height) as (figure, [axes]):
        colours = matplotlib.colormaps["cividis" if study.better == "higher" else "cividis_r"]
        low, high = float(np.nanmin(table)), float(np.nanmax(table))
        image = axes.pcolormesh(table, cmap=colours, vmin=low, vmax=high, edgecolors="white", linewidth=1.5)
        small = len(across.values) > 14
        for (column, row), item in spreads.items():
            value = item.median * factor
            red, green, blue, _ = colours((value - low) / (high - low) if high > low else 0.5)
            ink = "white" if 0.3 * red + 0.6 * green + 0.1 * blue < 0.5 else BLACK
            text = axes.text(
                column + 0.5, row + 0.5, digits(value), ha="center", va="center", color=ink, fontsize=7 if small else 9
            )
            point = cells[column, row]
            text.set_gid(f"cell-{column}-{row}")
            tips[f"cell-{column}-{row}"] = f"{study.label(point.settings)}: {spoken(item, study.objective)}"
        for column, row in failed:
            axes.text(column + 0.5, row + 0.5, "failed", ha="center", va="center", color=VERMILLION, fontsize=8)
        _frames(axes, study, cells)
        longest = max(len(cut(value)) for value in across.values)
        slanted = longest * 0.075 > (WIDTH - 3) / len(across.values)
        value_ticks(axes, _middles(across), _texts(study, across, "\n"), slanted=slanted)
        axes.set_yticks(_middles(up), _texts(study, up, " "))
        axes.set_xlabel(cut(across.key, 60))
        axes.set_ylabel(cut(up.key, 60))
        axes.tick_params(length=0)
        axes.grid(visible=False)
        for spine in axes.spines.values():
            spine.set_visible(False)
        bar = figure.colorbar(image, ax=axes, pad=0.02, fraction=0.05)
        bar.set_label(f"{clean(study.objective.label)} ({unit})" if unit else clean(study.objective.label))
        bar.outline.set_visible(False)
        svg = to_svg(figure, name, f"{cut(across.key)} against {cut(up.key)}", tips)
    brighter = "brighter is better" if study.better == "higher" else "brighter (lower) is better"
    caption = f"Median {study.objective.label} of each pair of values; {brighter}"
    caption += ", the best of all settings of the other options" if chosen else ""
    caption += "; empty: not measured" if len(cells) + len(failed) < table.size else ""
    if len({point.number for point in cells.values()}) < len(cells):
        caption += "; a setting in which an option has no meaning is shown at all values of the option"
    caption += "; dashed frame: the default" if study.default is not None else ""
    caption += "; red frame: the best beyond noise" if study.best else ""
    return Figure(svg, f"{clean(across.key)} against {clean(up.key)}", f"{caption}.", status(study))


def _texts(study: StudyView, axis: Axis, between: str) -> list[str]:
    """The values, the default's named."""
    return [cut(value) + (f"{between}(default)" if study.is_default(axis, value) else "") for value in axis.values]


def _middles(axis: Axis) -> list[float]:
    return [index + 0.5 for index in range(len(axis.values))]


def _cells(
    study: StudyView, across: Axis, up: Axis
) -> tuple[dict[tuple[int, int], PointTrials], bool, list[tuple[int, int]]]:
    """The best point of each pair of values, whether any was chosen among several, and the pairs that failed."""
    place = (
        {value: index for index, value in enumerate(across.values)},
        {value: index for index, value in enumerate(up.values)},
    )
    cells: dict[tuple[int, int], PointTrials] = {}
    failed: set[tuple[int, int]] = set()
    chosen = False
    for point in (*study.ranked, *(point for point in study.points if point.failed)):
        columns = _spots(place[0], point.settings.get(across.key, "-"))
        for column in columns:
            for row in _spots(place[1], point.settings.get(up.key, "-")):
                if point.failed:
                    failed.add((column, row))
                elif (column, row) in cells:
                    chosen = True
                else:
                    cells[column, row] = point
    return cells, chosen, sorted(failed - cells.keys())


def _spots(place: dict[str, int], value: str) -> list[int]:
    """Positions of a value; a value without meaning has all positions."""
    return [place[value]] if value in place else list(place.values()) if value == "-" else []


def _frames(axes: Axes, study: StudyView, cells: dict[tuple[int, int], PointTrials]) -> None:
    """A dashed frame around the default, a full one around the best."""
    from matplotlib.patches import Rectangle

    for (column, row), point in cells.items():
        if point.number == study.default_number:
            axes.add_patch(
                Rectangle((column + 0.04, row + 0.06), 0.92, 0.88, fill=False, edgecolor=BLACK, linestyle="--")
            )
        if point.number in study.best:
            axes.add_patch(
                Rectangle((column + 0.03, row + 0.04), 0.94, 0.92, fill=False, edgecolor=VERMILLION, linewidth=2.2)
            )
