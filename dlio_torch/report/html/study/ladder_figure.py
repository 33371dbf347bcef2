"""The ladder of a study of headroom: a bar for every rung, from the run as configured to the one without costs."""

from __future__ import annotations

import textwrap

from dlio_torch.report.html.study.data import Ladder, Rung
from dlio_torch.report.html.study.marks import handle, legend_of
from dlio_torch.report.html.study.values import axis_unit, text_of
from dlio_torch.report.html.svg import to_svg
from dlio_torch.report.html.theme import BLACK, BLUE, PARTS, SKY, SLATE, clean, panels


def ladder_figure(ladder: Ladder, name: str) -> str:
    """Bars of the metric, with the range of the repeats and the gain over the first rung."""
    metric, rungs = ladder.metric, ladder.rungs
    known = [one.value for one in rungs if one.value is not None]
    factor, unit = axis_unit(max(one.high for one in known), metric)
    stacked = metric.unit == "s" and any(one.parts for one in rungs)
    tips: dict[str, str] = {}
    colours: dict[str, str] = {}
    with panels(1, 1, 0.95 + 0.52 * len(rungs)) as (figure, [axes]):
        for at, rung in enumerate(rungs):
            if rung.value is None:
                axes.annotate("not measured", (0, at), (6, 0), textcoords="offset points", va="center", color=SLATE)
                continue
            pieces = _pieces(rung) if stacked else []
            left = 0.0
            for part, length, colour in pieces or [("", rung.value.median, BLUE if at == 0 else SKY)]:
                [bar] = axes.barh([at], [length * factor], 0.6, left=left, color=colour, zorder=2)
                gid = f"rung-{at}-{len(tips)}"
                bar.set_gid(gid)
                tips[gid] = f"{clean(rung.name)}{', ' + part if part else ''}: {text_of(length, metric.unit)}"
                left += length * factor
                if part:
                    colours[part] = colour
            if rung.value.count > 1:
                ends = [rung.value.low * factor, rung.value.high * factor]
                axes.plot(ends, [at, at], marker="|", markersize=7, color=BLACK, linewidth=1.4, zorder=4)
            end = max(rung.value.high * factor, left)
            text = f"{text_of(rung.value.median, metric.unit)}{_gain(rung)}"
            axes.annotate(text, (end, at), (9, 0), textcoords="offset points", va="center", fontsize=9.5)
        labels = ["\n".join(textwrap.wrap(clean(rung.name), 34)[:2]) for rung in rungs]
        axes.set_yticks(range(len(rungs)), labels)
        axes.tick_params(axis="y", length=0, labelcolor=BLACK)
        axes.set_ylim(len(rungs) - 0.45, -0.55)
        axes.set_xlim(0, max(one.high for one in known) * factor * 1.28)
        axes.set_xlabel(f"{clean(metric.label)} ({unit})" if unit else clean(metric.label))
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        legend_of(figure, [handle(part, marker="s", color=colours[part], markersize=9) for part in colours])
        return to_svg(figure, name, f"{clean(metric.label)} of each rung of the ladder", tips)


def _pieces(rung: Rung) -> list[tuple[str, float, str]]:
    """Name, length and colour of the parts of a bar; those that are no part of a step are darker."""
    return [
        (clean(part).replace("_", " "), max(length, 0.0), PARTS.get(part, SLATE)) for part, length in rung.parts.items()
    ]


def _gain(rung: Rung) -> str:
    return "" if rung.over_first is None else f" ({rung.over_first:.2f} times as good)"
