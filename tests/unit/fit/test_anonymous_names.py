"""Numbered names: nothing of a user's names stays in a recipe or its evidence, and numbers and options do."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from fitted_trainings import fitted, passes, recorded, training_of

from dlio_torch.fit.anonymous_names import AnonymousNames, anonymous_evidence, anonymous_names
from dlio_torch.fit.finding import Finding, findings
from dlio_torch.fit.fit_evidence import evidence
from dlio_torch.fit.recipe_text import recipe_text
from dlio_torch.fit.score import Score
from dlio_torch.formats.core.registry import facts
from dlio_torch.iotrace.events.torch_calls import SavedState, TorchCalls, TorchDataset, read_torch_calls
from dlio_torch.iotrace.fidelity.compare_recordings import compare

FOLDER = "/gpfs/oceanography/melville"
FILES = [f"{FOLDER}/whale_{number:04d}.npz" for number in range(3)]
SECRETS = ("gpfs", "oceanography", "melville", "whale", "pequod", "ishmael", "WhaleSongs", "ahab", "spermaceti", "wake")
FIELDS = [{"name": "spermaceti", "dtype": "float32", "shape": [48, 2]}, {"name": "wake/foam", "dtype": "uint8"}]


def torch_calls() -> TorchCalls:
    dataset = TorchDataset(0, 7, 0, "ahab.data.WhaleSongs", "map", 3)
    saved = SavedState(0, 7, "save", "torch.save", "/gpfs/ishmael/state.pt", 1, 2, 3, 4)
    return replace(read_torch_calls(Path("/nowhere")), datasets=(dataset,), saves=(saved,))


@pytest.fixture
def everything() -> tuple[str, dict[str, object]]:
    """The text of a recipe, and its evidence, with numbered names."""
    recording = recorded(
        passes(FILES),
        command=["python", "/home/ishmael/train_whales.py"],
        environment={"host": "pequod"},
    )
    training = training_of(replace(recording, notes=(f"{FILES[0]} was cut off on pequod",)), torch_calls())
    values = [
        Finding("dataset.format", "npz", f"the files state it ({FILES[0]}, field spermaceti)"),
        Finding("dataset.fields", FIELDS, "whale_0001.npz holds 48 rows of wake/foam"),
        Finding("train.batch_size", 48, "the loader of ahab.data.WhaleSongs has batch_size=48"),
        Finding("access.order", "shuffled", "torch.utils.data.sampler.RandomSampler gave 3 indices"),
    ]
    recipe = fitted(values, FILES, [f"{FOLDER} is also listed by ishmael"])
    names = anonymous_names(training, recipe)
    shown = names.findings(recipe.findings)
    return recipe_text(shown, "Written by `fit`."), anonymous_evidence(names, evidence(training, recipe), shown)


def test_no_name_stays(everything: tuple[str, dict[str, object]]) -> None:
    text = everything[0] + json.dumps(everything[1])
    assert [secret for secret in SECRETS if secret.lower() in text.lower()] == []


def test_options_and_numbers_stay(everything: tuple[str, dict[str, object]]) -> None:
    text = everything[0]
    assert "format: npz" in text
    assert "batch_size: 48 # certain: the loader of name" in text
    assert "has batch_size=48" in text
    assert "order: shuffled # certain: torch.utils.data.sampler.RandomSampler gave 3 indices" in text
    assert "holds 48 rows of " in text


def test_arrays_keep_the_lengths_of_their_names(everything: tuple[str, dict[str, object]]) -> None:
    assert (
        "fields: [{name: array0____, dtype: float32, shape: [48, 2]}, {name: arr1/arr2, dtype: uint8}]" in everything[0]
    )
    names = AnonymousNames(["x", "y", *(f"channel{number}" for number in range(12))], [])
    shown = [names.text(name) for name in ("channel0", "channel11")]
    assert shown == ["array2__", "array13__"]


def test_figures_of_a_score_have_no_names() -> None:
    a, b = recorded(passes(FILES)), recorded(passes(FILES[:2]))
    comparison = compare(a, b)
    names = anonymous_names(training_of(a), fitted([], FILES))
    score = names.score(Score(comparison, comparison.components[0]))
    text = json.dumps(score.to_json()) + json.dumps(asdict(score.worst))
    assert "whale" in json.dumps([component.detail for component in comparison.components])
    assert "whale" not in text
    distances = [component.distance for component in score.comparison.components]
    assert distances == [component.distance for component in comparison.components]


def test_extensions_that_say_how_a_member_is_stored_stay() -> None:
    names = AnonymousNames(["jpg", "seg.png", "whale", "data"], [], facts("webdataset").states_encoding)
    shown = names.findings(
        findings([Finding("dataset.fields", [{"name": name} for name in ("jpg", "seg.png", "whale")], "")])
    )
    assert [field["name"] for field in shown.values[0].value] == ["jpg", "ar0.png", "arra1"]
    assert names.text("the data set of whale") == "the data set of arra1"  # a word of ours stays
