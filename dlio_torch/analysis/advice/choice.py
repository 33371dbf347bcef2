"""What the rules on the loader share: when the model may be asked, and which of some choices it finds best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlio_torch.analysis.advice.clock import Reading
from dlio_torch.analysis.advice.evidence import LEAST, MIN_STEPS, MOST_ERROR, Advice, Evidence, Predicted, Value
from dlio_torch.analysis.advice.model import Model
from dlio_torch.analysis.advice.text import percent, value_text
from dlio_torch.data.engines.registry import facts

Finding = Advice | str
"""What a rule gives: advice, or why it says nothing although there was reason to look."""

Choice = tuple[Reading, Mapping[str, Value]]
"""Readers, and the options that make them."""

STARVED = 0.15
"""From this share of the makers' time spent in the run queue, the machine has no core to spare."""

TAKEN = 0.5
"""From so many cores of a rank that other work kept busy, it is named."""

_RESERVE = 1.1
_ENOUGH = 1.03  # of two settings that differ by less, the smaller one


def unusable(evidence: Evidence, *, fewer_cores: bool = False) -> str | None:
    """Why the model cannot be asked; None where it can.

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
        return "how each batch was made was not recorded (trace.spans=true does)"
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


def best(evidence: Evidence, model: Model, choices: Sequence[Choice]) -> Choice | None:
    """The first of the choices that is nearly as good as any, of those that the configuration allows.

    They are compared as if making a batch took a little longer: readers that are just fast enough are not.
    """
    slower = model.slower(_RESERVE)
    found = [
        (slower.outcome(reading), (reading, settings))
        for reading, settings in choices
        if evidence.holds(reading.depth) and evidence.allows(settings)
    ]
    if not found:
        return None
    least = min(outcome.step_s for outcome, _ in found)
    return next(choice for outcome, choice in found if outcome.step_s <= _ENOUGH * least)


def worth(evidence: Evidence, reading: Reading, predicted: Predicted) -> bool:
    """Whether so much is gained that it is worth a change, as far as that is known at the least."""
    if predicted.gain_low is None and (predicted.gain_high or 0.0) >= LEAST:
        predicted = evidence.forecast(reading, sure=True, assumption=predicted.assumption)
    return predicted.gain_low is not None and predicted.gain_low >= LEAST


def also(evidence: Evidence, settings: Mapping[str, Value], key: str) -> tuple[tuple[str, str], ...]:
    """The other settings, as far as they differ from what there is."""
    loader = evidence.config.loader
    return tuple(
        (name, value_text(value))
        for name, value in settings.items()
        if name != key and getattr(loader, name.removeprefix("loader.")) != value
    )
