"""Section on drift of the machine: each trial relative to the mean of its setting, in the order of time."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from dlio_torch.report.html.page_blocks import Block, Figure, Section, Text
from dlio_torch.report.html.svg import to_svg
from dlio_torch.report.html.theme import SLATE, panels, time_unit
from dlio_torch.study.model import Trial
from dlio_torch.study.page.marks import LINES, MARKERS, handle, legend_of
from dlio_torch.study.page.page_sentences import status
from dlio_torch.study.page.points import StudyView
from dlio_torch.units import percent


@dataclass(frozen=True)
class _Drift:
    """How repeats of the same settings differ over time.

    Args:
        trials: each repeated trial, in the order of time, with its relative difference from its setting's mean.
        rounds: mean difference of all trials of a repeat, by its number, in the order of time.
        timed: whether the start of each trial is known.
    """

    trials: tuple[tuple[Trial, float], ...]
    rounds: tuple[tuple[int, float], ...]
    timed: bool

    @property
    def largest(self) -> float:
        """Difference of the highest and the lowest round."""
        values = [value for _, value in self.rounds]
        return max(values) - min(values)


def drift_section(study: StudyView) -> Section | None:
    """Builds the section on the drift of the machine during the study."""
    if len(study.data.trials) < 2:
        return None
    result = _drift(study)
    if result is None:
        return Section(
            "drift",
            "Drift of the machine",
            [
                Text(
                    "Not measured: no setting ran more than once, so a slow machine cannot be told from a slow setting."
                )
            ],
        )
    caption = (
        f"Each trial's {study.objective.label} divided by the mean of its setting, less 1; a line is the mean of "
        "all trials of a repeat. Repeats are interleaved: every setting runs once before any setting runs again, "
        "so that drift affects all settings equally."
        if study.data.kind == "sweep"
        else f"Each trial's {study.objective.label} divided by the mean of its setting, less 1."
    )
    blocks: list[Block] = []
    if words := _words(result, study):
        blocks.append(Text(words))
    svg = _figure(study, result, "drift")
    blocks.append(Figure(svg, "Trials against the mean of their setting", caption, status(study)))
    return Section("drift", "Drift of the machine", blocks)


def _drift(study: StudyView) -> _Drift | None:
    """The drift of the objective; ``None`` where no setting was repeated."""
    key = study.objective.key
    result = []
    for point in study.points:
        values = [(trial, trial.figures.get(key)) for trial in point.trials if not trial.failed]
        known = [(trial, value) for trial, value in values if value is not None]
        mean = statistics.fmean(value for _, value in known) if len(known) > 1 else 0.0
        if mean != 0:
            result += [(trial, value / mean - 1) for trial, value in known]
    order = {id(trial): index for index, trial in enumerate(study.data.trials)}
    result.sort(key=lambda pair: order[id(pair[0])])
    if not result:
        return None
    timed = all(study.started_s(trial) is not None for trial, _ in result)
    by_round: dict[int, list[float]] = {}
    for trial, value in result:
        by_round.setdefault(trial.repeat, []).append(value)
    rounds = tuple((number, statistics.fmean(values)) for number, values in by_round.items())
    return _Drift(tuple(result), rounds, timed)


def _words(drift: _Drift, study: StudyView) -> str:
    """Returns the sentence on the drift of the machine between repeats."""
    if len(drift.rounds) < 2:
        return ""
    lines = [f"repeat {number} {100 * value:+.1f} %" for number, value in drift.rounds[:6]]
    ranges = [
        (score.high - score.low) / score.median
        for score in study.scores.values()
        if score.count > 1 and score.median > 0
    ]
    typical = sorted(ranges)[len(ranges) // 2] if ranges else math.nan
    text = f"Mean of each repeat over all settings: {', '.join(lines)}"
    text += " and so on" if len(drift.rounds) > 6 else ""
    if typical > 0 and drift.largest > 0.5 * typical and drift.largest > 0.02:
        return (
            f"{text}. The machine drifted by {percent(drift.largest)} between repeats, and the typical range of "
            f"a setting is {percent(typical)} of its median: the drift contributes to every range."
        )
    spread = "" if math.isnan(typical) else f" (typically {percent(typical)} of its median)"
    return f"{text}. The drift is small compared with the range of a setting{spread}."


def _figure(study: StudyView, drift: _Drift, name: str) -> str:
    """Trials over time, a colour for each repeat, and a line at the middle of each repeat."""
    number_of = {id(trial): index for index, trial in enumerate(study.data.trials, start=1)}
    factor, unit = 1.0, ""
    if drift.timed:
        factor, unit = time_unit(max(study.started_s(trial) or 0.0 for trial, _ in drift.trials))

    def place(trial: Trial) -> float:
        return (study.started_s(trial) or 0.0) * factor if drift.timed else float(number_of[id(trial)])

    tips: dict[str, str] = {}
    order = [number for number, _ in drift.rounds]
    with panels(1, 1, 2.7) as (figure, [axes]):
        axes.axhline(0, color=SLATE, linewidth=0.9, zorder=1)
        for i, (number, middle) in enumerate(drift.rounds):
            colour, marker = LINES[i % len(LINES)], MARKERS[i % len(MARKERS)]
            local = [(trial, value) for trial, value in drift.trials if trial.repeat == number]
            for trial, value in local:
                gid = f"trial-{number_of[id(trial)]}"
                tips[gid] = f"{study.label(dict(trial.values))}, repeat {number}: {100 * value:+.2f} %"
                [mark] = axes.plot([place(trial)], [100 * value], marker=marker, color=colour, markersize=5, zorder=3)
                mark.set_gid(gid)
            places = [place(trial) for trial, _ in local]
            if len(local) > 1:
                axes.hlines(100 * middle, min(places), max(places), color=colour, linewidth=2, alpha=0.6, zorder=2)
        largest = max(abs(value) for _, value in drift.trials)
        axes.set_ylim(-112 * largest - 0.5, 112 * largest + 0.5)
        axes.set_ylabel(f"{study.objective.label}\nagainst the mean (%)")
        axes.set_xlabel(f"start of the trial ({unit} from the first)" if drift.timed else "trial, in the order of time")
        legend_of(
            figure,
            [
                handle(f"repeat {number}", color=LINES[index % len(LINES)], marker=MARKERS[index % len(MARKERS)])
                for index, number in enumerate(order[:12])
            ],
        )
        return to_svg(figure, name, f"{study.objective.label} of each trial against its setting's mean", tips)
