"""Text of values in advice: figures for readers, option values for the command line."""

from __future__ import annotations

from dlio_torch.analysis.advice.advice_item import Predicted, Value


def percent(share: float) -> str:
    """``0.2`` as ``20 %``."""
    return f"{100 * share:.1f} %" if share < 0.0995 else f"{100 * share:.0f} %"


def value_text(value: Value) -> str:
    """A value as the command line takes it."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return str(value)


def outlook(predicted: Predicted) -> str:
    """``is predicted to bring that to 18 % to 22 %``."""
    low = percent(predicted.low)
    if predicted.high is None:
        return f"is predicted to bring that to {low} at best"
    high = percent(predicted.high)
    return f"is predicted to bring that to {low}" + ("" if high == low else f" to {high}")
