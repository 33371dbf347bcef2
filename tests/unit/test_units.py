from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlio_torch import units


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("262144", 262144),
        ("256KiB", 262144),
        ("256 KiB", 262144),
        (" 1.5 GiB ", 1610612736),
        ("4MB", 4_000_000),
        ("4kB", 4000),
        ("4KB", 4000),
        ("1PiB", 1 << 50),
        ("1e3", 1000),
        (".5KiB", 512),
        ("-4KiB", -4096),
        ("7B", 7),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert units.parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0.5", 0.5),
        ("500ms", 0.5),
        ("2 s", 2.0),
        ("1min", 60.0),
        ("2h", 7200.0),
        ("3us", 3e-6),
        ("3µs", 3e-6),
        ("3μs", 3e-6),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert units.parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("4Kb", "did you mean KB?"),
        ("4kib", "did you mean KiB?"),
        ("4K", "did you mean KB?"),
        ("4M", "did you mean MB?"),
        ("4Gi", "did you mean GiB?"),
        ("4 bytes", "did you mean B?"),
        ("4s", "unknown unit 's'"),
    ],
)
def test_an_unknown_size_unit_names_the_nearest(text: str, named: str) -> None:
    with pytest.raises(ValueError, match=re.escape(named)):
        units.parse_size(text)


@pytest.mark.parametrize(
    ("text", "named"), [("5sec", "mean s?"), ("5m", "mean min?"), ("5 minutes", "mean min?"), ("5MS", "mean ms?")]
)
def test_an_unknown_time_unit_names_the_nearest(text: str, named: str) -> None:
    with pytest.raises(ValueError, match=re.escape(named)):
        units.parse_duration(text)


@pytest.mark.parametrize(
    "text", ["", "abc", "1..2", "KiB", "1,5", "0x10", "nan", "inf", "1 2", "1KiB2", "--1", "1e9999", "9" * 41]
)
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a size such as"):
        units.parse_size(text)
    with pytest.raises(ValueError, match="expected a duration such as"):
        units.parse_duration(text)


def test_a_fraction_of_a_byte_is_refused_where_bytes_are_counted() -> None:
    with pytest.raises(ValueError, match="not a whole number of bytes"):
        units.parse_size("0.3KiB")
    assert units.parse_size_float("0.3KiB") == pytest.approx(307.2)


@given(st.integers(0, 1 << 60), st.sampled_from(sorted(units.SIZE_UNITS)), st.sampled_from(["", " ", "  "]))
def test_every_unit_multiplies_exactly(count: int, unit: str, space: str) -> None:
    assert units.parse_size(f"{count}{space}{unit}") == count * units.SIZE_UNITS[unit]


@given(st.integers(-(10**18), 10**18))
def test_a_plain_number_is_bytes(count: int) -> None:
    assert units.parse_size(str(count)) == count


@given(st.floats(0, 1e12), st.sampled_from(sorted(units.TIME_UNITS)))
def test_durations_are_rounded_once(value: float, unit: str) -> None:
    expected = value * float(units.TIME_UNITS[unit])
    assert math.isclose(units.parse_duration(f"{value!r}{unit}"), expected, rel_tol=1e-14, abs_tol=1e-300)


@given(st.integers(0, 1 << 62))
def test_a_formatted_size_parses_to_almost_the_same(size: int) -> None:
    assert units.parse_size_float(units.format_size(size)) == pytest.approx(size, rel=0.01)


@given(st.floats(1e-9, 59.0))
def test_a_formatted_duration_parses_to_almost_the_same(seconds: float) -> None:
    assert units.parse_duration(units.format_duration(seconds)) == pytest.approx(seconds, rel=0.01)


@given(st.text(max_size=30))
def test_any_text_parses_or_is_refused_with_one_line(text: str) -> None:
    for parse in (units.parse_size, units.parse_size_float, units.parse_duration):
        try:
            number = parse(text)
        except ValueError as error:
            message = str(error)
            assert "\n" not in message
        else:
            assert math.isfinite(number)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (262144, "256 KiB"),
        (1610612736, "1.50 GiB"),
        (30272777678, "28.2 GiB"),
        (-2048, "-2 KiB"),
    ],
)
def test_sizes_are_shown_in_binary_units(value: int, text: str) -> None:
    assert units.format_size(value) == text
    assert units.format_rate(value) == f"{text}/s"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 s"),
        (0.012, "12 ms"),
        (1.5, "1.50 s"),
        (125, "2 min 5 s"),
        (10920, "3 h 2 min"),
        (2.5e-7, "250 ns"),
        (-0.5, "-500 ms"),
    ],
)
def test_durations_are_shown_in_readable_units(value: float, text: str) -> None:
    assert units.format_duration(value) == text
