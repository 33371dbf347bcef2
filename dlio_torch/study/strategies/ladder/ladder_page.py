"""Converts the ladder to content of the study's page."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlio_torch.study.metrics import AU, FETCH, STEP, THROUGHPUT, Metric
from dlio_torch.study.model import Trial
from dlio_torch.study.page.findings import LadderSummary
from dlio_torch.study.page.page_content import page_content
from dlio_torch.study.page.page_data import StudyData
from dlio_torch.study.strategies.ladder.gains import METHOD
from dlio_torch.study.strategies.ladder.rungs import CONFIGURED, LADDER

if TYPE_CHECKING:
    from dlio_torch.study.strategies.ladder.ladder import LadderResult

_STEP = Metric(
    STEP.key, "time of a step", STEP.unit, STEP.better, "elapsed time / steps, the starts of epochs included"
)
_METHOD = (
    "Every rung is a run in new processes that lacks one more cost than the rung above; costs that overlap "
    "appear with the last of them. Samples that are replayed are copied into the fresh memory of each batch; "
    "batches that are replayed are passed by reference, without any memory traffic. The gain of a rung is the "
    f"{METHOD}; therefore it differs slightly from the ratio of the medians shown."
)


def ladder_content(result: LadderResult) -> StudyData:
    """Builds the content of the page of a ladder."""
    strategy = result.strategy
    titles = {effect.rung.name: effect.rung.title for effect in result.effects}
    ladder = tuple(effect for effect in result.effects if effect.rung.name in LADDER)
    axes = strategy.study.axes
    return page_content(
        strategy.store,
        result.trials,
        kind="headspace",
        axes=tuple(
            replace(axis, values=tuple(titles[name] for name in axis.values), settings=None, default=titles[CONFIGURED])
            for axis in axes
        ),
        trials=tuple(_with_titles(trial, titles) for trial in result.trials),
        answer=result.sentences[0],
        metrics=(THROUGHPUT, AU, FETCH, STEP),
        planned=max(len(strategy.points) * strategy.study.repeats, len(result.trials)),
        missing=tuple(f"{effect.rung.title}: {effect.why}." for effect in result.effects if effect.why),
        ladder=LadderSummary(_STEP, ladder, result.sentences[1:], _METHOD),
    )


def _with_titles(trial: Trial, titles: dict[str, str]) -> Trial:
    return replace(trial, values=tuple((key, titles[name]) for key, name in trial.values))
