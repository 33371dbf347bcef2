"""Parts that the loader's rules share: limits of the loader model, and the choice of the best setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlio_torch.analysis.advice.advice_item import Advice, Predicted, Value
from dlio_torch.analysis.advice.evidence import LEAST, MIN_STEPS, MOST_ERROR, Evidence
from dlio_torch.analysis.advice.loader_model import LoaderModel
from dlio_torch.analysis.advice.loader_replay import LoaderSetup
from dlio_torch.analysis.advice.value_text import value_text
from dlio_torch.data.engines.registry import facts
from dlio_torch.units import percent

Finding = Advice | str
"""Result of a rule: a piece of advice, or the reason why the rule gives none although time is lost."""

Choice = tuple[LoaderSetup, Mapping[str, Value]]
"""A loader setup, and the options that configure it."""

STARVED = 0.15
"""Share of the producers' time in the run queue above which no core of the machine counts as free."""

TAKEN = 0.5
"""Number of a rank's cores used by other programs above which the advice mentions them."""

_RESERVE = 1.1
_ENOUGH = 1.03  # of two settings that differ by less, the smaller one


def unusable(evidence: Evidence, *, fewer_cores: bool = False) -> str | None:
    """Reason why the loader model cannot predict this run; None if it can.

    Args:
        evidence: of the run.
        fewer_cores: whether it is asked for something that needs fewer cores than the run did.
    """
    model = evidence.model
    if model is None:
        if evidence.config.loader.replay != "none":
            return "loader.replay leaves out costs of the loader, so no prediction is possible"
        if facts(evidence.config.loader.engine).counts_bytes(evidence.config.loader):
            return (
                "the loader's engine reads ahead by bytes, not by batches, so no prediction is possible; run the "
                "verb `tune` to try its settings"
            )
        return "the production time of each batch was not recorded; set trace.spans=true to record it"
    if model.batches < MIN_STEPS:
        return f"{model.batches} measured batches are too few for a prediction"
    if model.starved is not None and model.starved >= STARVED and not fewer_cores:
        # The model knows what batches cost with a core of their own, not how long the next ones would wait for one.
        return f"no CPU core was free: batches in production waited for a core {percent(model.starved)} of the time"
    if model.measured.step_s <= 0 or abs(model.error) > MOST_ERROR:
        return (
            f"no prediction is possible: the loader model gives {percent(abs(model.error))} "
            f"{'less' if model.error < 0 else 'more'} than the measured time of a step"
        )
    return None


def best(evidence: Evidence, model: LoaderModel, choices: Sequence[Choice]) -> Choice | None:
    """Chooses the first allowed setting that is nearly as good as the best one.

    They are compared as if making a batch took a little longer: readers that are just fast enough are not.
    """
    slower = model.slower(_RESERVE)
    candidates = [
        (slower.outcome(setup), (setup, settings))
        for setup, settings in choices
        if evidence.holds(setup.depth) and evidence.allows(settings)
    ]
    if not candidates:
        return None
    least = min(outcome.step_s for outcome, _ in candidates)
    return next(choice for outcome, choice in candidates if outcome.step_s <= _ENOUGH * least)


def worth(evidence: Evidence, setup: LoaderSetup, predicted: Predicted) -> bool:
    """Whether the smallest predicted gain is large enough to advise the change."""
    if predicted.gain_low is None and (predicted.gain_high or 0.0) >= LEAST:
        predicted = evidence.forecast(setup, sure=True, assumption=predicted.assumption)
    return predicted.gain_low is not None and predicted.gain_low >= LEAST


def also(evidence: Evidence, settings: Mapping[str, Value], key: str) -> tuple[tuple[str, str], ...]:
    """Options other than ``key`` that the chosen setting changes."""
    loader = evidence.config.loader
    return tuple(
        (name, value_text(value))
        for name, value in settings.items()
        if name != key and getattr(loader, name.removeprefix("loader.")) != value
    )
