"""Draws horizontal bars made of parts: causes of stalls, shares of time, origin of bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dlio_torch.report.html.svg import to_svg
from dlio_torch.report.html.theme import BLACK, canvas, legend


def bar_figure(
    labels: Sequence[str],
    parts: Mapping[str, Sequence[float]],
    colours: Mapping[str, str],
    *,
    axis: str,
    name: str,
    description: str,
    texts: Mapping[str, Sequence[str]] | None = None,
    ends: Sequence[str] = (),
    explained: Sequence[str] | None = None,
) -> str:
    """Draws one bar per label, stacked from its parts.

    Args:
        labels: of the bars, from the top.
        parts: length of each part in each bar, by the part's name, in the order of stacking.
        colours: of the parts.
        axis: what the lengths are, with the unit.
        name: unique on the page.
        description: for readers without the image.
        texts: what appears under the pointer, like ``parts``.
        ends: text at the end of each bar; empty: none.
        explained: parts in the legend; None: all.
    """
    places = np.arange(len(labels))
    base = np.zeros(len(labels))
    tips: dict[str, str] = {}
    longest = max(float(np.sum(list(parts.values()), axis=0).max()), 1e-300)
    with canvas(1.0 + 0.32 * len(labels)) as (figure, [axes]):
        for number, (part, values) in enumerate(parts.items()):
            lengths = np.asarray(values, np.float64)
            bars = axes.barh(places, lengths, 0.68, left=base, color=colours[part], zorder=2)
            for place, bar in enumerate(bars):
                if texts is not None:
                    tips[f"part-{number}-{place}"] = f"{labels[place]}, {part}: {texts[part][place]}"
                    bar.set_gid(f"part-{number}-{place}")
            base = base + lengths
        for row, (end, text) in enumerate(zip(base, ends, strict=False)):
            axes.text(float(end) + 0.008 * longest, row, text, va="center", fontsize=9.5, color=BLACK)
        axes.set_yticks(places, list(labels))
        axes.tick_params(axis="y", length=0, labelcolor=BLACK)
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.set_xlim(0, longest * (1.1 if ends else 1.02))
        axes.set_xlabel(axis)
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        if len(parts) > 1:
            legend(figure, [(part, colours[part]) for part in parts if explained is None or part in explained])
        return to_svg(figure, name, description, tips)
