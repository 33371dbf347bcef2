"""Text of values in advice: shares for readers, option values for the command line."""

from __future__ import annotations

from dlio_torch.analysis.advice.advice_item import Predicted, Value
from dlio_torch.units import percent


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
