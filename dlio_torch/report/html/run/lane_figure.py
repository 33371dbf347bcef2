"""Draws lanes over time: the share of compute and of I/O, with one group of lanes per rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dlio_torch.iotrace.figures.intervals import Intervals, Ints, covered
from dlio_torch.report.html.svg import TimePlot, to_svg
from dlio_torch.report.html.theme import BLACK, canvas, legend, time_axis, time_unit
from dlio_torch.units import format_duration

CELLS = 900
"""Number of time cells across a figure."""
_MOST_STEPS = 4_000  # of all lanes; more are drawn as pixels
_PITCH = 1.25  # from lane to lane, where a full lane is 1 high
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Layer:
    """Intervals of one colour in a lane; the layers of a lane do not overlap in time."""

    intervals: Intervals
    colour: str
    label: str


@dataclass(frozen=True)
class Lane:
    """One row of the figure: the activity of a rank as stacked layers."""

    rank: int
    name: str
    layers: tuple[Layer, ...]


@dataclass(frozen=True)
class _Shape:
    """A layer as drawn: its heights above its bases, in steps that end at ``edges``."""

    heights: Floats
    base: Floats
    edges: Ints
    colour: str


def lane_figure(lanes: Sequence[Lane], start_ns: int, end_ns: int, name: str, description: str) -> str:
    """Draws lanes; the height of a lane is the share of a time cell that its intervals cover.

    Args:
        lanes: from the top, those of a rank together.
        start_ns: left end of the figure...
        end_ns: ...and its right end.
        name: unique on the page.
        description: for readers without the image.
    """
    span = max(end_ns - start_ns, 1)
    factor, unit = time_unit(span * 1e-9)
    edges = start_ns + np.linspace(0, span, min(CELLS, span) + 1).astype(np.int64)
    places, lines = _places(lanes)
    shapes = [_shapes(lane, edges) for lane in lanes]
    pixels = sum(len(shape.heights) for of_lane in shapes for shape in of_lane) > _MOST_STEPS
    with canvas(0.85 + 0.21 * (0.2 - places[-1])) as (figure, [axes]):
        for place, of_lane in zip(places, shapes, strict=True):
            axes.axhline(place, color="#DCDCDC", linewidth=0.6)
            for shape in of_lane:
                axes.stairs(
                    place + shape.base + shape.heights,
                    (shape.edges - start_ns) * 1e-9 * factor,
                    baseline=place + shape.base,
                    fill=True,
                    color=shape.colour,
                    linewidth=0,
                    rasterized=pixels,
                )
        for place in lines:
            axes.axhline(place, color="#CFCFCF", linewidth=0.7)
        names = [f"rank {lane.rank}  {lane.name}" if lane.rank >= 0 else lane.name for lane in lanes]
        axes.set_yticks(places + 0.5, names)
        axes.tick_params(axis="y", length=0, labelcolor=BLACK)
        axes.set_ylim(places[-1] - 0.3, 0.1)
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        time_axis(axes, span * 1e-9 * factor, unit)
        seen = {layer.label: layer.colour for lane in lanes for layer in lane.layers}
        legend(figure, list(seen.items()))
        plot = TimePlot(axes, axes.get_xlim(), (0.0, span * 1e-9))
        return to_svg(figure, name, f"{description}; time span {format_duration(span * 1e-9)}", plots=[plot])


def _places(lanes: Sequence[Lane]) -> tuple[Floats, list[float]]:
    """Baseline of each lane, from 0 downwards, and the separators between ranks with several lanes."""
    apart = len({lane.rank for lane in lanes}) < len(lanes)
    places: list[float] = []
    lines: list[float] = []
    position = 0.0
    for number, lane in enumerate(lanes):
        if apart and number and lane.rank != lanes[number - 1].rank:
            lines.append(position - 0.32)
            position -= 0.45
        position -= _PITCH
        places.append(position)
    return np.array(places), lines


def _shapes(lane: Lane, edges: Ints) -> list[_Shape]:
    """Converts the layers of a lane to steps; neighbouring cells of equal height become one step."""
    base = np.zeros(len(edges) - 1)
    lengths = []
    for layer in lane.layers:
        share = covered(layer.intervals, edges[:-1], edges[1:]) / np.maximum(np.diff(edges), 1)
        share = np.minimum(share, 1 - base)
        if share.any():
            new = np.flatnonzero(np.concatenate(([True], (np.diff(share) != 0) | (np.diff(base) != 0))))
            lengths.append(_Shape(share[new], base[new], np.append(edges[new], edges[-1]), layer.colour))
            base = base + share
    return lengths
