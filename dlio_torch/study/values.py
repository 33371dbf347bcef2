"""Values of swept options and of metrics: equality, order, positions on an axis, and text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from dlio_torch.report.html.page_blocks import NOT_MEASURED
from dlio_torch.report.html.theme import clean, size_unit, time_unit
from dlio_torch.study.axes import magnitude
from dlio_torch.study.metrics import Metric
from dlio_torch.units import format_duration, format_rate, format_size, percent

NUMBER_UNITS = ("s", "B", "B/s", "share")
"""Units with a prefix that depends on the size of the number, so that each number needs its unit."""

_SPECIAL = {"true": "true", "false": "false", "null": "null", "none": "null", "~": "null"}


def canonical(text: str) -> str:
    """Returns the same text for all spellings of a value: ``256KiB`` and ``262144``, ``True`` and ``true``."""
    plain = text.strip().strip("'\"")
    result = magnitude(plain)
    if result is not None and math.isfinite(result):
        return f"{result:.12g}"
    return _SPECIAL.get(plain.lower(), plain)


def ordered(values: Iterable[str]) -> tuple[str, ...]:
    """Returns the distinct values: numbers by size, then words by name."""

    def place(text: str) -> tuple[bool, float, str]:
        result = magnitude(text)
        return result is None, result or 0.0, text

    distinct = {canonical(value): value for value in values}
    return tuple(sorted(distinct.values(), key=place))


def places(values: Sequence[str]) -> tuple[float, ...]:
    """Positions of values on an axis: powers by exponent, evenly spaced numbers by value, others side by side.

    The distance of the closest two is 1.
    """
    result = [magnitude(value) for value in values]
    numbers = [value for value in result if value is not None]
    side_by_side = tuple(float(index) for index in range(len(values)))
    if len(values) < 3 or len(numbers) < len(values) or len(set(numbers)) < len(numbers):
        return side_by_side
    if whole := _exponents(numbers):
        step = min(abs(b - a) for a, b in pairwise(whole))
        return tuple(item / step for item in whole)
    return side_by_side


def powers(values: Sequence[str]) -> bool:
    """Whether the axis of ``values`` is logarithmic."""
    numbers = [value for text in values if (value := magnitude(text)) is not None]
    return 3 <= len(values) == len(numbers) and bool(_exponents(numbers))


def _exponents(numbers: Sequence[float]) -> list[float]:
    """Exponents of 2, or of 10, of numbers divided by the first; none where they are no such powers."""
    if all(value > 0 for value in numbers):
        for base in (2.0, 10.0):
            exponents = [math.log(value / numbers[0], base) for value in numbers]
            if all(abs(exponent - round(exponent)) < 1e-9 for exponent in exponents):
                return [float(round(exponent)) for exponent in exponents]
    return []


def short_keys(keys: Sequence[str]) -> dict[str, str]:
    """Returns the shortest endings of dotted names that are distinct."""
    result = {}
    for key in keys:
        parts = key.split(".")
        for length in range(1, len(parts) + 1):
            end = ".".join(parts[-length:])
            if sum(1 for other in keys if other == end or other.endswith(f".{end}")) == 1:
                break
        result[key] = clean(end)
    return result


def text_of(value: float | None, unit: str) -> str:
    """Formats a value with its unit."""
    if value is None or not math.isfinite(value):
        return NOT_MEASURED
    if unit == "s":
        return format_duration(value)
    if unit == "B/s":
        return format_rate(value)
    if unit == "B":
        return format_size(value)
    if unit == "share":
        return percent(value)
    return f"{digits(value)} {clean(unit)}".rstrip()


def counted(number: int, noun: str) -> str:
    """``1 point``, ``2 points``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """Joins names for a sentence: ``a, b and c``."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def column_text(value: float, unit: str) -> str:
    """A value in a column, whose heading may hold the unit."""
    return text_of(value, unit) if unit in NUMBER_UNITS else digits(value)


def span_text(low: float, high: float, unit: str) -> str:
    """Formats a range: ``1,210 to 1,260``; the unit is shown only if its prefix varies."""
    if unit in NUMBER_UNITS:
        return f"{text_of(low, unit)} to {text_of(high, unit)}"
    return f"{digits(low)} to {digits(high)}"


def digits(value: float) -> str:
    """Formats four significant digits, with thousands separators."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def axis_unit(largest: float, metric: Metric) -> tuple[float, str]:
    """Returns factor and unit for an axis whose largest value is ``largest``."""
    if metric.unit == "s":
        return time_unit(largest)
    if metric.unit in ("B", "B/s"):
        factor, unit = size_unit(largest)
        return factor, unit + metric.unit[1:]
    if metric.unit == "share":
        return 100.0, "%"
    return 1.0, clean(metric.unit)
