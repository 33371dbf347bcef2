"""Text of values in advice: shares for readers, option values for the command line."""

from __future__ import annotations

from dlio_torch.analysis.advice.advice_item import Predicted, Value


def percent(share: float) -> str:
    """A share as text: ``0.2`` is ``20 %``."""
    return f"{100 * share:.1f} %" if share < 0.0995 else f"{100 * share:.0f} %"


def value_text(value: Value) -> str:
    """An option's value as the command line accepts it."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return str(value)


def outlook(predicted: Predicted) -> str:
    """Text on the predicted wait for data: ``is predicted to reduce the wait to 18 % to 22 % of the time``."""
    low = percent(predicted.low)
    if predicted.high is None:
        return f"is predicted to reduce the wait to {low} of the time at best"
    high = percent(predicted.high)
    return f"is predicted to reduce the wait to {low if high == low else f'{low} to {high}'} of the time"
