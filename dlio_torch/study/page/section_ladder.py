"""Section on a ladder of headspace: a bar for every rung, from the configured run to the run without costs."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from dlio_torch.report.html.page_blocks import NOT_MEASURED, UNKNOWN, Absent, Block, Figure, Section, Table, Text
from dlio_torch.report.html.svg import to_svg
from dlio_torch.report.html.theme import BLACK, BLUE, PARTS, SKY, SLATE, clean, panels, time_unit
from dlio_torch.study.page.marks import handle, legend_of
from dlio_torch.study.page.page_sentences import times
from dlio_torch.study.page.points import StudyView
from dlio_torch.study.strategies.ladder.effects import Effect
from dlio_torch.study.strategies.ladder.gains import METHOD
from dlio_torch.units import format_duration

_STEP = "time of a step"
_CAPTION = (
    "Every rung is a run in new processes that lacks one more cost than the rung above; costs that overlap appear with "
    "the last of them. Samples that are replayed are copied into the fresh memory of each batch; batches that are "
    "replayed are passed by reference, without any memory traffic. The gain of a rung is the "
    f"{METHOD}; therefore it differs slightly from the ratio of the medians shown. {_STEP} = elapsed time / steps, "
    "starts of epochs included. Bars are medians, the black line reaches from the smallest to the largest repeat."
)


def ladder_tiles(effects: Sequence[Effect]) -> list[tuple[str, str, str]]:
    """Key figures of a ladder: the first and the last rung."""
    known = [(effect, effect.step) for effect in effects if effect.step is not None]
    if len(known) < 2:
        return []
    (top, first), (foot, last) = known[0], known[-1]
    tiles = [(format_duration(step.median), _STEP, effect.rung.title) for effect, step in ((top, first), (foot, last))]
    if foot.gain is None:
        return tiles
    return [*tiles, (times(foot.gain.ratio), "times as good, at most", "the last rung over the first")]


def ladder_section(study: StudyView) -> Section | None:
    """Builds the section on the maximum gain of removing each cost."""
    effects, evidence = study.data.ladder, study.data.evidence
    if not effects:
        return None
    title = "Maximum gain of removing each cost"
    if all(effect.step is None for effect in effects):
        return Section("ladder", title, [Absent("No rung of the ladder was measured.")])
    blocks: list[Block] = [Text(clean(" ".join(evidence)))] if evidence else []
    blocks.append(Figure(_figure(effects, "ladder"), title, _CAPTION, "Exact, every finished run of each rung."))
    blocks.append(_rungs(effects))
    return Section("ladder", title, blocks)


def _rungs(effects: Sequence[Effect]) -> Table:
    rows: list[list[str]] = []
    for effect in effects:
        step, left = effect.step, effect.rung.left if effect.rung.removed else ""
        row = [clean(effect.rung.title), clean(left) or UNKNOWN]
        if step is None:
            row += [NOT_MEASURED, UNKNOWN, UNKNOWN, UNKNOWN]
        else:
            row += [
                format_duration(step.median),
                f"{format_duration(step.low)} to {format_duration(step.high)}" if step.count > 1 else UNKNOWN,
                *(UNKNOWN if gain is None else f"{gain.ratio:.2f}" for gain in (effect.cost, effect.gain)),
            ]
        rows.append([*row, clean(effect.remark)])
    heads = ["<<rung", "<<remaining costs", _STEP, "smallest to largest", "over the rung above"]
    heads += ["over the first", "<remark"]
    if not any(row[-1] for row in rows):
        heads, rows = heads[:-1], [row[:-1] for row in rows]
    note = (
        "Over: ratio of runs of the same round, above 1 if better. The gain of a rung is the maximum gain from "
        "removing this cost."
    )
    return Table("Rungs", tuple(heads), rows, note)


def _figure(effects: Sequence[Effect], name: str) -> str:
    """Draws a bar of the training step time for each rung, with the range of the repeats and the gain."""
    known = [effect.step for effect in effects if effect.step is not None]
    factor, unit = time_unit(max(item.high for item in known))
    tips: dict[str, str] = {}
    colours: dict[str, str] = {}
    with panels(1, 1, 0.95 + 0.52 * len(effects)) as (figure, [axes]):
        for index, effect in enumerate(effects):
            if effect.step is None:
                axes.annotate("not measured", (0, index), (6, 0), textcoords="offset points", va="center", color=SLATE)
                continue
            left = 0.0
            for part, length, colour in _pieces(effect) or [("", effect.step.median, BLUE if index == 0 else SKY)]:
                [bar] = axes.barh([index], [length * factor], 0.6, left=left, color=colour, zorder=2)
                gid = f"rung-{index}-{len(tips)}"
                bar.set_gid(gid)
                tips[gid] = f"{clean(effect.rung.title)}{', ' + part if part else ''}: {format_duration(length)}"
                left += length * factor
                if part:
                    colours[part] = colour
            if effect.step.count > 1:
                ends = [effect.step.low * factor, effect.step.high * factor]
                axes.plot(ends, [index, index], marker="|", markersize=7, color=BLACK, linewidth=1.4, zorder=4)
            end = max(effect.step.high * factor, left)
            text = f"{format_duration(effect.step.median)}{_gain(effect)}"
            axes.annotate(text, (end, index), (9, 0), textcoords="offset points", va="center", fontsize=9.5)
        labels = ["\n".join(textwrap.wrap(clean(effect.rung.title), 34)[:2]) for effect in effects]
        axes.set_yticks(range(len(effects)), labels)
        axes.tick_params(axis="y", length=0, labelcolor=BLACK)
        axes.set_ylim(len(effects) - 0.45, -0.55)
        axes.set_xlim(0, max(item.high for item in known) * factor * 1.28)
        axes.set_xlabel(f"{_STEP} ({unit})")
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        legend_of(figure, [handle(part, marker="s", color=colours[part], markersize=9) for part in colours])
        return to_svg(figure, name, f"{_STEP} of each rung of the ladder", tips)


def _pieces(effect: Effect) -> list[tuple[str, float, str]]:
    """Returns name, length and colour of the parts of a bar; darker parts do not belong to a step."""
    return [
        (clean(part).replace("_", " "), max(length, 0.0), PARTS.get(part, SLATE))
        for part, length in effect.parts.items()
    ]


def _gain(effect: Effect) -> str:
    return "" if effect.gain is None else f" ({effect.gain.ratio:.2f} times as good)"
