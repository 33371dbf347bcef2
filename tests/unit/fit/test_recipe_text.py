"""The recipe of a recording as YAML: it can be read, and each value has its evidence beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dlio_torch.config.compose import compose
from dlio_torch.fit.finding import Finding, Findings, findings
from dlio_torch.fit.recipe_text import recipe_text
from dlio_torch.formats.core.registry import available

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=3),
    max_leaves=6,
)
RECIPE = findings(
    [
        Finding("dataset.format", "npz", "the files state it"),
        Finding("dataset.fields", [{"name": "x", "dtype": "float32", "shape": [4, 4]}], "the files state it"),
        Finding("dataset.npz.samples_in_file", "one", "6 files, 6 samples", "likely"),
        Finding("dataset.num_files", 6, "6 files"),
        Finding("dataset.samples_per_file", 1, "6 files"),
        Finding("train.batch_size", 2, "the loader has batch_size=2"),
        Finding("loader.multiprocessing_context", None, "no workers"),
    ],
    ["3 calls on labels.json"],
)


@given(st.dictionaries(st.from_regex(r"[a-d]{1,5}\.[a-d]{1,5}", fullmatch=True), VALUES, min_size=1, max_size=4))
def test_values_are_those_that_were_found(values: dict[str, Any]) -> None:
    text = recipe_text(findings(Finding(key, value, "recorded\ncalls") for key, value in values.items()), "a title")
    tree = yaml.safe_load(text)
    for key, value in values.items():
        group, name = key.split(".")
        assert tree[group][name] == value


def test_each_value_has_its_evidence_and_confidence() -> None:
    lines = recipe_text(RECIPE, "Written by a test.").splitlines()
    assert lines[0] == "# Written by a test."
    assert "# Not reproduced: 3 calls on labels.json" in lines
    assert "  batch_size: 2 # certain: the loader has batch_size=2" in lines
    assert "    samples_in_file: one # likely: 6 files, 6 samples" in lines
    assert all(len(line) <= 120 for line in lines)


def test_long_lists_have_an_element_a_line() -> None:
    fields = [{"name": f"field{number}", "dtype": "float32", "shape": [number, 64]} for number in range(9)]
    text = recipe_text(findings([Finding("dataset.fields", fields, "the files state it")]), "a title")
    assert yaml.safe_load(text)["dataset"]["fields"] == fields
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("name", ["mine", "mine/", "mine/recipe.yaml"])
def test_a_folder_with_a_recipe_is_run_by_its_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "recipe.yaml").write_text(recipe_text(RECIPE, "a title"))
    config = compose([f"recipe=./{name}"], cwd=tmp_path, formats=available()).config
    assert (config.dataset.format, config.train.batch_size, config.recipe) == ("npz", 2, Path(name).stem)


def test_later_findings_replace_earlier_ones() -> None:
    both = findings([Finding("a.b", 1, "first"), Finding("a.c", 2, "kept")]) + findings([Finding("a.b", 3, "second")])
    assert (both.value("a.b"), both.value("a.c"), both.value("a.d", 4)) == (3, 2, 4)
    assert isinstance(both, Findings)
