"""Sections of a search: recommended settings, confirmation of their gain, course of the search."""

from __future__ import annotations

import math

from dlio_torch.report.html.bar_figure import bar_figure
from dlio_torch.report.html.page_blocks import (
    NOT_MEASURED,
    Absent,
    Block,
    Facts,
    Figure,
    Listing,
    Section,
    Table,
    Text,
)
from dlio_torch.report.html.run.section_setup import clean_lines
from dlio_torch.report.html.svg import to_svg
from dlio_torch.report.html.theme import BLACK, BLUE, ORANGE, SLATE, VERMILLION, clean, panels
from dlio_torch.study.axes import magnitude
from dlio_torch.study.metrics import Metric
from dlio_torch.study.model import NOT_APPLICABLE, Axis, Trial
from dlio_torch.study.page.marks import cut, handle, legend_of, metric_axis, ring
from dlio_torch.study.page.page_sentences import status
from dlio_torch.study.page.points import StudyView
from dlio_torch.study.strategies.search.confirmation import METHOD, PairedGain
from dlio_torch.study.values import axis_unit, places, text_of
from dlio_torch.units import percent

_SAMPLER = (
    "Gaussian process over the logarithm of the figure of the finite set of settings; expected improvement; no setting "
    "is explored twice, the default and those that lead are measured again"
)
_IMPORTANCE = "share of each key alone in the scatter of the expected figure over all settings"
_NOISE_ONLY = "no gain over the default was found beyond noise, so what an option explains here may be noise too"
_MOST_TICKS = 12
_MOST_LETTERS = 14  # of a tick's label
_ROOM = 40  # letters below a plot
_WIDE = 40.0


def recommended_section(study: StudyView) -> Section | None:
    """Builds the section with the recommended settings in every form, and the confirmation of their gain."""
    given, gain = study.data.recommendation, study.data.confirmation
    if given is None and gain is None:
        return None
    blocks: list[Block] = []
    if given is not None:
        if given.settings:
            defaults = {axis.key: axis.default for axis in study.axes}
            rows = [
                [clean(key), clean(value), "" if defaults.get(key) is None else clean(str(defaults[key]))]
                for key, value in given.settings
            ]
            blocks.append(Table("", ("<<option", "<<recommended", "<<default"), rows))
        if study.data.answer:
            blocks.append(Text(clean(study.data.answer)))
        blocks += [Listing(clean(title), clean_lines(text)) for title, text in given.blocks]
    if gain is None:
        blocks.append(Absent("The gain was not confirmed by paired runs."))
    else:
        interval = NOT_MEASURED
        if gain.low is not None and gain.high is not None:
            interval = f"{percent(gain.low)} to {percent(gain.high)}"
        better = sum(1 for value in _pair_gains(gain, study.objective) if value > 0)
        blocks.append(
            Facts(
                [
                    (f"gain in {clean(study.objective.label)}", percent(gain.gain)),
                    ("uncertainty interval of the gain", interval),
                    ("pairs in which the best setting was better", f"{better} of {len(gain.pairs)}"),
                ]
            )
        )
        svg = _confirmation_figure(gain, study.objective, "confirmation")
        caption = f"Default and best setting found, run one after the other. {METHOD}."
        blocks.append(
            Figure(svg, "Confirmation of the gain", caption, "Exact values; the interval is estimated from them.")
        )
    return Section("recommended", "Recommended settings", blocks)


def search_section(study: StudyView) -> Section | None:
    """Builds the section on the course of the search."""
    search = study.data.search
    if search is None:
        return None
    finished = sum(1 for trial in study.data.trials if not trial.failed)
    facts = [("trials", f"{finished} finished, {len(study.data.trials) - finished} failed")]
    facts += [("settings tried", str(len(study.points)))]
    if search.grid_size:
        share = f"{percent(len(study.points) / search.grid_size)} of {search.grid_size}"
        facts.append(("of the full grid", share))
    for label, value in (
        ("settings drawn by", _SAMPLER),
        ("budget", search.budget),
        ("ended because", search.stopped),
    ):
        if value:
            facts.append((label, clean(value)))
    blocks: list[Block] = [Facts(facts)]
    if study.scores:
        caption = (
            f"Each mark is the {study.objective.label} of one trial; the line is the best value of a single trial so "
            "far, noise included, so it may lie above what the confirmation finds."
        )
        blocks.append(Figure(_history_figure(study, "history"), "The search over time", caption, status(study)))
        if study.swept:
            caption = (
                "Each mark is one trial at a drawn value of the option, with various values of the other "
                "options; later trials are darker"
            )
            caption += "; a ring is the default." if study.default is not None else "."
            blocks.append(Figure(_slice_figure(study, "slices"), "Drawn values of each option", caption, status(study)))
    if search.importance:
        ordered = sorted(search.importance.items(), key=lambda item: -item[1])[:20]
        svg = bar_figure(
            [clean(key) for key, _ in ordered],
            {"importance": [100 * max(value, 0.0) for _, value in ordered]},
            {"importance": BLUE},
            axis=f"share of the scatter of {study.objective.label} that the option explains (%)",
            name="importance",
            description="Importance of each option",
            texts={"importance": [percent(value) for _, value in ordered]},
        )
        caption = f"{_IMPORTANCE}." if (study.data.recommended or 1) > 1 else f"{_IMPORTANCE}; {_NOISE_ONLY}."
        blocks.append(Figure(svg, "Importance of the options", caption, "Estimated from the trials."))
    else:
        blocks.append(Absent("The importance of options was not computed (too few trials, or a single option)."))
    return Section("search", "The search", blocks)


def _scored(study: StudyView) -> list[tuple[int, Trial, float]]:
    """Yields the number in time, the trial and the objective, for trials that have an objective."""
    key = study.objective.key
    return [
        (index, trial, value)
        for index, trial in enumerate(study.data.trials, start=1)
        if not trial.failed and (value := trial.figures.get(key)) is not None and math.isfinite(value)
    ]


def _history_figure(study: StudyView, name: str) -> str:
    """Draws each trial's objective in the order of time, and the best value so far."""
    result = _scored(study)
    factor, unit = axis_unit(max(value for _, _, value in result), study.objective)
    tips: dict[str, str] = {}
    with panels(1, 1, 3.1) as (figure, [axes]):
        values = [value * factor for _, _, value in result]
        wide = metric_axis(axes, study.objective, values, unit)
        best: float | None = None
        line: list[float] = []
        for i, trial, value in result:
            gid = f"trial-{i}"
            tips[gid] = f"trial {i}: {study.label(dict(trial.values))}: {text_of(value, study.objective.unit)}"
            [mark] = axes.plot([i], [value * factor], marker="o", color=BLUE, alpha=0.75, markersize=5, zorder=3)
            mark.set_gid(gid)
            if trial.point == study.default_number:
                ring(axes, i, value * factor)
            best = value if best is None else max(best, value) if study.better == "higher" else min(best, value)
            line.append(best * factor)
        axes.step([index for index, _, _ in result], line, where="post", color=ORANGE, linewidth=2, zorder=2)
        failed = [index for index, trial in enumerate(study.data.trials, start=1) if trial.failed]
        for i in failed:
            [mark] = axes.plot([i], [0.03], marker="x", color=VERMILLION, transform=axes.get_xaxis_transform())
            mark.set_gid(f"failed-{i}")
            tips[f"failed-{i}"] = f"trial {i}: failed"
        if not wide and study.better == "higher":
            axes.set_ylim(0, max(values) * 1.08)
        axes.set_xlim(0, len(study.data.trials) + 1)
        axes.set_xlabel("trial, in the order of time")
        entries = [handle("trial", marker="o", color=BLUE), handle("best so far", color=ORANGE, linestyle="-")]
        if any(trial.point == study.default_number for _, trial, _ in result):
            entries.append(handle("default", marker="o", markerfacecolor="none", markersize=10))
        if failed:
            entries.append(handle("failed", marker="x", color=VERMILLION))
        legend_of(figure, entries)
        return to_svg(figure, name, f"{study.objective.label} of each trial and the best so far", tips)


def _slice_figure(study: StudyView, name: str) -> str:
    """Draws, for each option, the objective over the drawn values; later trials are darker."""
    result = _scored(study)
    factor, unit = axis_unit(max(value for _, _, value in result), study.objective)
    tips: dict[str, str] = {}
    from matplotlib import colormaps

    shades = colormaps["Blues"]
    columns = 2 if len(study.swept) in (2, 4) else 3
    with panels(len(study.swept), columns, 2.7) as (figure, grid):
        for order, (axes, axis) in enumerate(zip(grid, study.swept, strict=True)):
            place = _places(axis)
            metric_axis(axes, study.objective, [value * factor for _, _, value in result], unit)
            if order % columns:
                axes.set_ylabel("")
            for index, trial, value in result:
                drawn = dict(trial.values).get(axis.key, NOT_APPLICABLE)
                if drawn not in place:
                    continue
                gid = f"slice-{order}-{index}"
                tips[gid] = f"trial {index}: {study.label(dict(trial.values))}: {text_of(value, study.objective.unit)}"
                [mark] = axes.plot(
                    [place[drawn]],
                    [value * factor],
                    marker="o",
                    markersize=5.5,
                    color=shades(0.3 + 0.65 * index / len(study.data.trials)),
                    markeredgecolor=SLATE,
                    markeredgewidth=0.4,
                )
                mark.set_gid(gid)
                if trial.point == study.default_number:
                    ring(axes, place[drawn], value * factor)
            letters = sum(len(cut(value, _MOST_LETTERS)) + 2 for value in place)
            every = max(-(-len(place) // _MOST_TICKS), -(-letters // _ROOM))
            # Numbers between two ticks can be told; of words each is needed.
            every = every if all(magnitude(value) is not None for value in place) else 1
            ticks = list(place.items())[::every]
            axes.set_xticks([x for _, x in ticks], [cut(value, _MOST_LETTERS) for value, _ in ticks])
            if letters / every > _ROOM:
                axes.tick_params(axis="x", labelrotation=35)
            axes.margins(x=0.08)
            axes.set_xlabel(cut(axis.key, 42))
        return to_svg(figure, name, f"{study.objective.label} over the drawn values of each option", tips)


def _places(axis: Axis) -> dict[str, float]:
    """Positions of drawn values: many numbers by size; few numbers, and words, side by side."""
    numbers = [magnitude(value) for value in axis.values]
    known = [value for value in numbers if value is not None]
    if len(axis.values) > _MOST_TICKS and len(known) == len(numbers):
        if min(known) > 0 and max(known) / min(known) > _WIDE:
            known = [math.log2(value) for value in known]
        return dict(zip(axis.values, known, strict=True))
    return dict(zip(axis.values, places(axis.values), strict=True))


def _confirmation_figure(gain: PairedGain, metric: Metric, name: str) -> str:
    """Draws the pairs of runs, and the gain with its uncertainty."""
    values = [value for pair in gain.pairs for value in pair]
    factor, unit = axis_unit(max(values), metric)
    tips: dict[str, str] = {}
    with panels(2, 2, 2.9) as (figure, [axes, gains]):
        metric_axis(axes, metric, [value * factor for value in values], unit)
        for index, (default, recommended) in enumerate(gain.pairs, start=1):
            axes.plot([index, index], [default * factor, recommended * factor], color=SLATE, linewidth=1, zorder=2)
            for item, value, colour, marker in (
                ("default", default, BLACK, "o"),
                ("recommended", recommended, BLUE, "D"),
            ):
                [mark] = axes.plot([index], [value * factor], marker=marker, color=colour, markersize=6, zorder=3)
                mark.set_gid(f"{item}-{index}")
                tips[f"{item}-{index}"] = f"pair {index}, {item}: {text_of(value, metric.unit)}"
        axes.set_xticks(range(1, len(gain.pairs) + 1))
        axes.set_xlim(0.4, len(gain.pairs) + 0.6)
        axes.set_xlabel("pair, in the order of time")
        ratios = [100 * value for value in _pair_gains(gain, metric)]
        gains.axvline(0, color=SLATE, linewidth=0.9)
        for index, value in enumerate(ratios):
            gains.plot([value], [1 + 0.05 * (index % 5)], marker="o", color=SLATE, alpha=0.7, markersize=5)
        if gain.low is not None and gain.high is not None:
            gains.hlines(0, 100 * gain.low, 100 * gain.high, color=BLUE, linewidth=3)
        gains.plot([100 * gain.gain], [0], marker="D", color=BLUE, markersize=8)
        gains.set_yticks([0, 1.1], ["gain with\nits interval", "each pair"])
        gains.set_ylim(-0.8, 2.0)
        gains.set_xlabel(f"gain in {clean(metric.label)} over the default (%)")
        gains.grid(visible=False, axis="y")
        gains.margins(x=0.12)
        legend_of(figure, [handle("default", marker="o", color=BLACK), handle("best found", marker="D", color=BLUE)])
        return to_svg(figure, name, "Runs of the default and of the best setting found, in pairs, and the gain", tips)


def _pair_gains(gain: PairedGain, metric: Metric) -> list[float]:
    """The relative gain of each pair."""
    gains = []
    for default, recommended in gain.pairs:
        above, below = (default, recommended) if metric.better == "lower" else (recommended, default)
        if below > 0:
            gains.append(above / below - 1)
    return gains
