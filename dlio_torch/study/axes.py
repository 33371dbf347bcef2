"""Values of an axis as text: lists and ranges.

A value on the command line, or an item of a list in a study file, may be::

    0,1,4          a list; brackets, braces, parentheses and quotes protect commas: [64,64],[128,128] are two
                   values, 'a,b' is one (quotes around a whole value are dropped, and keep a..b from being a range)
    0..4           a range, both ends included: 0,1,2,3,4
    0..16:4        with a step: 0,4,8,12,16
    64KiB..4MiB:x2 with a factor: 64KiB,128KiB,...,4MiB; sizes and durations keep their units
    8..1:x2        downwards: 8,4,2,1

All of it can be mixed: ``1,2..8:2,16..64:x2``.  Where the end is not met, the last value lies before it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

from dlio_torch.errors import ConfigError
from dlio_torch.units import SIZE_UNITS, TIME_UNITS, parse_duration, parse_size_float

MOST_VALUES = 1000
"""Largest number of values of an axis; a longer list is taken for a typing mistake."""

_N = r"[+-]?(?:[0-9]{1,30}(?:\.[0-9]{1,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,2})?"
_U = r"[A-Za-zµμ]*"
_BEGIN = re.compile(rf"\s*{_N}{_U}\.\.")
_RANGE = re.compile(rf"\s*({_N})({_U})\.\.({_N})({_U})(?::(x?)({_N})({_U}))?\s*")
_CLOSING = {"[": "]", "{": "}", "(": ")"}
_BINARY = tuple(name for name in SIZE_UNITS if "i" in name)
_DECIMAL = ("kB", "MB", "GB", "TB", "PB")


def expand(key: str, text: str, source: str = "command line") -> tuple[str, ...]:
    """Expands ``text`` to the values of an axis, at least one.

    Args:
        key: what they are values of, for messages.
        text: as written, see the module's text.
        source: where that was, for messages.

    Raises:
        ConfigError: a range that makes no sense, an empty or repeated value, too many values.
    """

    def wrong(problem: str, hint: str) -> ConfigError:
        return ConfigError(f"{key}={text} ({source}): {problem}", hint=hint)

    items = _split(text)
    if items is None:
        raise wrong(
            "a bracket or a quote is not closed", "close the bracket or quote, or put the whole value in quotes"
        )
    values: list[str] = []
    for item in items:
        if len(items) > 1 and not item:
            raise wrong("there is an empty value between commas", "remove one comma, or write null as the value")
        if _BEGIN.match(item):
            try:
                values += _range(item, MOST_VALUES)
            except ValueError as error:
                raise wrong(f"{item}: {error}", "write a range as 0..8, 0..16:4 or 64KiB..4MiB:x2") from None
        else:
            values.append(_unquoted(item))
        if len(values) > MOST_VALUES:
            raise wrong(f"the range has more than {MOST_VALUES} values", "choose a larger step")
    for i, value in enumerate(values):
        if value in values[:i]:
            raise wrong(f"{value} appears twice", "list every value once; to repeat every point, set repeats=3")
    return tuple(values)


def magnitude(text: str) -> float | None:
    """Returns the number in a value: bytes of a size, seconds of a duration; ``None`` for a word."""
    for parse in (parse_size_float, parse_duration):
        with contextlib.suppress(ValueError, OverflowError):
            return parse(text)
    return None


def _split(text: str) -> list[str] | None:
    """Splits at commas outside of brackets and quotes; ``None`` if a bracket or quote is not closed."""
    if "," not in text:
        return [text.strip()] if text.strip() else [text]
    parts: list[str] = [""]
    closing: list[str] = []
    quote = ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"" and (closing or not parts[-1].strip()):
            quote = character  # inside a word it is an apostrophe
        elif character in _CLOSING:
            closing.append(_CLOSING[character])
        elif closing and character == closing[-1]:
            closing.pop()
        elif character == "," and not closing:
            parts.append("")
            continue
        parts[-1] += character
    return None if quote or closing else [part.strip() for part in parts]


def _unquoted(item: str) -> str:
    if len(item) > 1 and item[0] in "'\"" and item[0] == item[-1] and item[0] not in item[1:-1]:
        return item[1:-1]
    return item


def _unit(name: str) -> tuple[str, Fraction] | None:
    """Kind (``""``, ``size``, ``time``) and factor of a unit."""
    name = name.replace("\u03bc", "\u00b5")  # Greek mu looks like the micro sign
    if not name:
        return "", Fraction(1)
    if name in SIZE_UNITS:
        return "size", SIZE_UNITS[name]
    return ("time", TIME_UNITS[name]) if name in TIME_UNITS else None


def _range(text: str, most: int) -> list[str]:
    """Values of a range.

    Raises:
        ValueError: says what is wrong with it.
    """
    match = _RANGE.fullmatch(text)
    if match is None:
        raise ValueError("this is not a range")
    low, low_unit, high, high_unit, times, step, step_unit = match.groups()
    if times and step_unit:
        raise ValueError("a factor has no unit")
    kinds = set()
    for number, name in ((low, low_unit), (high, high_unit), *(() if times else ((step, step_unit),))):
        unit = _unit(name or "")
        if unit is None:
            raise ValueError(f"unknown unit {name!r}")
        if number is not None and (Fraction(number) or name):  # zero needs no unit
            kinds.add(unit[0])
    if len(kinds) > 1:
        raise ValueError("both ends and the step of a range need units of the same kind")
    kind = next(iter(kinds), "")
    first, last = (_scaled(low, low_unit), _scaled(high, high_unit))
    whole = kind == "" and first.denominator == last.denominator == 1
    if step is None and not whole:
        raise ValueError("the range needs a step or a factor")
    by = _scaled(step, step_unit) if step is not None else Fraction(1)
    if by <= 0 or (times and by <= 1):
        raise ValueError("a factor must be above 1" if times else "a step must be above 0")
    if times and min(first, last) <= 0:
        raise ValueError("a range with a factor cannot start at 0 or below")
    names = [unit for unit in (low_unit, high_unit, step_unit) if unit]
    return [_written(value, kind, names) for value in _steps(first, last, by, bool(times), most)]


def _scaled(number: str, unit: str | None) -> Fraction:
    kind = _unit(unit or "")
    assert kind is not None
    return Fraction(number) * kind[1]


def _steps(first: Fraction, last: Fraction, by: Fraction, times: bool, most: int) -> Iterator[Fraction]:
    down, value, count = last < first, first, 0
    while value >= last if down else value <= last:
        count += 1
        if count > most:
            raise ValueError(f"more than {most} values")
        yield value
        value = (value / by if times else value - by) if down else (value * by if times else value + by)


def _written(value: Fraction, kind: str, units: list[str]) -> str:
    """Formats a number with the largest unit in which it is whole, or else with the first unit of the range."""
    if not value:
        return "0"
    if kind == "size":
        family = _BINARY if any(name in _BINARY for name in units) else _DECIMAL
        known = {"B": Fraction(1), **{name: SIZE_UNITS[name] for name in family}}
    elif kind == "time":
        known = dict(TIME_UNITS)
    else:
        return _decimal(value)
    whole = [name for name, unit in known.items() if (value / unit).denominator == 1]
    name = max(whole, key=lambda unit: known[unit]) if whole else units[0]
    return f"{_decimal(value / _scaled('1', name))}{name}"


def _decimal(value: Fraction) -> str:
    """Formats a number in plain digits; an infinite fraction (8/3) is cut after 12 digits."""
    if value.denominator == 1:
        return str(value.numerator)
    number = Context(prec=12).divide(Decimal(value.numerator), Decimal(value.denominator))
    return f"{number.normalize():f}"


def configured(tree: Any, key: str) -> Any:
    """Returns the value at a dotted key of a configuration as plain data (numbers index lists).

    Raises:
        KeyError: there is none.
    """
    for part in key.split("."):
        if isinstance(tree, dict) and part in tree:
            tree = tree[part]
        elif isinstance(tree, list) and part.isdecimal() and int(part) < len(tree):
            tree = tree[int(part)]
        else:
            raise KeyError(key)
    return tree
