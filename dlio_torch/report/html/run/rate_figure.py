"""Draws the bandwidth over time: of all ranks together, and of each rank as a map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dlio_torch.report.html.svg import TimePlot, to_svg
from dlio_torch.report.html.theme import READ, WRITE, canvas, legend, size_unit, time_axis, time_unit
from dlio_torch.units import format_rate

Floats = NDArray[np.float64]


def rate_figure(edges_s: Floats, rates: Mapping[str, Floats], name: str = "rates") -> str:
    """Draws the bandwidth of reads and writes over time as areas, in a plot each.

    Args:
        edges_s: ends of the cells of time, seconds from the start, one more than cells.
        rates: bytes per second in each cell, by ``read`` and ``write``.
        name: unique on the page.
    """
    kinds = [kind for kind in ("read", "write") if kind in rates and rates[kind].any()]
    factor, unit = time_unit(float(edges_s[-1]))
    with canvas(0.75 + 1.5 * len(kinds), len(kinds)) as (figure, plots):
        timed = []
        for axes, kind in zip(plots, kinds, strict=True):
            scale, size = size_unit(float(rates[kind].max()))
            axes.stairs(rates[kind] * scale, edges_s * factor, fill=True, color=READ if kind == "read" else WRITE)
            axes.set_ylabel(f"{kind}s\n{size}/s")
            axes.set_ylim(bottom=0)
            values = {f"{kind}s": (rates[kind] * scale).tolist()}
            timed.append(TimePlot(axes, (edges_s * factor).tolist(), edges_s.tolist(), values, f"{size}/s"))
        time_axis(plots[-1], float(edges_s[-1]) * factor, unit)
        legend(figure, [(f"{kind}s", READ if kind == "read" else WRITE) for kind in kinds])
        highest = max(float(rates[kind].max()) for kind in kinds)
        return to_svg(figure, name, f"Bandwidth over time, at most {format_rate(highest)}", plots=timed)


def rank_rate_figure(edges_s: Floats, ranks: Sequence[int], rates: Floats, name: str = "rankrates") -> str:
    """Draws a map of the bandwidth of ranks (rows) over time (columns).

    Args:
        edges_s: ends of the cells of time, seconds from the start.
        ranks: the number of each row.
        rates: bytes per second, shape ``(ranks, cells)``.
        name: unique on the page.
    """
    factor, unit = time_unit(float(edges_s[-1]))
    top = float(rates.max())
    usual = float(np.percentile(rates[rates > 0], 95))
    top = top if top <= 5 * usual else 2 * usual
    scale, size = size_unit(top)
    with canvas(0.95 + min(max(0.26 * len(ranks), 0.7), 4.0)) as (figure, [axes]):
        end = float(edges_s[-1]) * factor
        image = axes.imshow(
            rates * scale,
            aspect="auto",
            interpolation="nearest",
            cmap="Blues",
            vmin=0,
            vmax=top * scale,
            extent=(0, end, len(ranks) - 0.5, -0.5),
        )
        places = np.unique(np.linspace(0, len(ranks) - 1, min(len(ranks), 16)).round().astype(int))
        axes.set_yticks(places, [f"rank {ranks[index]}" for index in places.tolist()])
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False)
        for spine in axes.spines.values():
            spine.set_visible(True)
        time_axis(axes, end, unit)
        bar = figure.colorbar(
            image, ax=axes, pad=0.01, fraction=0.03, extend="max" if top < rates.max() else "neither", extendfrac=0.06
        )
        bar.set_label(f"{size}/s")
        bar.outline.set_visible(False)
        text = f"Bandwidth of {len(ranks)} ranks over time, at most {format_rate(rates.max())}"
        return to_svg(figure, name, text, plots=[TimePlot(axes, (0.0, end), (0.0, float(edges_s[-1])))])
