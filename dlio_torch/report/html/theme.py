"""Colours and axes that all figures of the HTML report share.

Colours are those of Okabe and Ito (https://jfly.uni-koeln.de/color/), which readers with any colour vision
tell apart; a category has one colour on the whole page.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal

from dlio_torch.units import SIZE_UNITS, format_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

BLACK, SLATE, GREY = "#222222", "#5C677D", "#A3A3A3"
ORANGE, SKY, GREEN, YELLOW = "#E69F00", "#56B4E9", "#009E73", "#F0E442"
BLUE, VERMILLION, PURPLE, BROWN = "#0072B2", "#D55E00", "#CC79A7", "#8C510A"

READ, WRITE = BLUE, ORANGE
PARTS = {
    "fetch": VERMILLION,
    "copy": SKY,
    "compute": GREEN,
    "allreduce": PURPLE,
    "checkpoint": ORANGE,
    "evaluate": YELLOW,
    "other": GREY,
}
"""Colours of the parts of a step."""

CYCLE = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILLION, BLACK, YELLOW)
"""Colours of up to eight ranks or files; larger numbers use a colour map."""

WIDTH = 11.0
"""Width of every figure in inches; the page scales figures to its own width."""
DPI = 130
"""Resolution of the pixel parts of a figure, in dots per inch."""

_RC = {
    "font.family": "DejaVu Sans",  # measures wider than the fonts that the page asks for: nothing is cut
    "font.size": 9.5,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9.5,
    "axes.labelcolor": "#444444",
    "axes.edgecolor": "#8A8A8A",
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.7,
    "xtick.color": "#8A8A8A",
    "ytick.color": "#8A8A8A",
    "xtick.labelcolor": "#444444",
    "ytick.labelcolor": "#444444",
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "legend.handlelength": 1.2,
    "legend.columnspacing": 1.4,
    "figure.dpi": DPI,
    "savefig.dpi": DPI,
    "svg.fonttype": "none",  # text stays text: small, searchable, in the page's font
    "svg.hashsalt": "dlio_torch",
    "svg.image_inline": True,
    "text.parse_math": False,  # a file may be called $x$
    "path.simplify": True,
}


@contextmanager
def canvas(height: float, rows: int = 1) -> Iterator[tuple[Figure, list[Axes]]]:
    """Creates a figure of ``rows`` plots above each other in the page's style.

    Args:
        height: inches.
        rows: number of plots; their time or size axes are shared.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_RC):  # type: ignore[arg-type]
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        grid = figure.subplots(rows, 1, sharex=True, squeeze=False)
        yield figure, list(grid[:, 0])


@contextmanager
def panels(count: int, columns: int, height: float) -> Iterator[tuple[Figure, list[Axes]]]:
    """Creates a figure of ``count`` plots in rows of at most ``columns``, each with its own axes.

    Args:
        count: number of plots.
        columns: plots in a row; a single row is filled by fewer.
        height: inches of a row.
    """
    import matplotlib
    from matplotlib.figure import Figure

    across = min(count, columns)
    rows = -(-count // across)
    with matplotlib.rc_context(_RC):  # type: ignore[arg-type]
        figure = Figure(figsize=(WIDTH, height * rows), layout="constrained")
        grid = figure.subplots(rows, across, squeeze=False).ravel()
        for spare in grid[count:]:
            spare.set_axis_off()
        yield figure, list(grid[:count])


def colour_of(number: int, count: int) -> str:
    """Colour of one of ``count`` ranks or files."""
    if count <= len(CYCLE):
        return CYCLE[number]
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return to_hex(colormaps["viridis"](number / (count - 1)))


def time_unit(seconds: float) -> tuple[float, str]:
    """Factor from seconds to the unit of an axis up to ``seconds``, and the unit."""
    for limit, factor, unit in ((1e-3, 1e6, "µs"), (1, 1e3, "ms"), (1200, 1, "s"), (3 * 3600, 1 / 60, "min")):
        if seconds < limit:
            return factor, unit
    return 1 / 3600, "h"


def size_unit(size: float) -> tuple[float, str]:
    """Factor from bytes to the binary unit of an axis up to ``size``, and the unit."""
    for name in ("PiB", "TiB", "GiB", "MiB", "KiB"):
        if size >= float(SIZE_UNITS[name]):
            return 1 / float(SIZE_UNITS[name]), name
    return 1.0, "B"


def time_axis(axes: Axes, end: float, unit: str) -> None:
    """Labels the time axis of the lowest plot, from the start to ``end``, with ``unit``."""
    axes.set_xlim(0, end if end > 0 else 1)
    axes.set_xlabel(f"time ({unit})")


def log_ticks(axis: Axis, smallest: float, largest: float) -> None:
    """Sets ticks with plain numbers on a logarithmic axis from ``smallest`` to ``largest``."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    steps = (1.0, 2.0, 5.0) if largest / smallest < 300 else (1.0,)
    axis.set_major_locator(LogLocator(10, subs=steps))
    axis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value)))
    axis.set_minor_formatter(NullFormatter())


def legend(
    figure: Figure, entries: Sequence[tuple[str, str]], *, kind: Literal["box", "dot"] = "box", columns: int = 9
) -> None:
    """Draws a legend above all plots, with the label and the colour of each entry."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [
        Patch(color=colour, label=label)
        if kind == "box"
        else Line2D([], [], color=colour, label=label, marker="o", linestyle="", markersize=5)
        for label, colour in entries
    ]
    figure.legend(handles=handles, loc="outside upper right", ncols=min(columns, len(handles)), borderaxespad=0.2)


def clean(text: str) -> str:
    """Replaces control, format and undecodable characters in a text for the page by ``�``."""
    if text.isascii() and text.isprintable():
        return text
    return "".join("\ufffd" if unicodedata.category(letter)[0] == "C" else letter for letter in text)


def short(path: str, most: int = 40) -> str:
    """Shortens a path at its front to ``most`` characters, for the inside of a figure."""
    text = clean(path)
    if len(text) <= most:
        return text
    name = PurePath(text).name
    return f"…{text[-(most - 1) :]}" if len(name) < most else f"…{name[-(most - 1) :]}"


def decades(smallest: float, largest: float) -> bool:
    """Whether the values span so many powers of ten that a logarithmic axis shows more."""
    return smallest > 0 and math.isfinite(largest) and largest / smallest > 1000
