"""Whether the machine drifted: each trial against the mean of its own setting, in the order of time."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from dlio_torch.report.html.study.data import Trial
from dlio_torch.report.html.study.marks import LINES, MARKERS, handle, legend_of
from dlio_torch.report.html.study.points import Study
from dlio_torch.report.html.svg import to_svg
from dlio_torch.report.html.theme import SLATE, panels, time_unit


@dataclass(frozen=True)
class Drift:
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


def drift(study: Study) -> Drift | None:
    """The drift of the objective; ``None`` where no setting was repeated."""
    key = study.objective.key
    found = []
    for point in study.points:
        values = [(trial, trial.figures.get(key)) for trial in point.trials if not trial.failed]
        known = [(trial, value) for trial, value in values if value is not None]
        mean = statistics.fmean(value for _, value in known) if len(known) > 1 else 0.0
        if mean != 0:
            found += [(trial, value / mean - 1) for trial, value in known]
    order = {id(trial): at for at, trial in enumerate(study.data.trials)}
    found.sort(key=lambda pair: order[id(pair[0])])
    if not found:
        return None
    timed = all(trial.started_s is not None for trial, _ in found)
    by_round: dict[int, list[float]] = {}
    for trial, value in found:
        by_round.setdefault(trial.repeat, []).append(value)
    rounds = tuple((number, statistics.fmean(values)) for number, values in by_round.items())
    return Drift(tuple(found), rounds, timed)


def drift_figure(study: Study, found: Drift, name: str) -> str:
    """Trials over time, a colour for each repeat, and a line at the middle of each repeat."""
    number_of = {id(trial): at for at, trial in enumerate(study.data.trials, start=1)}
    factor, unit = 1.0, ""
    if found.timed:
        factor, unit = time_unit(max(trial.started_s or 0.0 for trial, _ in found.trials))

    def place(trial: Trial) -> float:
        return (trial.started_s or 0.0) * factor if found.timed else float(number_of[id(trial)])

    tips: dict[str, str] = {}
    order = [number for number, _ in found.rounds]
    with panels(1, 1, 2.7) as (figure, [axes]):
        axes.axhline(0, color=SLATE, linewidth=0.9, zorder=1)
        for at, (number, middle) in enumerate(found.rounds):
            colour, marker = LINES[at % len(LINES)], MARKERS[at % len(MARKERS)]
            own = [(trial, value) for trial, value in found.trials if trial.repeat == number]
            for trial, value in own:
                gid = f"trial-{number_of[id(trial)]}"
                tips[gid] = f"{study.label(trial.settings)}, repeat {number}: {100 * value:+.2f} %"
                [mark] = axes.plot([place(trial)], [100 * value], marker=marker, color=colour, markersize=5, zorder=3)
                mark.set_gid(gid)
            places = [place(trial) for trial, _ in own]
            if len(own) > 1:
                axes.hlines(100 * middle, min(places), max(places), color=colour, linewidth=2, alpha=0.6, zorder=2)
        largest = max(abs(value) for _, value in found.trials)
        axes.set_ylim(-112 * largest - 0.5, 112 * largest + 0.5)
        axes.set_ylabel(f"{study.objective.label}\nagainst the mean (%)")
        axes.set_xlabel(f"start of the trial ({unit} from the first)" if found.timed else "trial, in the order of time")
        legend_of(
            figure,
            [
                handle(f"repeat {number}", color=LINES[at % len(LINES)], marker=MARKERS[at % len(MARKERS)])
                for at, number in enumerate(order[:12])
            ],
        )
        return to_svg(figure, name, f"{study.objective.label} of each trial against its setting's mean", tips)
