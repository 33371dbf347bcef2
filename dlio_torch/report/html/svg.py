"""Converts a matplotlib figure to an SVG element for an HTML page."""

from __future__ import annotations

import io
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from dlio_torch.report.html.theme import clean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_POINTS = 72  # per inch, the unit of an SVG element
_SVG = "{http://www.w3.org/2000/svg}"
_XLINK = "{http://www.w3.org/1999/xlink}href"
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


@dataclass(frozen=True)
class TimePlot:
    """A plot whose horizontal axis is time, or steps at known times, as the page's script reads it.

    Args:
        axes: the plot.
        positions: increasing positions on the horizontal axis...
        seconds: ...and the time of each, from the begin of the page's time axes; between them time is linear.
        values: what the plot shows from each position to the next, by name.
        unit: of the values.
        upright: name and unit of the vertical axis, where its positions are worth reading.
    """

    axes: Axes
    positions: Sequence[float]
    seconds: Sequence[float]
    values: Mapping[str, Sequence[float]] = field(default_factory=dict)
    unit: str = ""
    upright: tuple[str, str] | None = None


def to_svg(
    figure: Figure,
    name: str,
    description: str,
    tips: Mapping[str, str] | None = None,
    plots: Sequence[TimePlot] = (),
) -> str:
    """Text of an ``<svg>`` element as wide as its container.

    Call it within the :func:`dlio_torch.report.html.theme.canvas` that made the figure.

    Args:
        figure: the figure.
        name: unique on the page; becomes part of every id.
        description: what a reader without the image is told.
        tips: texts that appear under the pointer, by the ``gid`` of an artist.
        plots: those of the figure that the page's script can read and zoom.
    """
    for number, plot in enumerate(plots):
        plot.axes.set_gid(f"plot-{number}")
        for part, artist in {"back": plot.axes.patch, **plot.axes.spines}.items():
            artist.set_gid(f"frame-{number}-{part}")
        for place, text in enumerate(plot.axes.texts):
            text.set_gid(f"inside-{number}-{place}")
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # The browser has the characters that the measuring font lacks.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    ET.register_namespace("", _SVG[1:-1])
    ET.register_namespace("xlink", _XLINK[1:-5])
    root = ET.fromstring(buffer.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            # Their rules would hold for the whole page; it has its own.
            if child.tag in (f"{_SVG}style", f"{_SVG}metadata"):
                parent.remove(child)
    for element in root.iter():
        _localise(element, name)
        identifier = element.get("id", "")
        tip = (tips or {}).get(identifier.removeprefix(f"{name}-"))
        if tip is not None:
            title = ET.Element(f"{_SVG}title")
            title.text = clean(tip)
            element.insert(0, title)
    for size in ("width", "height"):
        root.attrib.pop(size, None)
    if plots:
        root.set("data-plots", json.dumps([_plot_facts(plot, f"{name}-plot-{k}") for k, plot in enumerate(plots)]))
    root.set("role", "img")
    root.set("aria-label", clean(description))
    return ET.tostring(root, encoding="unicode")


def _plot_facts(plot: TimePlot, identifier: str) -> dict[str, Any]:
    """Box of a plot in coordinates of the drawn SVG element, and what its axes show."""
    figure = plot.axes.get_figure(root=True)
    assert figure is not None
    width, height = figure.get_size_inches() * _POINTS
    box, low_high = plot.axes.get_position(), plot.axes.get_xlim()
    facts = {
        "id": identifier,
        "box": [_short(v) for v in (box.x0 * width, (1 - box.y1) * height, box.width * width, box.height * height)],
        "range": [_short(v) for v in low_high],
        "at": [_short(v) for v in plot.positions],
        "seconds": [_short(v) for v in plot.seconds],
        "values": {key: [_short(v) for v in values] for key, values in plot.values.items()},
        "unit": plot.unit,
    }
    if plot.upright is not None:
        low, high = plot.axes.get_ylim()
        facts["upright"] = [*plot.upright, _short(low), _short(high)]
    return facts


def _short(value: float) -> float | None:
    return float(f"{value:.7g}") if math.isfinite(value) else None


def _localise(element: ET.Element, name: str) -> None:
    """Makes the ids of an SVG element unique on the page, and uses the page's font."""
    for key, value in element.attrib.items():
        if key == "id":
            element.set(key, f"{name}-{value}")
        elif key == _XLINK and value.startswith("#"):
            element.set(key, f"#{name}-{value[1:]}")
        elif "url(#" in value:
            element.set(key, value.replace("url(#", f"url(#{name}-"))
        elif key == "style" and "font" in value:
            element.set(key, value.replace("'DejaVu Sans'", _FONT))
