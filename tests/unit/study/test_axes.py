"""How values of an axis are written."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlio_torch.errors import ConfigError
from dlio_torch.study.axes import expand, magnitude
from dlio_torch.study.model import Axis
from dlio_torch.units import parse_size

WORDS = st.text("abcxyz019_-/", min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("2", ["2"]),
        ("", [""]),
        ("0,1, 4", ["0", "1", "4"]),
        ("0..4", ["0", "1", "2", "3", "4"]),
        ("0..16:5", ["0", "5", "10", "15"]),
        ("8..1:x2", ["8", "4", "2", "1"]),
        ("1,4..8:2,16..64:x2", ["1", "4", "6", "8", "16", "32", "64"]),
        ("64KiB..1MiB:x4", ["64KiB", "256KiB", "1MiB"]),
        ("0..1MiB:512KiB", ["0", "512KiB", "1MiB"]),
        ("1ms..100ms:x10", ["1ms", "10ms", "100ms"]),
        ("0.1..0.3:0.1", ["0.1", "0.2", "0.3"]),
        ("[64,64],[128,128]", ["[64,64]", "[128,128]"]),
        ("{a: 1, b: 2}", ["{a: 1, b: 2}"]),
        ("'a,b',c", ["a,b", "c"]),
        ("'0..3'", ["0..3"]),
        ("it's,other", ["it's", "other"]),
        ("../mine.yaml,hdf5", ["../mine.yaml", "hdf5"]),
    ],
)
def test_values(text: str, values: list[str]) -> None:
    assert list(expand("key", text)) == values


@pytest.mark.parametrize(
    "text",
    [
        "0..",
        "1KiB..2",
        "1..4KiB:x2",
        "1..2s",
        "a,,b",
        "a,[1,2",
        "1..9999999999",
        "1..4:x1",
        "0..4:x2",
        "1,2,1",
        "1..3:0",
    ],
)
def test_what_makes_no_sense_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^group.key=.*command line.*; ") as error:
        expand("group.key", text)
    assert error.value.exit_code == 2


@settings(deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=6, unique=True))
def test_a_list_is_what_was_joined(words: list[str]) -> None:
    assert list(expand("key", ",".join(words))) == words


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), max_size=3), min_size=2, max_size=4, unique_by=tuple))
def test_brackets_protect_commas(shapes: list[list[int]]) -> None:
    assert list(expand("key", ",".join(str(shape) for shape in shapes))) == [str(shape) for shape in shapes]


@settings(deadline=None)
@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(1, 20))
def test_a_range_goes_by_its_step_and_stays_inside(first: int, last: int, step: int) -> None:
    values = [int(value) for value in expand("key", f"{first}..{last}:{step}")]
    low, high = sorted((first, last))
    assert values[0] == first
    assert all(low <= value <= high for value in values)
    assert {abs(b - a) for a, b in itertools.pairwise(values)} <= {step}
    assert abs(last - values[-1]) < step


@settings(deadline=None)
@given(st.integers(0, 14), st.integers(0, 14))
def test_sizes_keep_their_meaning(first: int, last: int) -> None:
    low, high = sorted((first, last))
    values = [parse_size(value) for value in expand("key", f"{1 << low}KiB..{1 << high}KiB:x2")]
    assert values == [1024 << n for n in range(low, high + 1)]
    assert [magnitude(text) for text in expand("key", f"{1 << low}KiB..{1 << high}KiB:x2")] == values


def test_magnitudes_and_words() -> None:
    assert [magnitude(text) for text in ("5ms", "2", "hdf5", "null")] == [0.005, 2.0, None, None]


def test_what_a_value_stands_for() -> None:
    assert Axis("loader.num_workers", ("0", "2")).arguments("2") == ("loader.num_workers=2",)
    assert Axis("loader.num_workers", ("0",)).arguments("-") == ()
    assert Axis("ranks", ("2",)).arguments("2") == ()
    label = Axis("layout", ("rows",), {"rows": ("dataset=hdf5", "access=shuffled")})
    assert label.arguments("rows") == ("dataset=hdf5", "access=shuffled")
