"""Converts text to the typed value of an option, strictly: values are neither guessed nor rounded.

Values from YAML and from the command line arrive as text and pass through the same functions, so
``loader.num_workers: 4`` in a recipe and ``loader.num_workers=4`` mean the same.
"""

from __future__ import annotations

import math
import re
from typing import Any

from dlio_torch.config.fields import Option, children, element, nearest
from dlio_torch.units import (
    SIZE_UNITS,
    TIME_UNITS,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
    parse_size_float,
)

_INTEGER = re.compile(r"[+-]?[0-9]{1,40}(?:_[0-9]{1,40})*")
_FLOAT = re.compile(r"[+-]?(?:[0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?")
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_LARGEST = 2**63 - 1  # NumPy, HDF5 and every file system count in signed 64-bit integers.


class Unfit(ValueError):
    """Error for a value that does not fit the type or the limits of its option.

    Attributes:
        problem: what is wrong.
        hint: what to write instead.
        option: the option, or the element of it, that is wrong.
        value: what was given for it.
    """

    def __init__(self, problem: str, hint: str, option: Option, value: Any) -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint
        self.option = option
        self.value = value


def as_text(value: Any) -> Any:
    """Returns the text (or null, or list of texts) that :func:`convert` turns into the typed value ``value``."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return [as_text(item) for item in value]
    if isinstance(value, dict):
        return {name: as_text(item) for name, item in value.items()}
    return value if value is None or isinstance(value, str) else repr(value)


def convert(value: Any, option: Option) -> Any:
    """Converts ``value`` to the type of ``option``; a group becomes its frozen dataclass.

    Args:
        value: text, null, or lists and mappings of those; unknown keys were refused before.
        option: what the schema says about it.

    Raises:
        Unfit: wrong type, unknown unit, unknown choice, out of range, null where it may not be.
    """
    value = value if isinstance(value, (list, dict)) else as_text(value)
    if option.kind == "group":
        if not isinstance(value, dict):
            raise Unfit(
                "expected a group of options, not a single value",
                f"set an option of the group: {option.key}.<option>=<value>",
                option,
                value,
            )
        known = children(option)
        return option.group(**{name: convert(item, known[name]) for name, item in value.items()})
    if value is None:
        if option.optional:
            return None
        raise Unfit("this option needs a value, null is not permitted", _advice(option), option, value)
    if option.kind in ("list", "values"):
        if not isinstance(value, list):
            raise Unfit("expected a list", _advice(option), option, value)
        return [convert(item, element(option, str(i))) for i, item in enumerate(value)]
    if not isinstance(value, str):
        kind = "a list" if isinstance(value, list) else "a mapping"
        raise Unfit(f"expected {_expected(option)}, not {kind}", _advice(option), option, value)
    return _scalar(value, option)


def _scalar(text: str, option: Option) -> Any:
    if option.kind == "str":
        if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
            # Neither a file name nor a file of ours can hold them.
            raise Unfit(
                "the text contains a NUL character or is not valid UTF-8",
                "remove the invalid character",
                option,
                text,
            )
        return text
    word = text.strip()
    if option.kind == "choice":
        if word in option.choices:
            return word
        close = nearest(word, option.choices)
        meant = f"did you mean {close[0]}? " if close else ""
        raise Unfit("unknown choice", f"{meant}choices are {', '.join(option.choices)}", option, text)
    if option.kind == "bool":
        if word.lower() in _BOOLEANS:
            return _BOOLEANS[word.lower()]
        raise Unfit("expected true or false", _advice(option), option, text)
    try:
        number = _number(word, option)
    except OverflowError:
        raise Unfit("the number is too large", _advice(option), option, text) from None
    except ValueError as error:
        raise Unfit(str(error), _advice(option), option, text) from None
    if option.minimum is not None and number < option.minimum:
        raise Unfit(f"must be at least {_show(option.minimum, option)}", _advice(option), option, text)
    if option.maximum is not None and abs(number) > option.maximum:
        raise Unfit(f"must be at most {_show(option.maximum, option)}", _advice(option), option, text)
    return number


def _number(word: str, option: Option) -> int | float:
    if option.kind == "int":
        if option.unit == "B":
            number = parse_size(word)
        elif _INTEGER.fullmatch(word):
            number = int(word)
        else:
            raise ValueError(f"expected {_expected(option)}")
        if abs(number) > _LARGEST:
            raise ValueError("too large for a 64-bit integer")
        return number
    if word.lower().lstrip("+-") in ("nan", "inf", ".nan", ".inf", "infinity"):
        raise ValueError(f"expected {_expected(option)}, not infinity or NaN")
    if option.unit == "s":
        value = parse_duration(word)
    elif option.unit == "B":
        value = parse_size_float(word)
    elif _FLOAT.fullmatch(word):
        value = float(word)
    else:
        raise ValueError(f"expected {_expected(option)}")
    if not math.isfinite(value):
        raise ValueError(f"expected {_expected(option)}, not infinity or NaN")
    return value


def _expected(option: Option) -> str:
    if option.unit == "B":
        return "a size such as 262144 or 256KiB"
    if option.unit == "s":
        return "a duration such as 0.5 or 500ms"
    return {
        "int": "a whole number",
        "float": "a number",
        "bool": "true or false",
        "str": "text",
        "choice": f"one of {', '.join(option.choices)}",
    }.get(option.kind, "a list")


def _advice(option: Option) -> str:
    """Returns the hint of an error: the values that the option takes."""
    if option.kind == "values":
        return f"write {option.key}=[{'1,2' if option.element == 'int' else 'a,b'}]"
    if option.kind == "list":
        return f"write {option.key}=[{{name: value}}]"
    if option.unit is not None:
        units = TIME_UNITS if option.unit == "s" else SIZE_UNITS
        text = f"write a {'duration' if option.unit == 's' else 'size'} with one of the units {', '.join(units)}"
    else:
        text = f"write {_expected(option)}"
    if option.minimum is not None:
        text += f", at least {_show(option.minimum, option)}"
        if option.maximum is not None:
            text += f" and at most {_show(option.maximum, option)}"
    if option.optional:
        text += ", or null"
    if option.default is not None and not isinstance(option.default, list):
        text += f" (default {_show(option.default, option)})"
    return text


def _show(value: Any, option: Option) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if option.unit == "B":
            return format_size(value)
        if option.unit == "s":
            return format_duration(value)
        return str(value) if isinstance(value, int) else f"{value:g}"
    return str(as_text(value)) or "empty"
