"""Variants of a recipe for accelerators: where they come in the order, and what is refused."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from dlio_torch.config import explanation
from dlio_torch.config.compose import Composed, compose
from dlio_torch.config.emit import to_yaml
from dlio_torch.config.resources import find
from dlio_torch.config.yamlfile import parse_document
from dlio_torch.errors import ConfigError

RECIPE = """\
description: volumes
dataset: {num_files: 168, samples_per_file: 1, fields: [{name: x, shape: [4]}]}
train: {epochs: 5, batch_size: 4}
compute: {step_s: 1.36}
accelerators:
  v100: {compute: {step_s: 1.36}}
  a100: {compute: {step_s: 0.636}, train: {batch_size: 7}}
  h100:
    compute:
      step_s: ${compute.eval_step_s}
      eval_step_s: 323ms
scales:
  laptop: {max_files: 14, compute: 0.5}
"""


def of(tmp_path: Path, *args: str, text: str = RECIPE) -> Composed:
    (tmp_path / "volumes.yaml").write_text(textwrap.dedent(text), encoding="utf-8")
    return compose(["recipe=volumes.yaml", *args], cwd=tmp_path, environ={}, formats=["hdf5"])


def message(tmp_path: Path, *args: str, text: str = RECIPE) -> str:
    with pytest.raises(ConfigError) as caught:
        of(tmp_path, *args, text=text)
    line = str(caught.value)
    assert "\n" not in line
    assert caught.value.hint
    assert caught.value.exit_code == 2
    return line


def test_without_a_variant_the_recipe_stands_as_it_is(tmp_path: Path) -> None:
    made = of(tmp_path, "scale=paper")
    assert (made.config.accelerator, made.config.compute.step_s, made.config.train.batch_size) == ("", 1.36, 4)
    assert made.sources["compute.step_s"] == "volumes.yaml:4"
    assert of(tmp_path, "accelerator=", "scale=paper").config.compute.step_s == 1.36


def test_a_variant_lies_over_the_recipe_and_names_its_line(tmp_path: Path) -> None:
    made = of(tmp_path, "accelerator=a100", "scale=paper")
    config = made.config
    assert (config.accelerator, config.compute.step_s, config.train.batch_size) == ("a100", 0.636, 7)
    assert config.train.epochs == 5  # a variant adds to a group, it does not replace it
    assert made.sources["accelerator"] == "command line"
    assert made.sources["compute.step_s"] == "volumes.yaml:7"
    assert made.sources["train.epochs"] == "volumes.yaml:3"


def test_a_variant_may_refer_to_other_keys(tmp_path: Path) -> None:
    made = of(tmp_path, "accelerator=h100", "scale=paper")
    assert made.config.compute.step_s == 0.323
    assert made.sources["compute.step_s"] == "volumes.yaml:10"


def test_scale_fragments_and_arguments_come_over_a_variant(tmp_path: Path) -> None:
    made = of(tmp_path, "accelerator=a100", "scale=laptop")
    assert made.config.compute.step_s == 0.318
    assert made.sources["compute.step_s"] == "scale laptop (published 0.636)"
    made = of(tmp_path, "compute.step_s=2", "accelerator=a100", "train.batch_size=3")
    assert (made.config.compute.step_s, made.config.train.batch_size) == (2.0, 3)
    assert of(tmp_path, "accelerator=a100", "compute=none").config.compute.mode == "none"


def test_the_last_of_two_variants_is_taken(tmp_path: Path) -> None:
    made = of(tmp_path, "accelerator=a100", "accelerator=v100", "scale=paper")
    assert (made.config.accelerator, made.config.train.batch_size) == ("v100", 4)


def test_a_recipe_may_pick_its_own_variant(tmp_path: Path) -> None:
    text = "accelerator: a100\n" + RECIPE
    made = of(tmp_path, "scale=paper", text=text)
    assert (made.config.accelerator, made.config.train.batch_size) == ("a100", 7)
    assert made.sources["accelerator"] == "volumes.yaml:1"
    assert of(tmp_path, "accelerator=v100", "scale=paper", text=text).config.train.batch_size == 4
    assert of(tmp_path, "accelerator=", "scale=paper", text=text).config.compute.step_s == 1.36
    line = message(tmp_path, text="accelerator: a10\n" + RECIPE)
    assert "accelerator=a10 (volumes.yaml:1)" in line


def test_an_unknown_variant_names_the_nearest_and_all(tmp_path: Path) -> None:
    line = message(tmp_path, "accelerator=a10")
    assert "accelerator=a10 (command line): volumes.yaml has no such variant" in line
    assert "did you mean a100? variants are v100, a100, h100" in line
    assert "did you mean" not in message(tmp_path, "accelerator=tpu")
    bare = RECIPE[: RECIPE.index("accelerators:")]
    assert "volumes.yaml has no variants; leave accelerator out" in message(tmp_path, "accelerator=a100", text=bare)
    assert "no variants" in message(tmp_path, "accelerator=a100", text=bare + "accelerators:\n")


@pytest.mark.parametrize(
    ("block", "named"),
    [
        ("{b: {compute: {step: 1}}}", ["compute.step=1 (volumes.yaml:2)", "did you mean compute.step_s?"]),
        ("{b: {compute: {step_s: fast}}}", ["compute.step_s=fast (volumes.yaml:2)", "expected a duration"]),
        ("{b: {train: {batch_size: 0}}}", ["train.batch_size=0 (volumes.yaml:2)", "must be at least 1"]),
        ("{b: {compute: 3}}", ["compute=3 (volumes.yaml:2)", "is a group of options"]),
        ("{b: {expect: [{metric: au, value: x}]}}", ["expect.0.value=x (volumes.yaml:2)", "expected a number"]),
        ("{b: 3}", ["accelerators.b=3 (volumes.yaml:2)", "must contain keys of the recipe"]),
        ("{b: [1]}", ["accelerators.b=[1] (volumes.yaml:2)", "must contain keys of the recipe"]),
        ("{b: {scale: {max_files: 3}}}", ["accelerators.b.scale={...}", "cannot set scale", "'scales:'"]),
        ("{b: {recipe: c}}", ["accelerators.b.recipe=c (volumes.yaml:2)", "cannot set recipe"]),
        ("{b: {accelerator: c}}", ["accelerators.b.accelerator=c", "cannot set accelerator"]),
        ("{b: {accelerators: {}}}", ["accelerators={...} (volumes.yaml:2)", "unknown option"]),
        ("{'a b': {}}", ["accelerators.a b (volumes.yaml:2)", "this name of a variant is not allowed"]),
        ("{'': {}}", ["accelerators. (volumes.yaml:2)", "this name of a variant is not allowed"]),
        ("[a100]", ["accelerators=[a100] (volumes.yaml:2)", "expected a block for each accelerator"]),
        ("a100", ["accelerators=a100 (volumes.yaml:2)", "expected a block for each accelerator"]),
    ],
)
def test_blocks_are_checked_even_when_unused(tmp_path: Path, block: str, named: list[str]) -> None:
    text = f"dataset: {{fields: [{{name: x, shape: [4]}}]}}\naccelerators: {block}\n"
    for part in named:
        assert part in message(tmp_path, text=text)


def test_blocks_of_scales_are_checked_for_values_too(tmp_path: Path) -> None:
    text = "dataset: {fields: [{name: x, shape: [4]}]}\nscales:\n  tiny: {max_samples: many}\n"
    line = message(tmp_path, "scale=paper", text=text)
    assert "scale.max_samples=many (volumes.yaml:3): expected a whole number" in line


def test_what_is_known_later_only_is_not_refused_in_an_unused_block(tmp_path: Path) -> None:
    text = RECIPE.replace("h100:", "h100: {compute: {step_s: '${dataset.fields.0.shape.0}', stdev_s: '???'}}\n  z:")
    assert of(tmp_path, text=text).config.compute.step_s == 1.36
    assert "compute.stdev_s=??? (volumes.yaml:8): must be given" in message(tmp_path, "accelerator=h100", text=text)
    assert of(tmp_path, "accelerator=h100", "compute.stdev_s=0", text=text).config.compute.step_s == 4.0


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    assert "accelerator=[a100] (volumes.yaml:1)" in message(tmp_path, text="accelerator: [a100]\n" + RECIPE)
    assert "null is not permitted" in message(tmp_path, text="accelerator: null\n" + RECIPE)


def test_a_resolved_configuration_is_not_merged_again(tmp_path: Path) -> None:
    made = of(tmp_path, "accelerator=a100", "compute.step_s=50ms")
    resolved = to_yaml(made.config, made.sources)
    again = of(tmp_path, text=resolved)
    assert again.config == made.config
    assert again.config.accelerator == "a100"
    line = message(tmp_path, "accelerator=h100", text=resolved)
    assert "accelerator=h100 (command line): the variant of volumes.yaml has already been applied" in line
    refused = message(tmp_path, text=resolved + "accelerators: {b: {}}\n")
    assert "a file with the line 'resolved: true' must not contain this key" in refused


def test_show_and_ls_tell_of_variants(tmp_path: Path) -> None:
    shown = explanation.show(of(tmp_path, "accelerator=a100", "scale=paper"))
    assert "accelerator: a100                                # command line\n" in shown
    assert "  batch_size: 7                                  # volumes.yaml:7\n" in shown
    folder = tmp_path / "recipes"
    folder.mkdir()
    (folder / "volumes.yaml").write_text(RECIPE, encoding="utf-8")
    (folder / "bare.yaml").write_text("description: none\n", encoding="utf-8")
    (folder / "broken.yaml").write_text("description: no\naccelerators: 3\n", encoding="utf-8")
    listed = explanation.listing(["recipes"], cwd=tmp_path, environ={"DLIO_TORCH_PATH": "."})["recipes"]
    assert listed["volumes"] == "volumes (accelerator=v100|a100|h100)"
    assert listed["bare"] == "none"
    assert listed["broken"].startswith("cannot be read: accelerators=3 (./recipes/broken.yaml:2)")


def shipped_variants() -> list[tuple[str, str]]:
    recipes = find(Path.cwd(), {}).recipes()
    trees = {name: parse_document(path.read_text(encoding="utf-8"), name).tree for name, path in recipes.items()}
    return [(name, variant) for name, tree in trees.items() for variant in tree.get("accelerators") or {}]


@pytest.mark.parametrize("scale", ["laptop", "tiny", "paper"])
def test_every_shipped_variant_composes_at_every_scale(scale: str) -> None:
    for recipe, variant in shipped_variants():
        made = compose([f"recipe={recipe}", f"accelerator={variant}", f"scale={scale}"], environ={})
        assert made.config.accelerator == variant
        assert made.config.recipe == recipe
