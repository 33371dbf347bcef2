"""explain, show and ls."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dlio_torch.config import explanation, fields
from dlio_torch.config.compose import compose
from dlio_torch.config.resources import find
from dlio_torch.errors import ConfigError

OPTIONS = list(fields.walk())


@pytest.mark.parametrize("option", OPTIONS, ids=[option.key for option in OPTIONS])
def test_every_option_is_documented_in_one_line_and_explained(option: fields.Option) -> None:
    assert option.doc
    assert "\n" not in option.doc
    assert not option.doc.endswith(".")
    assert option.doc in explanation.explain(option.key)
    for name, bound in (("minimum", option.minimum), ("maximum", option.maximum)):
        # What explain says is what is refused.
        said = re.search(rf"^  {name}  (\S+)$", explanation.explain(option.key), re.MULTILINE)
        if option.kind not in ("group", "list"):
            assert (None if said is None else float(said[1])) == bound
    assert option.unit in (None, "B", "s")
    if option.name.endswith("_bytes"):
        assert option.unit == "B"
    if option.name.endswith("_s") and not option.name.endswith("_per_s"):
        assert option.unit == "s"


def test_an_option_is_explained_with_type_unit_default_value_and_source() -> None:
    made = compose(["recipe=minimal", "loader=workers"], environ={})
    text = explanation.explain("loader.prefetch_factor", made)
    for part in ("int, or null", "minimum  1", "default  null", "now      2  (conf/loader/workers.yaml:3)"):
        assert part in text
    assert "500ms" in explanation.explain("compute.step_s")
    assert "256KiB" in explanation.explain("dataset.hdf5.chunk_bytes")
    assert "one of sleep, spin, cuda, none" in explanation.explain("compute.mode")


def test_a_group_and_a_list_are_explained_with_their_options() -> None:
    made = compose(["recipe=minimal"], environ={})
    for key in fields.children(fields.lookup(("loader",)) or fields.ROOT):
        assert f"loader.{key}" in explanation.explain("loader")
    text = explanation.explain("dataset.fields", made)
    assert "dataset.fields.0.shape = [64, 64]  (recipes/minimal.yaml:25)" in text
    assert "dataset.fields.*.length_mean" in text
    assert "now      [64, 64]" in explanation.explain("dataset.fields.0.shape", made)
    assert "now      64  (recipes/minimal.yaml:25)" in explanation.explain("dataset.fields.0.shape.1", made)
    for group in fields.groups():
        assert group in explanation.explain("")


def test_the_same_as_data() -> None:
    made = compose(["recipe=minimal"], environ={})
    found = explanation.explain_data("dataset", made)
    assert found["dataset.num_files"]["value"] == 4
    assert found["dataset.num_files"]["source"] == "recipes/minimal.yaml:20"
    assert found["dataset.fields.*.name"]["default"] == "data"
    assert set(explanation.explain_data("")) == {o.key for o in OPTIONS if o.kind not in ("group", "list")}
    assert json.dumps(found)
    for explain in (explanation.explain, explanation.explain_data):
        with pytest.raises(ConfigError, match=r"explain lodaer: no such option; did you mean loader\?"):
            explain("lodaer")


def test_show_gives_notes_values_and_sources() -> None:
    made = compose(["recipe=minimal"], environ={})
    text = explanation.show(made)
    assert text.startswith("# compute.step_s 0.05 -> 0.01 (scale=laptop)\n")
    assert "  step_s: 0.01                                   # scale laptop (published 0.05)\n" in text
    assert "  num_files: 4                                   # recipes/minimal.yaml:20\n" in text
    data = json.loads(json.dumps(explanation.show_data(made)))
    assert data["config"]["compute"]["step_s"] == 0.01
    assert data["sources"]["compute.step_s"] == "scale laptop (published 0.05)"
    assert data["notes"] == made.notes


def test_ls_lists_everything_with_a_description(tmp_path: Path) -> None:
    sections = explanation.listing(formats=["b", "a"], environ={})
    assert "minimal" in sections["recipes"]
    assert set(sections["scales"]) >= {"laptop", "paper", "tiny"}
    assert list(sections["formats"]) == ["a", "b"]
    for section, entries in sections.items():
        if section != "formats":
            assert all(entries.values()), f"{section} has an entry without a description"
    text = explanation.listing_text(sections)
    assert "loader  (loader=<name>)" in text
    assert "scales  (scale=<name>)" in text
    for entries in sections.values():
        assert all(name in text for name in entries)
    assert set(explanation.listing(["scales", "loader"], environ={})) == {"scales", "loader"}
    with pytest.raises(ConfigError, match="sections are recipes"):
        explanation.listing(["nothing"], environ={})


def test_ls_survives_a_broken_recipe(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "broken.yaml").write_text("a: b: c", encoding="utf-8")
    found = explanation.listing(["recipes"], cwd=tmp_path, environ={"DLIO_TORCH_PATH": "."})["recipes"]
    assert found["broken"].startswith("cannot be read: ./recipes/broken.yaml:1")
    assert "minimal" in found


def test_every_choice_belongs_to_a_group_of_the_schema() -> None:
    root = find(Path.cwd(), {}).roots[-1].folder
    folders = {path.name for path in (root / "conf").iterdir() if path.is_dir() and any(path.glob("*.yaml"))}
    assert folders <= {*fields.groups(), "study"}  # studies are of the verb sweep
