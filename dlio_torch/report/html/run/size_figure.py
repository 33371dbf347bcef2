"""Draws the distribution of transfer sizes in power-of-two classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dlio_torch.report.html.svg import to_svg
from dlio_torch.report.html.theme import READ, WRITE, canvas, decades, legend, size_unit
from dlio_torch.units import format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Ints = NDArray[np.int64]


def size_figure(edges: Ints, calls: dict[str, Ints], moved: dict[str, Ints], name: str = "sizes") -> str:
    """Draws bars of the calls and of the bytes in each size class.

    Args:
        edges: lower ends of the classes: 0, 1, 2, 4, 8 bytes and so on; the last class is empty.
        calls: number of calls in each class, by ``read`` and ``write``.
        moved: bytes moved in each class, likewise.
        name: unique on the page.
    """
    used = np.flatnonzero(sum(calls.values()))
    first, last = int(used[0]), int(used[-1])
    kinds = [kind for kind in ("read", "write") if kind in calls and calls[kind].any()]
    place = np.arange(first, last + 1)
    tips: dict[str, str] = {}
    with canvas(4.1, 2) as (figure, (above, below)):
        largest = float(max(values.max() for values in moved.values()))
        factor, unit = size_unit(largest)
        for axes, values, scale, label in ((above, calls, 1.0, "calls"), (below, moved, factor, "bytes")):
            width = 0.88 / len(kinds)
            for number, kind in enumerate(kinds):
                colour = READ if kind == "read" else WRITE
                left = place - 0.44 + (number + 0.5) * width
                bars = axes.bar(left, values[kind][first : last + 1] * scale, width * 0.94, color=colour, zorder=2)
                for bar, index in zip(bars, place.tolist(), strict=True):
                    value = int(values[kind][index])
                    gid = f"{label}-{kind}-{index}"
                    bar.set_gid(gid)
                    amount = f"{value:,} {kind}s" if label == "calls" else f"{format_size(value)} by {kind}s"
                    tips[gid] = f"{size_class(edges, index)}: {amount}"
            axes.grid(visible=False, axis="x")
        counts = np.concatenate([calls[kind][calls[kind] > 0] for kind in kinds])
        logarithmic = decades(float(counts.min()), float(counts.max()))
        if logarithmic:
            above.set_yscale("log")
            above.set_ylim(bottom=0.7)
            above.minorticks_off()
        above.set_ylabel("calls (log scale)" if logarithmic else "calls")
        below.set_ylabel(f"bytes moved ({unit})")
        above.yaxis.set_major_formatter(_grouped)
        _ticks(below, place)
        legend(figure, [(f"{kind}s", READ if kind == "read" else WRITE) for kind in kinds])
        below.set_xlabel("transfer size (bytes moved by a call)")
        return to_svg(figure, name, "Number of calls and bytes moved by transfer size", tips)


def size_class(edges: Ints, number: int) -> str:
    """Text on a size class: ``4 KiB to 8 KiB``."""
    low, high = int(edges[number]), int(edges[number + 1])
    return format_size(low) if high == low + 1 else f"{format_size(low)} to below {format_size(high)}"


def _ticks(axes: Axes, place: Ints) -> None:
    limits = np.append(place, place[-1] + 1)
    limits = limits[:: -(-len(limits) // 18)]
    axes.set_xticks(limits - 0.5, [format_size(0 if index == 0 else 2 ** (index - 1)) for index in limits.tolist()])
    axes.set_xlim(float(place[0]) - 0.6, float(place[-1]) + 0.6)


def _grouped(value: float, _position: object = None) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"
