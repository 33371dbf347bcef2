"""Shared parts of the loader's rules: limits of the model, and the best of several settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlio_torch.analysis.advice.advice_item import Advice, Predicted, Value
from dlio_torch.analysis.advice.evidence import LEAST, MIN_STEPS, MOST_ERROR, Evidence
from dlio_torch.analysis.advice.loader_model import LoaderModel
from dlio_torch.analysis.advice.loader_replay import LoaderSetup
from dlio_torch.analysis.advice.value_text import percent, value_text
from dlio_torch.data.engines.registry import facts

Finding = Advice | str
"""Result of a rule: advice, or the reason why it gives none despite a loss."""

Choice = tuple[LoaderSetup, Mapping[str, Value]]
"""Producers, and the options that set them."""

STARVED = 0.15
"""Share of the producers' time in the run queue from which the machine has no free core."""

TAKEN = 0.5
"""Cores of a rank used by other work, from which the advice names them."""

_RESERVE = 1.1
_ENOUGH = 1.03  # of two settings that differ by less, the smaller one


def unusable(evidence: Evidence, *, fewer_cores: bool = False) -> str | None:
    """Reason why the model cannot predict; None if it can.

    Args:
        evidence: of the run.
        fewer_cores: whether it is asked for something that needs fewer cores than the run did.
    """
    model = evidence.model
    if model is None:
        if evidence.config.loader.replay != "none":
            return "loader.replay leaves out costs"
        if facts(evidence.config.loader.engine).counts_bytes(evidence.config.loader):
            return "its engine reads ahead by bytes, not by batches; `tune` tries its settings"
        return "the production of each batch was not recorded (trace.spans=true records it)"
    if model.batches < MIN_STEPS:
        return f"{model.batches} measured batches are too few"
    if model.starved is not None and model.starved >= STARVED and not fewer_cores:
        # The model knows what batches cost with a core of their own, not how long the next ones would wait for one.
        return f"no core was free, batches waited for one {percent(model.starved)} of the time in which they were made"
    if model.measured.step_s <= 0 or abs(model.error) > MOST_ERROR:
        return (
            f"the model of the loader gives {percent(abs(model.error))} "
            f"{'less' if model.error < 0 else 'more'} than the time that was measured"
        )
    return None


def best(evidence: Evidence, model: LoaderModel, choices: Sequence[Choice]) -> Choice | None:
    """The first allowed choice that is nearly as good as the best one.

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
    """Whether the least known gain is worth a change."""
    if predicted.gain_low is None and (predicted.gain_high or 0.0) >= LEAST:
        predicted = evidence.forecast(setup, sure=True, assumption=predicted.assumption)
    return predicted.gain_low is not None and predicted.gain_low >= LEAST


def also(evidence: Evidence, settings: Mapping[str, Value], key: str) -> tuple[tuple[str, str], ...]:
    """The other settings that differ from the configuration."""
    loader = evidence.config.loader
    return tuple(
        (name, value_text(value))
        for name, value in settings.items()
        if name != key and getattr(loader, name.removeprefix("loader.")) != value
    )
