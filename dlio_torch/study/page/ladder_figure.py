"""Figure of the ladder of headspace: a bar for every rung, from the run as configured to the run without costs."""

from __future__ import annotations

import textwrap

from dlio_torch.report.html.svg import to_svg
from dlio_torch.report.html.theme import BLACK, BLUE, PARTS, SKY, SLATE, clean, panels
from dlio_torch.study.page.findings import LadderSummary
from dlio_torch.study.page.marks import handle, legend_of
from dlio_torch.study.strategies.ladder.effects import Effect
from dlio_torch.study.values import axis_unit, text_of


def ladder_figure(ladder: LadderSummary, name: str) -> str:
    """Draws bars of the metric, with the range of the repeats and the gain over the first rung."""
    metric, effects = ladder.metric, ladder.effects
    known = [effect.step for effect in effects if effect.step is not None]
    factor, unit = axis_unit(max(item.high for item in known), metric)
    stacked = metric.unit == "s" and any(effect.parts for effect in effects)
    tips: dict[str, str] = {}
    colours: dict[str, str] = {}
    with panels(1, 1, 0.95 + 0.52 * len(effects)) as (figure, [axes]):
        for index, effect in enumerate(effects):
            if effect.step is None:
                axes.annotate("not measured", (0, index), (6, 0), textcoords="offset points", va="center", color=SLATE)
                continue
            pieces = _pieces(effect) if stacked else []
            left = 0.0
            for part, length, colour in pieces or [("", effect.step.median, BLUE if index == 0 else SKY)]:
                [bar] = axes.barh([index], [length * factor], 0.6, left=left, color=colour, zorder=2)
                gid = f"rung-{index}-{len(tips)}"
                bar.set_gid(gid)
                tips[gid] = f"{clean(effect.rung.title)}{', ' + part if part else ''}: {text_of(length, metric.unit)}"
                left += length * factor
                if part:
                    colours[part] = colour
            if effect.step.count > 1:
                ends = [effect.step.low * factor, effect.step.high * factor]
                axes.plot(ends, [index, index], marker="|", markersize=7, color=BLACK, linewidth=1.4, zorder=4)
            end = max(effect.step.high * factor, left)
            text = f"{text_of(effect.step.median, metric.unit)}{_gain(effect)}"
            axes.annotate(text, (end, index), (9, 0), textcoords="offset points", va="center", fontsize=9.5)
        labels = ["\n".join(textwrap.wrap(clean(effect.rung.title), 34)[:2]) for effect in effects]
        axes.set_yticks(range(len(effects)), labels)
        axes.tick_params(axis="y", length=0, labelcolor=BLACK)
        axes.set_ylim(len(effects) - 0.45, -0.55)
        axes.set_xlim(0, max(item.high for item in known) * factor * 1.28)
        axes.set_xlabel(f"{clean(metric.label)} ({unit})" if unit else clean(metric.label))
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        legend_of(figure, [handle(part, marker="s", color=colours[part], markersize=9) for part in colours])
        return to_svg(figure, name, f"{clean(metric.label)} of each rung of the ladder", tips)


def _pieces(effect: Effect) -> list[tuple[str, float, str]]:
    """Returns name, length and colour of the parts of a bar; darker parts do not belong to a step."""
    return [
        (clean(part).replace("_", " "), max(length, 0.0), PARTS.get(part, SLATE))
        for part, length in effect.parts.items()
    ]


def _gain(effect: Effect) -> str:
    return "" if effect.gain is None else f" ({effect.gain.ratio:.2f} times as good)"
