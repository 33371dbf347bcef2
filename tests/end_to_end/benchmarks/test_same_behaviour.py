"""The benchmark that compares two checkouts finds what was planted, and nothing in a run that is the same."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from ranks import REPO

from benchmarks.same_behaviour import PARTS, Outcome, Way, different, outcome


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return outcome(Way("minimal", 0, 1), REPO, tmp_path_factory.mktemp("same") / "run")


def _order(parts: dict[str, Any]) -> None:
    parts["order"][0]["crc32"] = "00000000"


def _data(parts: dict[str, Any]) -> None:
    next(iter(parts["data"].values()))[0] = "0" * 64


def _summary(parts: dict[str, Any]) -> None:
    parts["summary"].remove("reads.samples")


def _calls(parts: dict[str, Any]) -> None:
    calls = parts["calls"]["rank 0 trainer"]
    at = next(number for number, call in enumerate(calls) if call[0] == "pread")
    calls[at] = (*calls[at][:3], calls[at][3] + 1)


def _turned(parts: dict[str, Any]) -> None:
    parts["calls"]["rank 0 trainer"].reverse()


def test_all_parts_of_a_run_are_there(made: Outcome) -> None:
    assert set(made.parts) == set(PARTS)
    (calls,) = made.parts["calls"].values()
    assert isinstance(calls, list)  # one thread reads: their order counts
    files = {call[1] for call in calls if call[0] == "pread"}
    assert len(files) == 4, files
    assert different(made, copy.deepcopy(made)) == {}


@pytest.mark.parametrize(
    ("part", "plant"),
    [("order", _order), ("data", _data), ("summary", _summary), ("calls", _calls), ("calls", _turned)],
)
def test_what_is_planted_is_found(made: Outcome, part: str, plant: Callable[[dict[str, Any]], None]) -> None:
    other = copy.deepcopy(made)
    plant(other.parts)  # type: ignore[arg-type]
    assert list(different(made, other)) == [part]


def test_calls_without_an_order_are_compared_as_multisets(made: Outcome) -> None:
    calls = {who: Counter(calls) for who, calls in made.parts["calls"].items()}
    one = replace(made, parts={**made.parts, "calls": calls})
    other = copy.deepcopy(one)
    call = next(iter(other.parts["calls"]["rank 0 trainer"]))
    other.parts["calls"]["rank 0 trainer"][call] += 1
    assert different(one, other)["calls"].startswith("calls: rank 0 trainer: 0 less, 1 more")


def test_a_refusal_differs_from_a_run(made: Outcome) -> None:
    assert set(different(made, Outcome("dataset.format='x' is no known format", {}))) == set(PARTS)
