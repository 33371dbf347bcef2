"""One piece of advice: the option to change, its new value, the evidence and the predicted effect."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

Value = int | float | str | bool | None
Figures = tuple[tuple[str, Value], ...]


@dataclass(frozen=True)
class Predicted:
    """Predicted value of a figure after a change.

    Attributes:
        figure: its dotted name in ``summary.json``.
        now: what was measured.
        low: the least it can become by the model.
        high: the most; None: not known, ``low`` is the best that can happen.
        gain_low: share of the elapsed time that is saved at the least; None: not known.
        gain_high: at the most; None: not known.
        assumption: what the prediction takes for granted.
    """

    figure: str
    now: float
    low: float
    high: float | None
    gain_low: float | None
    gain_high: float | None
    assumption: str


@dataclass(frozen=True)
class Advice:
    """One recommended change of an option, with its evidence and its predicted effect.

    Attributes:
        rule: what found it.
        key: the option to change; None: it is no option.
        value: its new value, as the command line takes it; None likewise.
        text: all of it in one line.
        evidence: names and values of the figures it rests on.
        predicted: what will come of it, None where the model's inputs were not measured.
        confidence: ``high``: everything was measured, the model agrees with the run, and its steps were alike;
            ``low``: it rests on estimates, on something that was not measured, or on uneven steps; ``medium``: else.
        also: options and values that have to be set together with it.
    """

    rule: str
    key: str | None
    value: str | None
    text: str
    evidence: Figures
    predicted: Predicted | None
    confidence: str
    also: tuple[tuple[str, str], ...] = ()

    @property
    def gain(self) -> float:
        """Sort key of advice: the predicted gain, or the middle of its interval."""
        predicted = self.predicted
        if predicted is None or predicted.gain_high is None:
            return 0.0
        return (predicted.gain_high + (predicted.gain_low or 0.0)) / 2

    def to_json(self) -> dict[str, Any]:
        """The advice as plain values for JSON."""
        fields = dataclasses.asdict(self)
        return {
            **fields,
            "evidence": [list(pair) for pair in self.evidence],
            "also": [list(pair) for pair in self.also],
        }
