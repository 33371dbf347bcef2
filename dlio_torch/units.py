"""Parses and formats sizes and durations with units: ``"256KiB"`` <-> 262144, ``"500ms"`` <-> 0.5.

KB, MB, GB are decimal (1000), KiB, MiB, GiB binary (1024).  Unit names are case-sensitive, because
``Mb`` and ``mb`` mean bits to some readers; an unknown unit is an error that names the nearest one.
Every parser raises :class:`ValueError` with one line that says what was expected.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType

SIZE_UNITS: Mapping[str, Fraction] = MappingProxyType(
    {
        "B": Fraction(1),
        **{name: Fraction(1000 ** (i + 1)) for i, name in enumerate(("kB", "MB", "GB", "TB", "PB"))},
        "KB": Fraction(1000),
        **{name: Fraction(1024 ** (i + 1)) for i, name in enumerate(("KiB", "MiB", "GiB", "TiB", "PiB"))},
    }
)
"""Number of bytes of each unit."""

TIME_UNITS: Mapping[str, Fraction] = MappingProxyType(
    {
        "ns": Fraction(1, 10**9),
        "us": Fraction(1, 10**6),
        "µs": Fraction(1, 10**6),
        "ms": Fraction(1, 1000),
        "s": Fraction(1),
        "min": Fraction(60),
        "h": Fraction(3600),
    }
)
"""Number of seconds of each unit."""

# At most 40 digits and a three-digit exponent: exact arithmetic on user input must stay cheap.
_NUMBER = re.compile(
    r"\s*([+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?)\s*([^\s0-9]*)\s*",
)


def parse_size(text: str) -> int:
    """Parses ``text``, a number with an optional unit (none: bytes), to bytes, for example ``"1.5 GiB"``.

    Raises:
        ValueError: not a number, an unknown unit, or not a whole number of bytes.
    """
    size = _parse(text, SIZE_UNITS, "B", "a size such as 262144 or 256KiB")
    if size.denominator != 1:
        raise ValueError(f"{float(size):g} bytes is not a whole number of bytes")
    return int(size)


def parse_size_float(text: str) -> float:
    """Parses ``text`` to bytes, fractions included, for means and standard deviations."""
    return float(_parse(text, SIZE_UNITS, "B", "a size such as 262144 or 256KiB"))


def parse_duration(text: str) -> float:
    """Parses ``text``, a number with an optional unit (none: seconds), to seconds, for example ``"500ms"``.

    Raises:
        ValueError: not a number, or an unknown unit.
    """
    return float(_parse(text, TIME_UNITS, "s", "a duration such as 0.5 or 500ms"))


def format_size(size: float) -> str:
    """Formats ``size`` bytes with a binary unit and three or four digits: ``"256 KiB"``, ``"1.50 GiB"``."""
    magnitude = abs(size)
    for name in ("PiB", "TiB", "GiB", "MiB", "KiB"):
        unit = float(SIZE_UNITS[name])
        if magnitude >= unit:
            return f"{_digits(size / unit)} {name}"
    return f"{_digits(size)} B"


def exact_size(size: int) -> str:
    """Formats bytes without loss, as on the command line: ``65536`` as ``64KiB``."""
    text = format_size(size).replace(" ", "")
    return text if parse_size(text) == size else str(size)


def power_of_two(size: float) -> int:
    """Returns the smallest power of two that is not less than ``size``; at least 1."""
    power = 1
    while power < size:
        power *= 2
    return power


def format_duration(seconds: float) -> str:
    """Formats ``seconds`` with a readable unit: ``"12.0 ms"``, ``"1.50 s"``, ``"2 min 5 s"``, ``"3 h 2 min"``."""
    magnitude = abs(seconds)
    sign = "-" if seconds < 0 else ""
    if magnitude >= 3600:
        minutes = round(magnitude / 60)
        return f"{sign}{minutes // 60} h {minutes % 60} min"
    if magnitude >= 60:
        # 3599.7 s rounds to a full hour: "60 min 0 s" is correct and rare enough to accept.
        whole = round(magnitude)
        return f"{sign}{whole // 60} min {whole % 60} s"
    if magnitude >= 1 or magnitude == 0:
        return f"{_digits(seconds)} s"
    if magnitude >= 1e-3:
        return f"{_digits(seconds * 1e3)} ms"
    if magnitude >= 1e-6:
        return f"{_digits(seconds * 1e6)} µs"
    return f"{_digits(seconds * 1e9)} ns"


def counted(count: int, noun: str, plural: str = "") -> str:
    """A number of things, in the singular for one: ``"1 step"``, ``"1250 steps"``; ``plural``: an irregular one."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def format_number(value: float) -> str:
    """A number with four significant digits and without an exponent: ``"9.55"``, ``"1,250"``, ``"0.0004"``."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    text = f"{value:.{max(0, 3 - math.floor(math.log10(abs(value))))}f}" if value else "0"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(share: float, digits: int = 1) -> str:
    """``0.973`` as ``97.3 %``; never rounded up to a full 100 %."""
    text = f"{100 * share:.{digits}f} %"
    return f">{100 - 10**-digits:.{digits}f} %" if share < 1 and text == f"{100:.{digits}f} %" else text


def format_rate(bytes_per_s: float) -> str:
    """Formats ``bytes_per_s`` with a binary unit: ``"12.3 MiB/s"``."""
    return f"{format_size(bytes_per_s)}/s"


def _digits(value: float) -> str:
    """Formats a number with three significant digits; the integer part is always complete."""
    if value == int(value):
        return str(int(value))
    magnitude = abs(value)
    return f"{value:.{2 if magnitude < 10 else 1 if magnitude < 100 else 0}f}"


def _parse(text: str, units: Mapping[str, Fraction], default: str, expected: str) -> Fraction:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(f"expected {expected}")
    number, name = match.group(1), match.group(2) or default
    # U+03BC (Greek mu) looks like U+00B5 (micro sign) and both are typed.
    unit = units.get(name.replace("\u03bc", "\u00b5"))
    if unit is None:
        raise ValueError(f"unknown unit {name!r}, did you mean {_nearest(name, units)}?")
    return Fraction(number) * unit


def _nearest(name: str, units: Mapping[str, Fraction]) -> str:
    folded = {known.lower(): known for known in units}
    low = name.lower()
    if low in folded:
        return folded[low]
    if f"{low}b" in folded:  # "K", "M", "Gi"
        return folded[f"{low}b"]
    aliases = {"sec": "s", "secs": "s", "second": "s", "seconds": "s", "msec": "ms", "usec": "us", "nsec": "ns"}
    aliases |= {"m": "min", "minute": "min", "minutes": "min", "hour": "h", "hours": "h", "hr": "h"}
    aliases |= {"byte": "B", "bytes": "B"}
    if aliases.get(low) in units:
        return aliases[low]
    close = difflib.get_close_matches(low, folded, n=1, cutoff=0.0)
    return folded[close[0]] if close else next(iter(units))
