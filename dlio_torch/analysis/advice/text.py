"""Words of advice: figures as people read them, values as the command line takes them."""

from __future__ import annotations

from dlio_torch.analysis.advice.evidence import Predicted, Value
from dlio_torch.units import SIZE_UNITS


def percent(share: float) -> str:
    """``0.2`` as ``20 %``."""
    return f"{100 * share:.1f} %" if share < 0.0995 else f"{100 * share:.0f} %"


def value_text(value: Value) -> str:
    """A value as the command line takes it."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return str(value)


def size_text(size: int) -> str:
    """``65536`` as ``64KiB``: exact, as the command line takes it."""
    for name in ("GiB", "MiB", "KiB"):
        unit = int(SIZE_UNITS[name])
        if size >= unit and size % unit == 0:
            return f"{size // unit}{name}"
    return str(size)


def outlook(predicted: Predicted) -> str:
    """``is predicted to bring that to 18 % to 22 %``."""
    low = percent(predicted.low)
    if predicted.high is None:
        return f"is predicted to bring that to {low} at best"
    high = percent(predicted.high)
    return f"is predicted to bring that to {low}" + ("" if high == low else f" to {high}")


def power_of_two(size: float) -> int:
    """The least power of two that is not less."""
    power = 1
    while power < size:
        power *= 2
    return power
