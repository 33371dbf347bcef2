"""Converts a matplotlib figure to an SVG element for an HTML page."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from dlio_torch.report.html.theme import clean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SVG = "{http://www.w3.org/2000/svg}"
_XLINK = "{http://www.w3.org/1999/xlink}href"
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def to_svg(figure: Figure, name: str, description: str, tips: Mapping[str, str] | None = None) -> str:
    """Text of an ``<svg>`` element as wide as its container.

    Call it within the :func:`dlio_torch.report.html.theme.canvas` that made the figure.

    Args:
        figure: the figure.
        name: unique on the page; becomes part of every id.
        description: what a reader without the image is told.
        tips: texts that appear under the pointer, by the ``gid`` of an artist.
    """
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
    root.set("role", "img")
    root.set("aria-label", clean(description))
    return ET.tostring(root, encoding="unicode")


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
