"""Evidence of a recipe, and the share of the recording that it leaves unexplained."""

from __future__ import annotations

import json

import pytest
from fitted_trainings import fitted, passes, recorded, training_of
from io_events import Call

from dlio_torch.fit.finding import Finding
from dlio_torch.fit.fit_evidence import evidence

VALUE = Finding("train.batch_size", 2, "the loader has batch_size=2")


def test_calls_on_files_that_the_recipe_lacks_are_counted() -> None:
    training = training_of(recorded([*passes(["/d/a"], 1, 100), *passes(["/d/b"], 1, 300)]))
    shares = evidence(training, fitted([VALUE], ["/d/a"]))["unexplained"]
    assert shares == {"bytes_share": pytest.approx(0.75), "calls_share": pytest.approx(0.5)}
    assert evidence(training, fitted([VALUE], ["/d"]))["unexplained"] == {"bytes_share": 0.0, "calls_share": 0.0}


def test_without_bytes_their_share_is_not_zero_but_unknown() -> None:
    training = training_of(recorded([Call("open", -1, -1, file="/d/a")]))
    assert evidence(training, fitted([VALUE]))["unexplained"] == {"bytes_share": None, "calls_share": 1.0}


def test_it_is_json_with_each_value_and_gap() -> None:
    training = training_of(recorded(passes(["/d/a"])))
    content = json.loads(json.dumps(evidence(training, fitted([VALUE], ["/d/a"], ["noise"])), allow_nan=False))
    assert (content["schema"], content["recording"]) == ("dlio_torch.evidence", "x")
    (value,) = content["values"]
    assert value == {
        "key": "train.batch_size", "value": 2, "evidence": "the loader has batch_size=2", "confidence": "certain",
    }  # fmt: skip
    assert content["not_reproduced"] == ["noise"]
