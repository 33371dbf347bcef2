"""Picture of the first screen of a sweep or a search: its best settings and the default, with all their repeats."""

from __future__ import annotations

from collections.abc import Sequence

from dlio_torch.report.html.page_blocks import Figure
from dlio_torch.report.html.svg import to_svg
from dlio_torch.report.html.theme import BLACK, BLUE, SLATE, canvas, clean, legend
from dlio_torch.study.page.marks import cut, spoken
from dlio_torch.study.page.page_sentences import status
from dlio_torch.study.page.point_trials import PointTrials
from dlio_torch.study.page.points import StudyView
from dlio_torch.study.values import axis_unit, text_of

_MOST = 8  # bars of one workload
_MOST_OF_ALL = 12  # bars of several workloads
_MOST_LETTERS = 46  # of a label


def ranking_figure(study: StudyView) -> Figure | None:
    """Draws a bar for each of the best settings and for the default; ``None`` for fewer than two settings."""
    shown = _shown(study)
    if len(shown) < 2:
        return None
    metric = study.objective
    best = {number for case in study.cases for number in case.leaders}
    factors, label = _scale(study, shown)
    labels = [cut(_label(study, point), _MOST_LETTERS) for point in shown]
    tips = {}
    with canvas(1.1 + 0.32 * len(shown)) as (figure, [axes]):
        for place, point in enumerate(shown):
            score, factor = study.scores[point.number], factors[point.number]
            colour = BLUE if point.number in best else SLATE
            [bar] = axes.barh([place], [score.median * factor], 0.62, color=colour, zorder=2)
            bar.set_gid(f"setting-{place}")
            tips[f"setting-{place}"] = f"{_label(study, point)}: {spoken(score, metric)}"
            if score.count > 1:
                axes.plot([score.low * factor, score.high * factor], [place, place], color=BLACK, lw=1.2, zorder=3)
            end = text_of(score.median, metric.unit)
            axes.annotate(
                end, (score.high * factor, place), (5, 0), textcoords="offset points", va="center", fontsize=9.5
            )
        axes.set_yticks(range(len(shown)), labels)
        axes.tick_params(axis="y", length=0, labelcolor=BLACK)
        axes.set_ylim(len(shown) - 0.5, -0.5)
        axes.set_xlim(0, 1.17 * max(study.scores[point.number].high * factors[point.number] for point in shown))
        axes.set_xlabel(label)
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        if study.repeated:
            legend(figure, [("best, or as good within the noise of the repeats", BLUE), ("other settings", SLATE)])
        svg = to_svg(figure, "ranking", f"{metric.label} of the best settings and of the default", tips)
    return Figure(svg, _title(study, shown), _caption(study), status(study))


def _shown(study: StudyView) -> Sequence[PointTrials]:
    """The best settings, and the default in the place of the last one if it is not among them."""
    if len(study.cases) > 1:
        each = max(2, _MOST_OF_ALL // len(study.cases))
        of_case = [[point for point in study.ranked if study.case_of(point) is case] for case in study.cases]
        return [point for points in of_case for point in points[:each]]
    shown, default = list(study.ranked[:_MOST]), study.default
    if default is not None and default.number in study.scores and default not in shown:
        shown[-1:] = [default]
    return shown


def _scale(study: StudyView, shown: Sequence[PointTrials]) -> tuple[dict[int, float], str]:
    """The factor of each setting's bar, and the name of the axis; several workloads are relative to their best."""
    metric = study.objective
    if len(study.cases) > 1:
        best = {id(case): study.scores[case.leaders[0]].median for case in study.cases}
        factors = {point.number: 100 / (best[id(study.case_of(point))] or 1.0) for point in shown}
        return factors, f"{clean(metric.label)}, share of the best setting of the same workload (%)"
    factor, unit = axis_unit(max(study.scores[point.number].high for point in shown), metric)
    return {point.number: factor for point in shown}, f"{clean(metric.label)} ({unit})" if unit else clean(metric.label)


def _label(study: StudyView, point: PointTrials) -> str:
    """The options that differ between settings, with the default marked."""
    swept = {axis.key for axis in study.swept}
    text = study.label({key: value for key, value in point.settings.items() if key in swept})
    return f"{text} (default)" if point.number == study.default_number else text


def _title(study: StudyView, shown: Sequence[PointTrials]) -> str:
    if len(shown) == len(study.ranked):
        return "All settings"
    each = " of each workload" if len(study.cases) > 1 else ""
    return f"The best settings{each}: {len(shown)} of {len(study.ranked)}"


def _caption(study: StudyView) -> str:
    better = "longer bars are better" if study.better == "higher" else "shorter bars are better"
    if not study.repeated:
        return f"Each setting ran once; {better}."
    return f"Median of the repeats of a setting, with a line from the smallest to the largest; {better}."
