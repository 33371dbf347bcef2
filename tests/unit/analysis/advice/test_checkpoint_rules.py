"""Advice on checkpoints: which of background saves, more threads and longer intervals is given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from advice_data import evidence

from dlio_torch.analysis.advice.advise import advise
from dlio_torch.analysis.advice.evidence import Evidence
from dlio_torch.checkpoint.goodput import Goodput, figures
from dlio_torch.checkpoint.registry import BUILTIN

PARTS = {
    "stall_s": {"mean": 0.05},
    "plan_s": {"mean": 0.005},
    "stage_s": {"mean": 0.005},
    "write_s": {"mean": 0.04},
}


SAVES = {"checkpoint.layout": "torch_save", "checkpoint.state_bytes": 1000, "checkpoint.every_steps": 5}
SAVED = {"shares__checkpoint": 0.3, "checkpoints__measured": 4, "checkpoints__duration_s": {"mean": 0.05}}


@pytest.fixture
def in_background(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layout that saves in the background, and with several threads."""
    options = frozenset({"async_save", "thread_count"})
    monkeypatch.setitem(BUILTIN, "torch_save", replace(BUILTIN["torch_save"], options=options))


def saving(options: dict[str, Any] | None = None, **figures: Any) -> Evidence:
    """A run that spends 30 % of its time on saves; ``options`` are those of the saver."""
    run = evidence(settings=SAVES, **{**SAVED, "checkpoints__save": PARTS, **figures})
    for name, value in {"async_save": "none", "thread_count": 1, **(options or {})}.items():
        object.__setattr__(run.config.checkpoint, name, value)
    return run


def items_of(run: Evidence) -> dict[str, Any]:
    return {item["rule"]: item for item in advise(run)["items"]}


@pytest.mark.usefixtures("in_background")
def test_saves_in_the_background_come_first() -> None:
    items = items_of(saving())
    item = items["checkpoints"]
    assert (item["key"], item["value"]) == ("checkpoint.async_save", "thread")
    assert item["predicted"]["low"] == pytest.approx(0.3 * 0.01 / 0.05)
    threads = items["save_threads"]
    assert (threads["key"], threads["value"]) == ("checkpoint.thread_count", "2")
    assert threads["predicted"]["gain_high"] == pytest.approx(0.3 * 0.8 / 2)


@pytest.mark.usefixtures("in_background")
@pytest.mark.parametrize("write", [None, {"mean": 0.02}])
def test_threads_only_where_writing_is_most_of_a_stall(write: Any) -> None:
    assert list(items_of(saving(checkpoints__save={**PARTS, "write_s": write}))) == ["checkpoints"]


@pytest.mark.usefixtures("in_background")
def test_threads_only_where_there_are_cores() -> None:
    assert list(items_of(saving({"thread_count": 4}))) == ["checkpoints"]


@pytest.mark.usefixtures("in_background")
def test_fewer_saves_where_they_are_in_the_background_already() -> None:
    assert items_of(saving({"async_save": "thread"}))["checkpoints"]["key"] == "checkpoint.every_steps"


def test_a_layout_without_these_options_gets_no_advice_on_them() -> None:
    assert items_of(saving())["checkpoints"]["key"] == "checkpoint.every_steps"


def goodput(mtbf_s: float, interval_s: float) -> dict[str, Any]:
    """Saves of 50 ms, and steps of 10 ms."""
    return figures(Goodput(0.05, 0.05, None, 0.01, mtbf_s, start_s=1.0, read_s=0.1, interval_s=interval_s))


def test_the_best_interval_where_the_time_between_failures_is_known() -> None:
    part = goodput(3600.0, 0.1)
    item = items_of(saving(goodput=part))["checkpoints"]
    assert item["key"] == "checkpoint.every_steps"
    # sqrt(2 C M) = 19 s, in steps of 10 ms.
    assert int(item["value"]) == pytest.approx(1893, rel=0.01)
    assert item["predicted"]["gain_high"] == part["lost_share_at_interval"] - part["lost_share"]
    assert "a failure every 1 h 0 min" in item["text"]


def test_no_advice_where_failures_are_too_frequent_for_fewer_saves() -> None:
    advice = advise(saving(goodput=goodput(2.0, 0.4)))
    assert all(item["rule"] != "checkpoints" for item in advice["items"])
    assert any("another interval saves less than" in reason for reason in advice["withheld"])
